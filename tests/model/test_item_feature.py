"""What is known of the items reaches the score: their category, as a part that a user of the library writes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor, nn

from beamtree.config import Config
from beamtree.data.requests import Requests
from beamtree.model.part import Part, PreparedPart, ReadRows
from beamtree.recommender import DeepTreeRetriever, load
from beamtree.tree.item_tree import ItemTree
from tests.small import small_config, two_group_log

ITEMS = pl.DataFrame({"item_id": [f"{group}{item}" for group in "ab" for item in range(10)]}).with_columns(
    category=pl.col("item_id").str.head(1)
)
CONFIG = small_config(training={"rounds": 2}, model={"parts": ["attention"]})


class CategoryTaste(Part):
    """The mean category vector of the history against a node's: that of its item, or the mean over the items below."""

    def __init__(self, shares: Tensor, of_item: Tensor, *, size: int, generator: torch.Generator) -> None:
        """shares: (nodes, categories), of the items below each node; of_item: (items,), the category of each."""
        super().__init__()
        self.vectors = nn.Parameter(0.5 * torch.randn(shares.shape[1], size, generator=generator))
        self.register_buffer("shares", shares, persistent=False)
        self.register_buffer("of_item", of_item, persistent=False)

    def prepare(self, requests: Requests, *, read: ReadRows, dropout: torch.Generator | None) -> PreparedPart:
        del read, dropout
        history = torch.from_numpy(requests.histories.latest(20)).to(self.device).long()  # (requests, 20), -1 in front
        present = (history >= 0).unsqueeze(-1)
        had = self.vectors[self.get_buffer("of_item")[history.clamp(min=0)]] * present
        mean = had.sum(dim=1) / present.sum(dim=1).clamp(min=1)  # (requests, size)

        def scores(_levels: Sequence[int], nodes: Tensor) -> Tensor:
            vectors = self.get_buffer("shares")[nodes.clamp(min=0)] @ self.vectors  # (levels, requests, columns, size)
            return (vectors * mean.unsqueeze(1)).sum(dim=-1)

        return scores


def make_category(tree: ItemTree, config: Config, *, generator: torch.Generator, item_table: pl.DataFrame) -> Part:
    category = item_table["category"].rank("dense").to_numpy() - 1
    shares = np.zeros((tree.num_nodes, category.max() + 1), dtype=np.float32)
    for level in range(tree.height + 1):
        nodes = tree.level_offsets[level] + tree.item_ancestors(np.arange(tree.num_items), level)
        np.add.at(shares, (nodes, category), 1.0)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
    of_item = torch.from_numpy(category.astype(np.int64))
    return CategoryTaste(torch.from_numpy(shares), of_item, size=config.model.embedding_dim, generator=generator)


@pytest.fixture(scope="module")
def model() -> DeepTreeRetriever:
    return DeepTreeRetriever(CONFIG, parts={"category": make_category}).fit(two_group_log(), items=ITEMS)


def test_a_node_has_the_categories_of_the_items_below_it() -> None:
    table, tree = pl.DataFrame({"category": ["a", "b", "a", "a"]}), ItemTree(2, np.array([0, 2, 3, 1]))
    part = make_category(tree, CONFIG, generator=torch.Generator(), item_table=table)
    assert part.get_buffer("shares")[:3].tolist() == [[0.75, 0.25], [1.0, 0.0], [0.5, 0.5]]


def test_the_share_of_an_item_is_that_of_its_category_over_the_relearned_tree(model: DeepTreeRetriever) -> None:
    of_a, of_b = model.recommender.artefact.weights["category/vectors"]
    shares = {item: model.explain(["a1", "a2", "a3"], item).parts["category"] for item in ("a7", "a8", "b7")}
    assert shares == pytest.approx({"a7": of_a @ of_a, "a8": of_a @ of_a, "b7": of_a @ of_b}, rel=1e-5)


def test_it_is_saved_and_loaded(model: DeepTreeRetriever, tmp_path: Path) -> None:
    model.save(tmp_path)
    loaded = load(tmp_path, parts={"category": make_category})
    tables = [each.recommend_histories([["b1", "b2"], ["a5"]], k=8, explain=True) for each in (model, loaded)]
    assert tables[0].equals(tables[1])
