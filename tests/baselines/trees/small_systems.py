"""The tree systems in a size that learns small logs in a second."""

from dataclasses import replace
from pathlib import Path

from beamtree.baselines.protocol import Baseline, Budget
from beamtree.baselines.trees.dtr import Dtr
from beamtree.baselines.trees.entries import ENTRIES, TreeSystem
from beamtree.baselines.trees.jtr import Jtr
from beamtree.baselines.trees.otm import Otm
from beamtree.baselines.trees.recipe import Recipe
from tests.small import model_settings, small_config

SMALL = Recipe(
    sizes=model_settings(embedding_dim=8, attention_hidden=6, layers=(16, 12, 8)),
    batch_size=32,
    learning_rates=(0.03,),
    warmup_steps=5,
    min_round_steps=100,
    validations=2,
)
NAMES = [entry.make().name for entry in ENTRIES]


def small_system(name: str, recipe: Recipe = SMALL) -> Baseline:
    """The system of this name, of small sizes."""
    system = next(entry.make() for entry in ENTRIES if entry.make().name == name)
    if isinstance(system, Otm):
        return replace(system, recipe=recipe, beam_width=2)
    if isinstance(system, Dtr | TreeSystem):
        return replace(system, recipe=recipe)
    assert isinstance(system, Jtr)
    return replace(system, recipe=recipe, branching=2, max_bucket=2, negatives=3, beam_width=2)


def small_budget(
    *, epochs: float, seed: int = 0, seconds: float | None = None, directory: Path | None = None
) -> Budget:
    """Budget for small logs; beams of two."""
    encoder = {"width": 16, "layers": 1, "dropout": 0.0, "epochs": 12, "learning_rate": 0.02}
    config = small_config(
        model={"parts": ["tower", "memory"]},
        estimator=encoder,
        retrieval={"exclude_seen": False, "beam_width": 2},
        training={"seed": seed, "epochs": epochs},
    )
    return Budget(config, seconds=seconds, directory=directory)
