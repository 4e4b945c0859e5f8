"""The model card: README.md in a model folder, for people and for model hubs. Nothing reads it back.

It is made from the model alone, without times or dates: the same model gives the same card. The manifest does not list
it, so that neither the version of a model nor its checksums know of it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beamtree.artefact import FORMAT_VERSION, MODEL_CARD, Artefact
from beamtree.baselines.comparison import Comparison
from beamtree.config import Config
from beamtree.errors import ArtefactError
from beamtree.evaluation.protocol import describe_protocol
from beamtree.storage import replace_text

FRONT_MATTER = """\
---
# Written by beamtree. Saving a model here replaces this file; delete this line to keep your own.
library_name: beamtree
tags:
- recommender-system
- retrieval
- sequential-recommendation
---
"""
_OWN_FIRST_LINES = "".join(FRONT_MATTER.splitlines(keepends=True)[:2]).encode()

SHOWN_METRICS = ("precision@20", "recall@20", "f@20", "ndcg@20", "recall@40", "ndcg@40", "coverage@20")
SHOWN_COLUMNS = 20
EXAMPLE_ITEMS = 3
EXAMPLE_ID_CHARACTERS = 40
SHOWN_CHARACTERS = 200


def write_model_card(directory: Path, artefact: Artefact, *, comparison: Comparison | None = None) -> None:
    """Write README.md into the folder of a saved model, unless one is there that beamtree did not write.

    comparison: the model beside baselines on the test users, if that was measured. ArtefactError where it cannot be
    written; the model itself is saved by then.
    """
    path = directory / MODEL_CARD
    try:
        if not path.exists() or _is_own(path):
            replace_text(path, model_card(artefact, comparison=comparison))
    except OSError as error:
        raise ArtefactError(
            f"The model is saved, but its card {path} could not be written: {error.strerror or error}. Check that the "
            "folder is writable and the disk has room, then save again."
        ) from error


def model_card(artefact: Artefact, *, comparison: Comparison | None = None) -> str:
    """The card as Markdown with the front matter of the Hugging Face hub."""
    sections = [
        "# A beamtree recommender",
        _what_it_is(artefact),
        "## Data",
        *_data(artefact),
        "## Results",
        *_results(artefact, comparison),
        "## Settings",
        *_settings(artefact),
        "## Limits",
        "\n".join(f"- {line}" for line in _limits(artefact)),
        "## How to use it",
        _how_to_use(artefact),
    ]
    return FRONT_MATTER + "\n" + "\n\n".join(sections) + "\n"


def _is_own(path: Path) -> bool:
    """Whether a card begins as beamtree writes it."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(_OWN_FIRST_LINES)) == _OWN_FIRST_LINES


def _what_it_is(artefact: Artefact) -> str:
    tree, parts = artefact.tree, sorted({name.partition("/")[0] for name in artefact.weights})
    return (
        f"A retriever over {tree.num_present:,} items. Given the items that a person has interacted with, oldest "
        "first, it returns the k best next items by beam search (beam width "
        f"{artefact.config.retrieval.beam_width:,}) down a tree with branching factor {tree.branching} and "
        f"{tree.height} levels. A node's score is {'the sum of ' if len(parts) > 1 else ''}"
        f"{' and '.join(map(_code, parts))}. Fitted with beamtree, an implementation of *Learning Deep Tree-based "
        "Retriever for Efficient Recommendation* (DTR)."
    )


def _data(artefact: Artefact) -> Iterator[str]:
    log = artefact.training.get("log")
    facts = log if isinstance(log, Mapping) else {}
    rows = [
        ("users", _count(facts.get("users"))),
        ("items", f"{artefact.tree.num_present:,}"),
        ("interactions", _count(facts.get("interactions"))),
        ("density", _share(facts.get("density"))),
        ("interactions per user, median", _count(facts.get("median_history"))),
        ("interactions per user, longest", _count(facts.get("longest_history"))),
        ("interactions that repeat an item", _share(facts.get("repeat_share"))),
        ("item columns", _item_columns(artefact)),
        ("fingerprint of the prepared log", _code(artefact.data_fingerprint[:16]) if artefact.data_fingerprint else ""),
    ]
    yield _table(("fact", "value"), [row for row in rows if row[1]])
    yield "The folder holds item ids and counts of items. It holds no user ids and no histories."


