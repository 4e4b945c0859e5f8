"""What holds for every model folder, whatever is in it: it is refused with an ArtefactError, or it answers."""

from pathlib import Path

import numpy as np

from beamtree.errors import ArtefactError
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import RecommendOptions, RecommendRequest
from beamtree.serving.loaded_model import load_model
from beamtree.serving.trial import try_model
from tests import fixtures
from tests.fuzz.spoiling import Files, read_model
from tests.serving.models import save_model


def sound_models(folder: Path) -> list[Files]:
    """Sound models of every format, of every part of a score and of both kinds of ids; some are written to a folder."""
    save_model(folder / "all", 13, parts=("attention", "memory", "tower"), text_ids=True)
    save_model(folder / "memory", 9, parts=("memory",))
    stored = [path for path in Path(fixtures.__path__[0]).glob("artefact-v*") if path.is_dir()]
    return [read_model(directory) for directory in (folder / "all", folder / "memory", *sorted(stored, reverse=True))]


def check_recommends(directory: Path) -> None:
    """The Python interface refuses the model, or recommends with it: each item once, none that was removed."""
    try:
        recommender = Recommender.load(directory)
    except ArtefactError as error:
        str(error).encode()
        return
    tree = recommender.artefact.tree
    known = recommender.ids.decode(np.arange(3) % tree.num_items)
    removed = set(recommender.ids.decode(tree.removed))
    requests = [RecommendRequest(history=known, options=RecommendOptions(k=k)) for k in (1, 5, 2**40)]
    for answer in recommender.recommend(requests):
        assert len(set(answer.items)) == len(answer.items)
        assert removed.isdisjoint(answer.items)


def check_serves(directory: Path) -> None:
    """The server refuses the model, or can explain after the trial why it would recommend an item."""
    try:
        model = load_model(directory)
        try_model(model, directory=directory)
    except ArtefactError as error:
        str(error).encode()
        return
    tree = model.recommender.artefact.tree
    history = model.ids.decode(np.arange(1))
    item = model.ids.decode(np.setdiff1d(np.arange(tree.num_items), tree.removed)[:1])
    assert model.recommender.explain(history, item)
