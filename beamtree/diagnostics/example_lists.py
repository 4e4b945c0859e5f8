"""Example recommendations to a few held-out users, with titles, to judge by eye."""

from dataclasses import dataclass

import numpy as np

from beamtree.artefact import Artefact
from beamtree.data.columns import TITLE
from beamtree.data.dataset import Dataset
from beamtree.diagnostics.ranked_lists import MODEL, RankedLists
from beamtree.retrieval.recommender import Recommender
from beamtree.types import NOTHING

NUM_USERS = 4
NUM_HISTORY = 5
NUM_ITEMS = 10


@dataclass(frozen=True)
class ExampleItem:
    """A recommended item. is_hit: whether it is a label; because_of: the title of the item that contributes most."""

    title: str
    is_hit: bool
    because_of: str | None


@dataclass(frozen=True)
class ExampleList:
    """One user. history: titles of the latest items, the newest first; labels: items that the user went on to."""

    user: str
    history_length: int
    history: tuple[str, ...]
    labels: int
    recommended: tuple[ExampleItem, ...]


def take_examples(artefact: Artefact, dataset: Dataset, ranked: RankedLists) -> tuple[ExampleList, ...]:
    """Users evenly spread over the sample."""
    recommender = Recommender(artefact)
    table = artefact.item_table
    has_titles = TITLE in table.columns
    users, lists = ranked.users, ranked.lists[MODEL]
    labels, offsets = ranked.labels

    def title_of(item: int) -> str:
        title = table[TITLE][item] if has_titles else None
        return str(title or dataset.items.decode(np.array([item]))[0])

    def example(row: int) -> ExampleList:
        history = dataset.sequences.items[users.history_start[row] : users.history_end[row]]
        recommended = lists[row][lists[row] != NOTHING][:NUM_ITEMS]
        later = set(labels[offsets[row] : offsets[row + 1]].tolist())
        explanations = recommender.explain(
            dataset.items.decode(history).to_list(), dataset.items.decode(recommended).to_list()
        )
        reasons = [next(iter(explanation.because_of), None) for explanation in explanations]
        return ExampleList(
            user=str(dataset.users.decode(users.user[row : row + 1])[0]),
            history_length=len(history),
            history=tuple(title_of(int(item)) for item in history[-NUM_HISTORY:][::-1]),
            labels=len(later),
            recommended=tuple(
                ExampleItem(
                    title_of(int(item)),
                    int(item) in later,
                    None if reason is None else str(reason.title or reason.item_id),
                )
                for item, reason in zip(recommended, reasons, strict=True)
            ),
        )

    rows = np.linspace(0, len(users) - 1, num=min(NUM_USERS, len(users))).round().astype(np.int64)
    return tuple(example(int(row)) for row in rows)
