"""beamtree: a deep retriever that learns its tree index. Names are imported when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beamtree.config import Config
    from beamtree.data.interactions import InteractionLog, read_interactions
    from beamtree.data.items import read_items
    from beamtree.data.public import load_public
    from beamtree.data.users import read_users
    from beamtree.errors import BeamtreeError
    from beamtree.recommender import DeepTreeRetriever, load

__version__ = "0.1.0"

__all__ = [
    "BeamtreeError",
    "Config",
    "DeepTreeRetriever",
    "InteractionLog",
    "load",
    "load_public",
    "read_interactions",
    "read_items",
    "read_users",
]

_HOME = {
    "BeamtreeError": "beamtree.errors",
    "Config": "beamtree.config",
    "DeepTreeRetriever": "beamtree.recommender",
    "InteractionLog": "beamtree.data.interactions",
    "load": "beamtree.recommender",
    "load_public": "beamtree.data.public",
    "read_interactions": "beamtree.data.interactions",
    "read_items": "beamtree.data.items",
    "read_users": "beamtree.data.users",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"beamtree has no {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
