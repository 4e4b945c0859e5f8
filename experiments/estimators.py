"""Estimators that runs share: each is trained once, and what that took is charged to every run that uses it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.errors import InputError
from beamtree.fitting.estimator import estimator_store, train_estimator
from beamtree.model.estimator import Estimator
from beamtree.storage import replace_text
from beamtree.training.events import EstimatorAwaited
from beamtree.training.exclusive import exclusive
from beamtree.training.interrupt import stop_requests
from experiments.journal import Journal


@dataclass(frozen=True)
class Cost:
    """What training an estimator took."""

    seconds: float
    cpu_seconds: float
    epochs: float


def obtain_estimator(
    folder: Path, dataset: Dataset, split: Split, *, config: Config, journal: Journal
) -> tuple[Estimator, Cost]:
    """The estimator of these settings from the shared folder, trained now if it is not there, and its cost.

    To be called before a run does anything else: what its journal has by then is the cost. Where another run trained
    the estimator, the journal is charged with it; waiting until that one has it is left out.
    """
    key = estimator_store(dataset, split, config=config, directory=folder).key
    cost_file = folder / f"cost-{key[:16]}.json"
    begun = journal.seconds()
    with (
        stop_requests() as should_stop,
        exclusive(
            cost_file.with_suffix(".lock"),
            on_wait=lambda holder: journal(EstimatorAwaited(str(folder), holder)),
            should_stop=should_stop,
        ),
    ):
        wall, cpu = (now - then for now, then in zip(journal.seconds(), begun, strict=True))
        journal.leave_out(wall, cpu)
        known = Cost(**json.loads(cost_file.read_text(encoding="utf-8"))) if cost_file.is_file() else None
        estimator = train_estimator(
            dataset, split, config=config, directory=folder, listen=journal, should_stop=should_stop
        ).estimator
        if known is not None:
            if not journal.epochs:
                journal.charge(known.seconds, known.cpu_seconds)
            return estimator, known
        if not journal.epochs:
            raise InputError(f"{folder} has an estimator for this run, but not what it cost. Remove the folder.")
        seconds, cpu_seconds = journal.seconds()
        cost = Cost(round(seconds, 1), round(cpu_seconds, 1), journal.epochs[-1]["epoch"])
        replace_text(cost_file, json.dumps(asdict(cost)))
        return estimator, cost
