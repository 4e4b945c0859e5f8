"""Settings shared by all tree systems: sizes of the network, training instances, plan of a fit.

Taken from the paper: a binary tree that starts from the items' categories, DIN over the latest 69 items in ten windows,
vectors of 24 numbers, hidden layers of 128, 64 and 24, batches of 100, the next item as the only target.

Open, or different here: the network has no batch normalisation, which the kernels do not compute; Adam's weight decay
is decoupled; the learning rate is chosen on validation users and follows a cosine in each round, because the published
schedule is made for 80,000 steps per round. Where items have no categories, the first tree clusters their co-occurrence
vectors. The comparison's instances are those of all rounds together, and there are fewer rounds than published where
they would be shorter than `min_round_steps`.
"""

from dataclasses import dataclass
from typing import Literal

from beamtree.config import PRESETS, PUBLISHED_NETWORK, Config, ModelSettings, TreeSettings
from beamtree.data.dataset import Dataset
from beamtree.tree.item_tree import tree_height

PUBLISHED_SIZES = ModelSettings.model_validate(
    {**PRESETS["paper"]["model"], "network": PUBLISHED_NETWORK.model_copy(update={"normalisation": "none"})}
)
"""DIN as published, without batch normalisation."""


@dataclass(frozen=True)
class Recipe:
    """How a tree system is fitted, whatever its loss.

    sizes: of DIN; `history_table` is each system's own. branching: children of a node. order: of the first tree's
    leaves; None = by category, where items have one. negatives: of DTR, on each level of a binary tree; a tree with
    more branches, and fewer levels, has as many in all. target_horizon: as in `training.target_horizon`. warm_start:
    embeddings begin at a truncated SVD of the user-item matrix, and the tree clusters them. learning_rates: each is
    tried in the first round. min_round_steps: what a round has at least, unless there are only two. validations,
    validation_users: how often in each round, and how many users at most.
    """

    sizes: ModelSettings = PUBLISHED_SIZES
    branching: int = 2
    order: Literal["random", "category", "clustering"] | None = None
    negatives: int = 70
    batch_size: int = 100
    target_horizon: int = 1
    warm_start: bool = False
    learning_rates: tuple[float, ...] = (1e-2, 3e-3)
    warmup_steps: int = 200
    min_round_steps: int = 1000
    validations: int = 2
    validation_users: int = 300


PUBLISHED = Recipe()
"""As published: one target, random embeddings, a tree by category."""


def system_config(base: Config, dataset: Dataset, *, recipe: Recipe, history_table: str) -> Config:
    """The settings of a tree system: the recipe's, with the comparison's protocol, seed, estimator and retrieval.

    history_table: as in `NetworkSpec`.
    """
    has_categories = dataset.item_table["category"].null_count() < len(dataset.item_table)
    usual_order = "category" if has_categories and not recipe.warm_start else "clustering"
    network = {
        "history_table": history_table,
        "embedding_init": "cooccurrence" if recipe.warm_start else "random",
    }
    schedule = {
        "optimiser": "adamw",
        "weight_decay": 1e-4,
        "warmup_steps": recipe.warmup_steps,
        "decay": "cosine",
        "validations": recipe.validations,
        "validation_users": min(recipe.validation_users, base.training.schedule.validation_users),
        "patience": recipe.validations + 1,
    }
    training = {
        "method": "dtr-u",
        "rounds": 1,
        "negatives": _negatives_per_level(recipe, len(dataset.items)),
        "batch_size": recipe.batch_size,
        "target_horizon": recipe.target_horizon,
        "schedule": base.training.schedule.model_copy(update=schedule),
    }
    return base.model_copy(
        update={
            "tree": TreeSettings(
                branching=recipe.branching,
                order=recipe.order or usual_order,
                placement="published",
            ),
            "model": recipe.sizes.model_copy(
                update={"parts": ("attention",), "network": recipe.sizes.network.model_copy(update=network)}
            ),
            "training": base.training.model_copy(update=training),
        }
    )


def _negatives_per_level(recipe: Recipe, num_items: int) -> int:
    """The number with the same total over the tree as in a binary tree with `recipe.negatives` per level."""
    levels, binary_levels = (tree_height(num_items, branching=branching) for branching in (recipe.branching, 2))
    return max(1, round(recipe.negatives * binary_levels / levels))
