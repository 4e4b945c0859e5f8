"""All diagnostics of one model as plain records, and as JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from beamtree.diagnostics.accuracy import Accuracy
from beamtree.diagnostics.averages import Average
from beamtree.diagnostics.beams import BeamComparison
from beamtree.diagnostics.contributions import Contributions
from beamtree.diagnostics.example_lists import ExampleList
from beamtree.diagnostics.exposure import Exposure
from beamtree.diagnostics.label_changes import LabelChanges
from beamtree.diagnostics.latency import Latency
from beamtree.diagnostics.rounds import TrainingHistory

KIND = "beamtree diagnostics"
FORMAT_VERSION = 3


@dataclass(frozen=True)
class Subject:
    """The model and the sample of users that were examined.

    parts: of the score, learned: those of them that are learned, which loss and max-heap are about. sampler: how
    training drew negatives. histories: held-out (history, next item) pairs, a few per user. exact_nodes: levels up to
    this size were scored whole; draws: nodes of each kind drawn per history on larger ones.
    """

    model: str
    parts: tuple[str, ...]
    learned: tuple[str, ...]
    method: str
    sampler: str
    negatives: int
    items: int
    branching: int
    height: int
    nodes: int
    beam_width: int
    group: str
    users: int
    available_users: int
    histories: int
    seed: int
    split: str
    protocol: str
    exact_nodes: int
    draws: int


@dataclass(frozen=True)
class LevelReport:
    """One level of the tree, averaged over the users; None where the level has no such number.

    exact: whether all nodes were scored. taken_whole: whether training scores all nodes, so that nothing is sampled.
    uniform, from_root, from_level: KL(Q || P) of the samplers, in nats. loss: cross-entropy of the next item's
    ancestor, beside chance = ln(nodes). The rest are shares, as in `LevelMeasures`.
    """

    level: int
    nodes: int
    exact: bool
    taken_whole: bool
    chance: float
    loss: Average
    uniform: Average
    from_root: Average
    from_level: Average
    child_violations: Average | None
    leaf_violations: Average | None
    path_violations: Average | None
    lost_paths: Average | None


@dataclass(frozen=True)
class Diagnostics:
    """Everything that was found.

    levels: none for a score that only counts, which has no loss; parts: None for a score of a single part; labels:
    rectified ones under wrong probabilities, None for a score without attention.
    """

    subject: Subject
    accuracy: Accuracy
    exposure: Exposure
    examples: tuple[ExampleList, ...]
    latency: Latency
    levels: tuple[LevelReport, ...]
    sampling_start: int
    beams: BeamComparison
    parts: Contributions | None
    labels: LabelChanges | None
    training: TrainingHistory

    def as_dict(self) -> dict[str, Any]:
        """Nested plain values, as in the JSON file."""
        return {"kind": KIND, "format_version": FORMAT_VERSION, **asdict(self)}

    def to_json(self) -> str:
        """The JSON file's text; ValueError for a number that is not finite."""
        return json.dumps(self.as_dict(), indent=2, allow_nan=False) + "\n"
