"""The neural systems of the comparison, by name: each as published, and with the options that our own models have.

GRU4Rec with our options is the encoder of the tower (`baselines/next_item.py`), as SASRec is.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Literal

from beamtree.baselines.protocol import Budget
from beamtree.baselines.registry import Entry
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.evaluation.answers import Answers

Variant = Literal["tuned", "published"]


@dataclass
class NeuralBaseline:
    """A network whose module, and torch with it, is imported when it is fitted.

    module: has `train` and the settings `tuned` and `published`.
    """

    name: str
    module: str
    variant: Variant

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> Answers:
        """As `Baseline.fit`; found again in the budget's directory where it was learned before."""
        module = import_module(f"beamtree.baselines.neural.{self.module}")
        settings = getattr(module, self.variant)
        answers: Answers = module.train(settings, dataset, split, budget=budget).answers()
        return answers


def _entry(baseline: NeuralBaseline, description: str, *libraries: str) -> Entry:
    extra = "train" if not libraries else "train,baselines"
    return Entry(lambda: baseline, description, libraries=("torch", *libraries), extra=extra, learns=True)


def _published(name: str, module: str, description: str, *libraries: str) -> Entry:
    baseline = NeuralBaseline(f"{name}-published", module, "published")
    return _entry(baseline, f"{description}, as published", *libraries)


def _entries(name: str, module: str, description: str, *libraries: str) -> tuple[Entry, Entry]:
    tuned = _entry(NeuralBaseline(name, module, "tuned"), description, *libraries)
    return tuned, _published(name, module, description, *libraries)


ENTRIES: tuple[Entry, ...] = (
    *_entries("din", "din", "an attention network that scores each item for the history"),
    *_entries("youtube-dnn", "youtube_dnn", "a perceptron over the mean of the history"),
    _published("gru4rec", "gru4rec", "gated recurrent layers over the history"),
    *_entries("fmlp-rec", "fmlp_rec", "learnable filters over the frequencies of the history"),
    *_entries("lightgcn", "light_gcn", "vectors smoothed over the graph of users and items", "torch_geometric"),
)
"""In the order of tables."""