def _results(artefact: Artefact, comparison: Comparison | None) -> Iterator[str]:
    split, test = artefact.training.get("split"), artefact.metrics.get("test", {})
    if comparison is None and not test:
        yield "No users were held out, so nothing was measured."
        return
    measured = None if comparison is None else next(iter(comparison.values()))
    held_out = f"Held-out users, {describe_protocol(artefact.config, measured)}."
    yield f"{held_out} Split: {_plain(split)}." if isinstance(split, str) else held_out
    systems: Mapping[str, Mapping[str, float]] = {"beamtree": test} if comparison is None else comparison.labelled()
    shown = [name for name in SHOWN_METRICS if any(name in metrics for metrics in systems.values())]
    yield _table(
        ("system", *shown),
        [
            (_plain(system), *(f"{metrics[name]:.4f}" if name in metrics else "" for name in shown))
            for system, metrics in systems.items()
        ],
    )
    if comparison is not None and comparison.verdict is not None:
        yield comparison.verdict.line()
    else:
        yield (
            "No baseline had been measured when this model was saved. `beamtree evaluate FOLDER --log LOG` puts the "
            "model beside several of them."
        )


def _settings(artefact: Artefact) -> Iterator[str]:
    default, chosen = Config().model_dump(mode="json"), artefact.config.model_dump(mode="json")
    changed = [
        (_code(f"{section}.{key}"), _code(json.dumps(value)))
        for section, values in chosen.items()
        for key, value in values.items()
        if value != default[section][key]
    ]
    yield (
        f"Seed {artefact.config.training.seed}. `manifest.json` has every setting; these differ from the defaults or "
        "were decided by the log:"
    )
    yield _table(("setting", "value"), changed)


def _limits(artefact: Artefact) -> Iterator[str]:
    yield (
        "It knows the items of its catalogue and no others: unknown ids in a history are skipped. `beamtree update` "
        "adds new items; until the next fit, they are placed by what is known of them."
    )
    yield "A history without any known item gets popular items, without scores."
    if artefact.config.retrieval.excludes_seen:
        yield "Items of the history are not recommended, unless a request asks for them (`exclude_seen=False`)."
    else:
        yield "Items of the history may be recommended again, unless a request leaves them out (`exclude_seen=True`)."
    yield (
        "It learned from what people interacted with, so it repeats the biases of that log: popular items come up more "
        "often, and what was never shown was never learned."
    )
    yield "The metrics are offline figures on held-out interactions of the same log, not effects on people."
    yield "Beam search is approximate: a wider beam comes closer to scoring every item, and takes longer."


def _how_to_use(artefact: Artefact) -> str:
    popular = np.argsort(-artefact.popularity, kind="stable")[:EXAMPLE_ITEMS]
    ids = artefact.item_table["item_id"].gather(popular).to_list()
    shown = ", ".join(json.dumps(raw[:EXAMPLE_ID_CHARACTERS] if isinstance(raw, str) else raw) for raw in ids)
    return (
        "```python\n"
        "import beamtree as bt\n\n"
        'model = bt.load("path/to/this/folder")\n'
        f"model.recommend_histories([[{shown}]], k=10)\n"
        "```\n\n"
        "`beamtree serve path/to/this/folder` answers over HTTP. Loading verifies checksums and runs no code from the "
        f"folder (format {FORMAT_VERSION}). Nothing reads this card."
    )


def _item_columns(artefact: Artefact) -> str:
    names = artefact.item_table.columns
    more = f" and {len(names) - SHOWN_COLUMNS:,} more" if len(names) > SHOWN_COLUMNS else ""
    return ", ".join(map(_code, names[:SHOWN_COLUMNS])) + more


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _count(value: Any) -> str:
    return f"{value:,}" if type(value) is int else ""


def _share(value: Any) -> str:
    return f"{value:.2%}" if isinstance(value, float) else ""


def _plain(text: str) -> str:
    """A text on one line that cannot end a cell of a table or begin a tag."""
    printable = "".join(character if character.isprintable() else " " for character in text[: 3 * SHOWN_CHARACTERS])
    return re.sub(r"([|<>`\[\]\\])", r"\\\1", printable)


def _code(text: str) -> str:
    """A text as code on one line of a table."""
    printable = "".join(character if character.isprintable() else " " for character in text[:SHOWN_CHARACTERS])
    return f"`{printable.replace('`', ' ').replace('|', ' ')}`"
