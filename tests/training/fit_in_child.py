"""A real process that fits a small model, to be killed: python -m tests.training.fit_in_child METHOD WORK OUT STEPS

Goes on from a checkpoint in WORK if there is one, saves the model to OUT, and waits for ever after STEPS steps of the
tree model (0: never), so that whoever means to kill it is never too late.
"""

import sys
from pathlib import Path

import torch

from beamtree.artefact import save_artefact
from beamtree.data.dataset import prepare_dataset
from beamtree.data.split import split_users
from beamtree.fitting.fit import fit_model
from beamtree.fitting.run import WorkDirectory
from beamtree.training.events import TREE_MODEL, Event, StepDone
from tests.small import small_config, two_group_log


def fit(method: str, work: Path, out: Path, *, steps: int) -> None:
    config = small_config(
        model={"dropout": 0.2},
        tree={"order": "random"},
        training={
            "method": method,
            "batch_size": 32,
            "checkpoint_minutes": 0,
            "validations": 2,
            "patience": 10,
            "rounds": 2,
        },
        estimator={"width": 4, "layers": 1, "heads": 1, "epochs": 1},
    )
    dataset = prepare_dataset(two_group_log(), min_interactions=2)
    taken = 0

    def listen(event: Event) -> None:
        nonlocal taken
        if isinstance(event, StepDone) and event.learner == TREE_MODEL:
            taken += 1
            if taken == steps:
                sys.stdin.read()

    artefact = fit_model(
        dataset,
        split_users(dataset.sequences, seed=0),
        config=config,
        work=WorkDirectory(work, resume=True),
        listen=listen,
        should_stop=lambda: False,
    )
    save_artefact(out, artefact)


if __name__ == "__main__":
    torch.set_num_threads(1)
    fit(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), steps=int(sys.argv[4]))
