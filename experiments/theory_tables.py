"""What the theory says of the samplers, the max-heap and the labels, beside what trained trees show."""

from collections.abc import Callable, Sequence
from typing import Any

from experiments.markdown import table
from experiments.results import Line
from experiments.summary import ORDER, SYSTEM_NAMES, Spread, grouped

Entry = dict[str, Any]
Levels = dict[int, list[Entry]]
"""What each level of a system's trees shows, one entry per seed."""

DRAWS = {"kl_uniform": "uniform", "kl_top_down": "down the tree"}
VIOLATIONS = {"child_violations": "all", "path_violations": "above the top 20"}


def theory_section(lines: Sequence[Line], *, data: str) -> list[str]:
    """Tables by level, from the final lines of runs that were looked into; nothing where none was."""
    looked_into = sorted((line for line in lines if "theory" in line), key=lambda line: ORDER.index(line["system"]))
    if not looked_into:
        return []
    by_system = grouped(looked_into, lambda line: line["system"])
    levels = {system: _by_level(own) for system, own in by_system.items()}
    sampled = {system: _by_level(own, only="sampled") for system, own in by_system.items()}
    labels = [line["theory"]["labels"] for line in looked_into if line["theory"]["labels"] is not None]
    users = looked_into[0]["theory"]["users"]
    seeds = ", ".join(f"{SYSTEM_NAMES[system]} {len(own)}" for system, own in by_system.items())
    return [
        f"#### What the theory is about, on {data}",
        f"Measured in the trained trees on {users:,} validation users, as by `beamtree inspect`; means over the seeds "
        f"({seeds}).",
        "How far draws are from the softmax of their level, KL(Q‖P) in nats: by Lemma 3 the loss of the full softmax "
        "exceeds the expected sampled loss by at most that. Levels that are taken whole are left out, and on the next "
        "one draws down the tree begin exactly.",
        _table_by_level(sampled, DRAWS, show=_nats),
        "Pairs of siblings whose order contradicts that of their best children; and, of those above the top 20, pairs "
        "that contradict the best leaves below them, where all leaves were scored. Beam search suffers from them, and "
        "rectified labels are meant to prevent them. A coin gives 50 %.",
        _table_by_level(levels, VIOLATIONS, show=_percent),
        *([_labels(labels)] if labels else []),
    ]


def _by_level(lines: Sequence[Line], *, only: str | None = None) -> Levels:
    entries = [level for line in lines for level in line["theory"]["levels"] if only is None or level[only]]
    return grouped(entries, lambda level: level["level"])


def _table_by_level(
    levels: dict[str, Levels], columns: dict[str, str], *, show: Callable[[Sequence[float]], str]
) -> str:
    """A row for each level, and under each system a column for each number; both where anything has it."""
    nodes = {number: entries[0]["nodes"] for own in levels.values() for number, entries in own.items()}
    shown = {
        (system, name): {number: _known(entries, name) for number, entries in levels[system].items()}
        for system in levels
        for name in columns
    }
    filled = {key: values for key, values in shown.items() if any(values.values())}
    header = ["level", "nodes", *(f"{SYSTEM_NAMES[system]}: {columns[name]}" for system, name in filled)]
    rows = []
    for number in sorted(nodes):
        found = [values.get(number) for values in filled.values()]
        if any(found):
            rows.append([str(number), f"{nodes[number]:,}", *(show(values) if values else "" for values in found)])
    return table(header, rows) if rows else "None."


def _known(entries: Sequence[Entry], name: str) -> list[float]:
    return [entry[name] for entry in entries if entry[name] is not None]


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
