"""Tiny models of all parts over trees of any shape, and how to ask them."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from beamtree.artefact import Artefact
from beamtree.config import Config
from beamtree.data.requests import Histories, Requests
from beamtree.model.memory import Memory
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.result import SearchResult
from beamtree.tree.item_tree import ItemTree
from tests.serving.models import TINY, random_memory, random_tower, random_weights
from tests.small import nested

PARTS = ("attention", "tower", "memory")


def tiny_model(
    tree: ItemTree,
    *,
    seed: int = 0,
    parts: tuple[str, ...] = PARTS,
    model: dict[str, Any] | None = None,
    repeats: float = 0.5,
) -> Artefact:
    """A model with random weights; items 100, 101, ... in three categories, gates that differ from level to level."""
    generator = np.random.default_rng(seed)
    sizes = TINY["model"] | {"parts": list(parts), "normalisation": "layer"} | (model or {})
    config = Config.resolve(nested(TINY | {"model": sizes}))
    weights: dict[str, Any] = random_weights(config.model, tree, generator=generator)
    weights |= random_tower(tree, generator=generator) | random_memory(tree.num_items, generator=generator)
    memory = Memory.from_arrays(
        {name.removeprefix("memory/"): array for name, array in weights.items() if name.startswith("memory/")}
    )
    gated = replace(
        memory,
        weights=replace(memory.weights, repeats=repeats, company=0.5),
        gates=tuple(generator.uniform(0.5, 2.0, tree.height + 1)),
    )
    weights |= {f"memory/{name}": array for name, array in gated.arrays().items()}
    numbers = np.arange(tree.num_items)
    return Artefact(
        config=config,
        weights={name: array for name, array in weights.items() if name.partition("/")[0] in parts},
        tree=tree,
        popularity=generator.integers(0, 50, tree.num_items),
        item_table=pl.DataFrame(
            {
                "item_id": numbers + 100,
                "category": [("Drama", "Comedy", "War")[number % 3] for number in numbers],
                "title": [f"Title {number}" for number in numbers],
                "price": numbers / 4,
            }
        ),
        data_fingerprint="",
    )


def random_requests(num_items: int, *, seed: int, known: int | None = None) -> Requests:
    """Three histories, one of them empty, over the first `known` items, and exclusions."""
    generator = np.random.default_rng(seed)
    most = num_items if known is None else known
    histories = [generator.integers(0, most, size=size).tolist() for size in (0, 2, 9)]
    excluded = [generator.integers(0, most, size=size).tolist() for size in (0, 1, 3)]
    return Requests(Histories.of_lists(histories), excluded=Histories.of_lists(excluded).flattened())


def both_searches(artefact: Artefact, requests: Requests, *, k: int, beam_width: int) -> list[SearchResult]:
    """By beam and by scan."""
    engine = Recommender(artefact).engine
    return [engine.search(requests, k=k, beam_width=beam_width), engine.scan(requests, k=k)]


def assert_same_answers(found: list[SearchResult], expected: list[SearchResult]) -> None:
    """Same items and the very same scores."""
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left.items, right.items)
        np.testing.assert_array_equal(left.scores, right.scores)
