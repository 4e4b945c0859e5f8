"""SASRec within a share of the budget: the estimator of rectified labels, and JTR's encoder of queries."""

from beamtree.baselines.encoder import train_with, with_encoder, with_positions, with_positions_for
from beamtree.baselines.trees.run import TreeRun
from beamtree.model.next_item import NextItemModel
from beamtree.storage import replace_text

ENCODER_SHARE = 0.4
"""Of the time that there is, what the steps of an encoder are planned to take beside a tree."""
PLANNED = "encoder-positions.txt"


def train_encoder(run: TreeRun) -> NextItemModel:
    """SASRec with the comparison's settings, as far as `ENCODER_SHARE` of the time that is left allows.

    Found again in the budget's directory where it was trained before; how many positions fitted into the time then is
    kept in the run's folder.
    """
    config = with_encoder(run.config, "self-attention")
    kept = None if run.directory is None else run.directory / PLANNED
    if kept is not None and kept.is_file():
        config = with_positions(config, int(kept.read_text(encoding="utf-8")))
    elif run.seconds_left is not None:
        config = with_positions_for(run.dataset, run.split, config=config, seconds=ENCODER_SHARE * run.seconds_left)
        if kept is not None and config.estimator.max_positions is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            replace_text(kept, f"{config.estimator.max_positions}\n")
    return train_with(config, run.dataset, run.split, budget=run.budget)
