"""What new items cost: many of them into the tree of a large catalogue, of tower and memory.

python -m benchmarks.insertion [--items 1000000] [--new 10000]

New vectors are those of random items with noise, as a content model would give them, so that the descent has something
to find: `beside_source` is the share of new items whose leaf lies below the same node, ten levels down, as the leaf of
the item that their vector comes from.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from time import perf_counter

import numpy as np
import polars as pl

from beamtree.artefact import Artefact
from beamtree.catalogue.change import change_catalogue
from beamtree.config import Config
from benchmarks.catalogue import Catalogue

NOISE = 0.3
"""Length of the noise beside a vector of length 1."""
COMPARED_LEVEL = 10


@dataclass(frozen=True)
class InsertionTiming:
    """seconds: of the whole call, growth of the tree included."""

    items: int
    new_items: int
    seconds: float
    insert_ms_per_item: float
    beside_source: float


def catalogue_model(*, items: int, followers: int = 20, seed: int = 0) -> Artefact:
    """A random catalogue as a model."""
    drawn = Catalogue.draw(items=items, followers=followers, seed=seed)
    weights = {f"tower/{name}": array for name, array in drawn.tower.items()}
    weights |= {f"memory/{name}": array for name, array in drawn.memory.arrays().items()}
    settings = {
        "model": {"parts": ["tower", "memory"]},
        "data": {"min_held_out": 2},
        "decided": {"shuffle_ties": False},
        "retrieval": {"exclude_seen": True},
    }
    return Artefact(
        config=Config.resolve(settings),
        weights=weights,
        tree=drawn.tree,
        popularity=np.expm1(drawn.memory.popularity).astype(np.int64),
        item_table=pl.DataFrame(
            {"item_id": np.arange(items), "category": pl.Series(np.arange(items) % 100).cast(pl.String)}
        ),
        data_fingerprint="",
    )


def measure_insertion(model: Artefact, *, new_items: int, seed: int = 1) -> InsertionTiming:
    """Add items near random others to a model of integer ids; the model itself stays as it is."""
    generator, tree = np.random.default_rng(seed), model.tree
    source = generator.integers(0, tree.num_items, new_items)
    table = model.weights["tower/node_table"]
    vectors = table[tree.level_offsets[tree.height] + tree.leaf_of_item[source]].astype(np.float32)
    width = vectors.shape[1]
    vectors = vectors + generator.normal(0.0, NOISE * width**-0.5, vectors.shape).astype(np.float32)
    first_id = int(model.items.ids.max()) + 1  # type: ignore[arg-type]
    rows = pl.DataFrame({"item_id": np.arange(first_id, first_id + new_items)})
    started = perf_counter()
    after = change_catalogue(model, add=rows, content=lambda _: vectors).artefact
    seconds = perf_counter() - started
    level = min(COMPARED_LEVEL, tree.height - 1)
    new = np.arange(tree.num_items, after.tree.num_items)
    beside = after.tree.item_ancestors(new, level) == after.tree.item_ancestors(source, level)
    return InsertionTiming(
        items=tree.num_items,
        new_items=new_items,
        seconds=seconds,
        insert_ms_per_item=1000.0 * seconds / new_items,
        beside_source=float(beside.mean()),
    )


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--new", type=int, default=10_000)
    asked = parser.parse_args()
    timing = measure_insertion(catalogue_model(items=asked.items), new_items=asked.new)
    print(json.dumps(asdict(timing), indent=2))


if __name__ == "__main__":
    main()
