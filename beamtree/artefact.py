"""A trained model on disk: one folder with a manifest, the weights, the index and the vocabulary. Data only, no code.

manifest.json           format version, settings, metrics, size and SHA-256 of every file
weights-*.safetensors   the arrays of each part of the score, named part/name, such as attention/node_table
index-*.safetensors     the item on each leaf, and how often each item was a training interaction
items-*.parquet         raw item ids in dense order, with category, title and all other columns of the item table
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from beamtree.config import Config
from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import ArtefactError, InputError, SettingsError
from beamtree.storage import bundle_file, map_arrays, read_manifest, write_arrays, write_bundle
from beamtree.tree.item_tree import ItemTree

KIND = "beamtree model"
FORMAT_VERSION = 2
OLDEST_FORMAT_VERSION = 1
"""Format 1 knew one part of the score, attention, and did not name it."""


@dataclass(frozen=True)
class Artefact:
    """Everything that retrieval needs, and what is known about how it came to be.

    weights: arrays by part and name, such as attention/node_table; popularity: (items,), training interactions of each
    item; item_table: a row for each dense item, item_id first; metrics: {"test": {"f@20": ...}, ...};
    data_fingerprint: names the prepared log, so that its held-out users can be found again.
    """

    config: Config
    weights: Mapping[str, npt.NDArray[Any]]
    tree: ItemTree
    popularity: npt.NDArray[np.int64]
    item_table: pl.DataFrame
    data_fingerprint: str
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""

    def __post_init__(self) -> None:
        open_settings = [
            name
            for name, value in (
                ("data.min_held_out", self.config.data.min_held_out),
                ("data.shuffle_ties", self.config.data.shuffle_ties),
                ("retrieval.exclude_seen", self.config.retrieval.exclude_seen),
            )
            if value is None
        ]
        if open_settings:
            raise SettingsError(
                f"A model needs a value for {' and '.join(open_settings)}, got none: let the log decide with "
                "prepare_log, or set them."
            )

    @property
    def items(self) -> Vocabulary:
        """Raw ids of the items in dense order."""
        return Vocabulary(self.item_table["item_id"])

    def part(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays of one part of the score by their names in it; empty where the model has no such part."""
        prefix = f"{name}/"
        return {key.removeprefix(prefix): array for key, array in self.weights.items() if key.startswith(prefix)}


def save_artefact(directory: Path, artefact: Artefact) -> None:
    """Write a model; a model that was there before stays whole until this one is complete."""
    manifest = {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "settings": artefact.config.model_dump(mode="json"),
        "branching": artefact.tree.branching,
        "data_fingerprint": artefact.data_fingerprint,
        "metrics": {name: dict(values) for name, values in artefact.metrics.items()},
        "training": dict(artefact.training),
    }
    index: dict[str, npt.NDArray[Any]] = {"item_at_leaf": artefact.tree.item_at_leaf, "popularity": artefact.popularity}
    files = {
        "weights.safetensors": write_arrays(artefact.weights),
        "index.safetensors": write_arrays(index),
        "items.parquet": lambda path: artefact.item_table.write_parquet(path),
    }
    write_bundle(directory, manifest, files=files)


def load_artefact(directory: Path, *, verify: bool = True) -> Artefact:
    """Read a model, memory-mapped. Version and checksums are checked first; nothing in the folder is ever executed."""
    manifest = read_manifest(directory)
    if manifest.get("kind") != KIND:
        raise ArtefactError(
            f"{directory} holds {manifest.get('kind')!r}; expected a {KIND}. Give the folder of a saved model."
        )
    version = manifest.get("format_version")
    if version not in range(OLDEST_FORMAT_VERSION, FORMAT_VERSION + 1):
        raise ArtefactError(
            f"{directory} has format version {version!r}; this beamtree reads versions {OLDEST_FORMAT_VERSION} to "
            f"{FORMAT_VERSION}. Use the beamtree that saved it, or fit the model again."
        )
    weights = map_arrays(bundle_file(directory, manifest, "weights.safetensors", verify=verify))
    if version == 1:
        weights = {f"attention/{name}": array for name, array in weights.items()}
    index = map_arrays(bundle_file(directory, manifest, "index.safetensors", verify=verify))
    table_path = bundle_file(directory, manifest, "items.parquet", verify=verify)
    try:
        return Artefact(
            config=Config.recorded(manifest["settings"]),
            weights=weights,
            tree=ItemTree(manifest["branching"], np.array(index["item_at_leaf"])),
            popularity=np.array(index["popularity"]),
            item_table=pl.read_parquet(table_path),
            data_fingerprint=manifest["data_fingerprint"],
            metrics=manifest["metrics"],
            training=manifest["training"],
            version=_version(manifest),
        )
    except (KeyError, InputError, pl.exceptions.PolarsError) as error:
        raise ArtefactError(
            f"{directory} does not fit together: {error}. Copy the folder again or fit the model again."
        ) from error


def _version(manifest: Mapping[str, Any]) -> str:
    """A short name for exactly these files."""
    digests = sorted(entry["sha256"] for entry in manifest["files"].values())
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:12]
