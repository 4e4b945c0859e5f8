"""Estimators that runs share: each is trained once, and what that took is charged to every run that uses it."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.fitting import train_estimator
from beamtree.model.estimator import Estimator
from beamtree.storage import replace_text
from experiments.journal import Journal


@dataclass(frozen=True)
class Cost:
    """What training an estimator took."""

    seconds: float
    cpu_seconds: float
    epochs: int


def obtain_estimator(
    folder: Path, dataset: Dataset, split: Split, *, config: Config, journal: Journal
) -> tuple[Estimator, Cost]:
    """The estimator of these settings from the shared folder, trained now if it is not there, and its cost.

    Where it was trained by another run, the journal is charged with the cost.
    """
    key = json.dumps(
        [
            config.estimator.model_dump(mode="json"),
            config.model.history_length,
            config.training.target_horizon,
            config.training.seed,
            dataset.fingerprint,
            split.description,
        ]
    )
    cost_file = folder / f"cost-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    known = Cost(**json.loads(cost_file.read_text(encoding="utf-8"))) if cost_file.is_file() else None
    before = journal.seconds()
    estimator = train_estimator(dataset, split, config=config, directory=folder, listen=journal)
    if known is not None:
        if not journal.epochs:
            journal.charge(known.seconds, known.cpu_seconds)
        return estimator, known
    after = journal.seconds()
    cost = Cost(round(after[0] - before[0], 1), round(after[1] - before[1], 1), len(journal.epochs))
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(cost_file, json.dumps(asdict(cost)))
    return estimator, cost
