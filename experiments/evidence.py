"""What the theory says of the samplers, the max-heap and the labels, beside what trained trees show."""

from collections.abc import Callable, Sequence
from typing import Any

from experiments.markdown import table
from experiments.results import Line
from experiments.summary import ORDER, SYSTEM_NAMES, Spread, grouped

Entry = dict[str, Any]
Levels = dict[int, list[Entry]]
"""What each level of a system's trees shows, one entry per seed."""


def theory_section(lines: Sequence[Line], *, data: str) -> list[str]:
    """Tables by level, from the final lines of runs that were looked into; nothing where none was."""
    looked_into = sorted((line for line in lines if "theory" in line), key=lambda line: ORDER.index(line["system"]))
    if not looked_into:
        return []
    levels = {system: _by_level(own) for system, own in grouped(looked_into, lambda line: line["system"]).items()}
    users = looked_into[0]["theory"]["users"]
    labels = [line["theory"]["labels"] for line in looked_into if line["theory"]["labels"] is not None]
    parts = [
        f"#### What the theory is about, on {data}",
        f"Measured in the trained trees on {users:,} validation users, as by `beamtree inspect`; means over the seeds.",
        "How far draws are from the softmax of their level, KL(Q‖P) in nats: by Theorem 3, sampling costs the loss at "
        "most that. Levels that are taken whole are left out, and on the next one draws down the tree begin exactly.",
        _table_by_level(levels, {"kl_uniform": "uniform", "kl_top_down": "down the tree"}, show=_nats, only="sampled"),
        "Pairs of siblings whose order contradicts the order of the best leaves below them, all pairs and those above "
        "the top 20. Beam search suffers from them, and rectified labels are meant to prevent them. A coin gives 50 %.",
        _table_by_level(levels, {"leaf_violations": "all", "path_violations": "above the top 20"}, show=_percent),
    ]
    return [*parts, _labels(labels)] if labels else parts


def _by_level(lines: Sequence[Line]) -> Levels:
    return grouped([level for line in lines for level in line["theory"]["levels"]], lambda level: level["level"])


def _table_by_level(
    levels: dict[str, Levels],
    columns: dict[str, str],
    *,
    show: Callable[[Sequence[float]], str],
    only: str | None = None,
) -> str:
    """A row for each level that has these numbers; under each system a column for each of them."""
    header = ["level", "nodes"]
    header += [f"{SYSTEM_NAMES[system]}: {title}" for system in levels for title in columns.values()]
    rows = []
    for number, entries in next(iter(levels.values())).items():
        is_shown = entries[0][only] if only else all(entries[0][name] is not None for name in columns)
        if is_shown:
            cells = [show([entry[name] for entry in own[number]]) for own in levels.values() for name in columns]
            rows.append([str(number), f"{entries[0]['nodes']:,}", *cells])
    return table(header, rows)


def _labels(labels: Sequence[Entry]) -> str:
    """How many labels are 1, level by level, and how many change under wrong probabilities."""
    shares = [_percent([own["positive"][level] for own in labels]) for level in range(len(labels[0]["positive"]))]
    changes = [
        f"{_percent([own['changed'][threshold] for own in labels])} at {threshold}"
        for threshold in labels[0]["changed"]
    ]
    return (
        f"Rectified labels that are 1, from level 1 to the leaves: {', '.join(shares)}. Labels that change where every "
        f"estimated probability is off by as much: {', '.join(changes)}."
    )


def _nats(values: Sequence[float]) -> str:
    return f"{Spread.of(values).mean:.3f}"


def _percent(shares: Sequence[float]) -> str:
    return f"{100 * Spread.of(shares).mean:.1f} %"
