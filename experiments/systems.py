"""The systems of `beamtree compare`, of which beamtree also says what only studies ask for.

Its findings: an exact scan beside the beam, and its answers for labels that few or no training rows mention.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.compare.ours import Preset
from beamtree.compare.systems import SYSTEMS as PRODUCT
from beamtree.data.dataset import Dataset
from beamtree.data.features import FeatureSchema
from beamtree.data.split import Split
from beamtree.evaluation.answers import ExactScan
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.metrics import measure
from beamtree.evaluation.protocol import held_out_requests
from beamtree.model.counting import count_items
from beamtree.types import BoolArray, Int32Array

FEW = 10
"""Up to this many training interactions an item counts as rare."""
CUTOFF = 20


@dataclass(frozen=True)
class StudiedPreset(Preset):
    """A preset with those findings."""

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`."""
        index = super().fit(dataset, split, budget=budget)
        reachable = reachable_labels(split.test, dataset.sequences, config=budget.config)
        requests = held_out_requests(dataset, reachable.users, exclude_seen=reachable.excludes_seen)
        labels, offsets = reachable.labels
        rows = np.repeat(np.arange(len(requests)), np.diff(offsets))
        counts = count_items(dataset.sequences.items, split.train, num_items=len(dataset.items))[labels]

        def measured(recommended: Int32Array, is_asked: BoolArray) -> dict[str, Any]:
            """By user, for those with such a label; is_asked: (labels,)."""
            num_labels = np.bincount(rows[is_asked], minlength=len(requests))
            asked = (labels[is_asked], np.concatenate([[0], np.cumsum(num_labels[num_labels > 0])]))
            if not len(asked[0]):
                return {}
            found = measure(recommended[num_labels > 0], asked, num_items=len(dataset.items), cutoffs=(CUTOFF,))
            return {"per_user": {name: values.round(4).tolist() for name, values in found.per_user.items()}}

        declared = budget.config.log.item_features
        answers, scanned = (system.search(requests, k=CUTOFF).items for system in (index, ExactScan(index.engine)))
        findings = {
            "exact scan": measured(scanned, counts >= 0),
            "rare": measured(answers, (counts > 0) & (counts <= FEW)),
            "cold": measured(answers, counts == 0),
            "features": [column.described() for column in FeatureSchema.infer(dataset.item_table, declared).columns],
        }
        return replace(index, findings={**index.findings, **findings})


SYSTEMS = MappingProxyType(
    {**PRODUCT, "beamtree": replace(PRODUCT["beamtree"], entry=replace(PRODUCT["beamtree"].entry, make=StudiedPreset))}
)
