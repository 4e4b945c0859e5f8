"""What holds for every model folder, whatever is in it: it is refused with an ArtefactError, or it answers."""

from pathlib import Path

import numpy as np

from beamtree.errors import ArtefactError
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import RecommendOptions, RecommendRequest
from beamtree.serving.loaded_model import load_model
from beamtree.serving.trial import try_model
from tests.fixtures.write_artefact_v1 import DIRECTORY as FORMAT_1
from tests.fixtures.write_artefact_v2 import DIRECTORY as FORMAT_2
from tests.fixtures.write_artefact_v3 import DIRECTORY as FORMAT_3
from tests.fixtures.write_artefact_v4 import DIRECTORY as FORMAT_4
from tests.fuzz.spoiling import Files, read_model
from tests.serving.models import save_model


def sound_models(folder: Path) -> list[Files]:
    """Sound models of every format, of every part of a score and of both kinds of ids; some are written to a folder."""
    save_model(folder / "all", 13, parts=("attention", "memory", "tower"), text_ids=True)
    save_model(folder / "memory", 9, parts=("memory",))
    return [
        read_model(directory)
        for directory in (folder / "all", folder / "memory", FORMAT_4, FORMAT_3, FORMAT_2, FORMAT_1)
    ]


def check_recommends(directory: Path) -> None:
    """The Python interface refuses the model, or recommends with it."""
    try:
        recommender = Recommender.load(directory)
    except ArtefactError as error:
        str(error).encode()
        return
    known = recommender.ids.decode(np.arange(3) % recommender.artefact.tree.num_items)
    requests = [RecommendRequest(history=known, options=RecommendOptions(k=k)) for k in (1, 5, 2**40)]
    for answer in recommender.recommend(requests):
        assert len(set(answer.items)) == len(answer.items)


def check_serves(directory: Path) -> None:
    """The server refuses the model, or can explain its answers after the trial."""
    try:
        model = load_model(directory)
        try_model(model, directory=directory)
    except ArtefactError as error:
        str(error).encode()
        return
    assert model.recommender.explain(model.ids.decode(np.arange(1)), model.ids.decode(np.arange(1)))
