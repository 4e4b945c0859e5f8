"""The neural systems in sizes of time that a test has."""

from dataclasses import replace
from types import ModuleType
from typing import Any

from beamtree.baselines.neural import din, fmlp_rec, gru4rec, light_gcn, youtube_dnn
from beamtree.baselines.neural.task import Task
from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split

MODULES: dict[str, ModuleType] = {
    "din": din,
    "youtube-dnn": youtube_dnn,
    "gru4rec": gru4rec,
    "fmlp-rec": fmlp_rec,
    "lightgcn": light_gcn,
}


NAMES = [name if hasattr(module, "tuned") else f"{name}-published" for name, module in MODULES.items()]
"""One of each, with our options where there is such a one."""


def quick(name: str, **recipe: Any) -> Any:
    """The tuned settings of a system, or with -published at the end the others, for logs of some hundred rows."""
    module = MODULES[name.removesuffix("-published")]
    settings = module.published if name.endswith("-published") else module.tuned
    changes = {"batch_size": 64, "epochs": 20, "learning_rates": (0.02,), "validations": 4} | recipe
    return replace(settings, recipe=replace(settings.recipe, **changes))


def train(settings: Any, dataset: Dataset, split: Split, *, budget: Budget) -> Task[Any]:
    """A system with these settings."""
    module = MODULES[settings.name.removesuffix("-published")]
    task: Task[Any] = module.train(settings, dataset, split, budget=budget)
    return task
