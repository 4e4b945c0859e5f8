"""A trained model on disk: one folder with a manifest, the weights, the index and the vocabulary. Data only, no code.

manifest.json           format version, settings, metrics, size and SHA-256 of every file
weights-*.safetensors   the arrays of each part of the score, named part/name, such as attention/node_table
index-*.safetensors     the item on each leaf, how often each item was a training interaction, which items are removed
items-*.parquet         raw item ids in dense order, with category, title and all other columns of the item table
README.md               the model card, for people; no part of the model, and never read
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from beamtree.config import Config
from beamtree.data.request_features import RequestFeatures
from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import ArtefactError, InputError, SettingsError
from beamtree.model.trend import Trend
from beamtree.native.offset_arrays import CONTEXT, USER
from beamtree.storage import Content, check_files, read_arrays, read_file, read_manifest, write_arrays, write_bundle
from beamtree.tree.item_tree import NO_ITEMS, ItemTree
from beamtree.types import AnyArray

KIND = "beamtree model"
MODEL_CARD = "README.md"
FORMAT_VERSION = 6
OLDEST_FORMAT_VERSION = 1
"""Format 1 knew one part of the score, attention, and did not name it. Up to format 2, memory did not know how readily
items return: own repeats of all items counted alike. Up to format 4, no item could be removed: older readers would go
on to return it."""
FITTED_ITEMS = "fitted_items"
"""Under this name `training` says how many items the fit knew, where others were added since."""
SHOWN_CHARACTERS = 2000
"""What is told of a fault, at most: a hostile file can make a message of any length."""
REQUEST_FEATURES = "request_features.json"
FEATURE_READERS = ("tower", "attention")
"""The parts of a score that read features of users and contexts."""
REMEDY = "Copy the folder again or fit the model again."


@dataclass(frozen=True)
class Artefact:
    """Everything that retrieval needs, and what is known about how it came to be.

    weights: arrays by part and name, such as attention/node_table; popularity: (items,), training interactions of each
    item, or the sum of their weights; item_table: a row for each dense item, item_id first; metrics:
    {"test": {"f@20": ...}, ...}; data_fingerprint: names the prepared log, so that its held-out users can be found
    again.
    request_features: what is read of users and contexts. Removed items (`tree.removed`) are in all of these, and in no
    answer.
    """

    config: Config
    weights: Mapping[str, AnyArray]
    tree: ItemTree
    popularity: AnyArray
    item_table: pl.DataFrame
    data_fingerprint: str
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    request_features: RequestFeatures = field(default_factory=RequestFeatures)
    version: str = ""

    def __post_init__(self) -> None:
        open_settings = [
            name
            for name, value in (
                ("data.min_held_out", self.config.data.min_held_out),
                ("decided.shuffle_ties", self.config.decided.shuffle_ties),
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

    @property
    def fitted_items(self) -> pl.DataFrame:
        """The item table without what was added after the fit."""
        fitted = self.training.get(FITTED_ITEMS)
        return self.item_table.head(fitted) if type(fitted) is int else self.item_table

    def part(self, name: str) -> dict[str, AnyArray]:
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
    index: dict[str, AnyArray] = {
        "item_at_leaf": artefact.tree.placement,
        "removed": artefact.tree.removed,
        "popularity": artefact.popularity,
    }
    files = {
        "weights.safetensors": write_arrays(artefact.weights),
        "index.safetensors": write_arrays(index),
        "items.parquet": lambda path: artefact.item_table.write_parquet(path),
    }
    if artefact.request_features:
        stated = json.dumps(artefact.request_features.as_json())
        files[REQUEST_FEATURES] = lambda path: path.write_text(stated, encoding="utf-8")
    write_bundle(directory, manifest, files=files)


def load_artefact(directory: Path) -> Artefact:
    """Read a model into memory; nothing in the folder is ever executed.

    Format and settings are checked before any large file is read, sizes before they are used. ArtefactError for
    whatever is wrong with the folder.
    """
    manifest = read_model_manifest(directory)
    with faults_of(directory):
        stated = _Stated.of(manifest)
        config = Config.recorded(stated.settings)
        check_files(directory, manifest)
        index = read_arrays(directory, manifest, "index.safetensors")
        tree = ItemTree(stated.branching, index["item_at_leaf"], removed=index.get("removed", NO_ITEMS))
        artefact = Artefact(
            config=config,
            weights=_weights(directory, manifest),
            tree=tree,
            popularity=index["popularity"],
            item_table=_item_table(read_file(directory, manifest, "items.parquet"), rows=tree.num_items),
            data_fingerprint=stated.data_fingerprint,
            metrics=stated.metrics,
            training=stated.training,
            request_features=_request_features(directory, manifest),
            version=manifest_version(manifest),
        )
        _check_sizes(artefact)
        _check_request_features(artefact)
        return artefact


def read_model_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a model; ArtefactError where the folder holds something else, or a format of another time."""
    manifest = read_manifest(directory)
    if manifest.get("kind") != KIND:
        raise ArtefactError(
            f"{directory} holds {manifest.get('kind')!r}; expected a {KIND}. Give the folder of a saved model."
        )
    version = manifest.get("format_version")
    if type(version) is not int or not OLDEST_FORMAT_VERSION <= version <= FORMAT_VERSION:
        is_newer = type(version) is int and version > FORMAT_VERSION
        raise ArtefactError(
            f"{directory} has format version {version!r}; this beamtree reads versions {OLDEST_FORMAT_VERSION} to "
            f"{FORMAT_VERSION}. "
            + ("Upgrade beamtree" if is_newer else "Use the beamtree that saved it")
            + ", or fit the model again."
        )
    return manifest


def read_config(directory: Path) -> Config:
    """The settings of a saved model, without reading the rest of it; ArtefactError as in `load_artefact`."""
    manifest = read_model_manifest(directory)
    with faults_of(directory):
        return Config.recorded(_Stated.of(manifest).settings)


def manifest_version(manifest: Mapping[str, Any]) -> str:
    """A short name for a model: another one for any other file, setting or figure that its manifest states."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:12]


@contextmanager
def faults_of(directory: Path) -> Iterator[None]:
    """Whatever goes wrong inside is the fault of a model folder: ArtefactError.

    Files of unknown origin can fail the libraries that read them in any way, the data-frame library even by a panic,
    which is no Exception.
    """
    try:
        yield
    except ArtefactError:
        raise
    except MemoryError as error:
        raise ArtefactError(
            f"{directory} does not fit in memory. Use a machine or a container with more, or fit a smaller model."
        ) from error
    except (Exception, pl.exceptions.PanicException) as error:
        cause = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}."
        printable = cause.encode(errors="backslashreplace").decode()
        shown = printable if len(printable) <= SHOWN_CHARACTERS else f"{printable[:SHOWN_CHARACTERS]}..."
        raise ArtefactError(f"{directory} does not fit together: {shown} {REMEDY}") from error


class _Stated(BaseModel):
    """What the manifest of a model says of it, apart from its kind, format and files."""

    model_config = ConfigDict(strict=True)

    settings: dict[str, Any]
    branching: int
    data_fingerprint: str
    metrics: dict[str, dict[str, float]]
    training: dict[str, Any]

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "_Stated":
        """What a manifest says; InputError where an entry is missing or of another type."""
        try:
            return cls.model_validate(manifest)
        except ValidationError as error:
            faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
            raise InputError(f"The manifest cannot be used ({'; '.join(faults)}).") from error


def _weights(directory: Path, manifest: Mapping[str, Any]) -> dict[str, AnyArray]:
    weights = read_arrays(directory, manifest, "weights.safetensors")
    for name, array in weights.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(f"The weights {name} hold values that are not finite.")
    if manifest["format_version"] == 1:
        weights = {f"attention/{name}": array for name, array in weights.items()}
    if manifest["format_version"] <= 2 and "memory/popularity" in weights:
        weights.setdefault("memory/returns", np.ones_like(weights["memory/popularity"]))
    if manifest["format_version"] <= 4 and "memory/popularity" in weights:
        weights["memory/weights.trend"] = np.array(0.0)
        weights |= {f"memory/trend.{name}": np.array(value) for name, value in vars(Trend()).items()}
    if manifest["format_version"] == 3 and weights.pop("memory/weights.power", np.array(1.0)) != 1.0:
        raise InputError("It raises its counted evidence to a power, which this version does not: fit the model again.")
    return weights


def _item_table(content: Content, *, rows: int) -> pl.DataFrame:
    """The table of the items. Its rows are counted before they are unpacked: a small file can hold very many."""
    packed = content.tobytes()
    [count] = pl.scan_parquet(packed).select(pl.len()).collect().to_series()
    if count != rows:
        raise InputError(f"The tree has {rows} items, but the item table has {count} rows.")
    return pl.read_parquet(packed)


def _request_features(directory: Path, manifest: Mapping[str, Any]) -> RequestFeatures:
    if REQUEST_FEATURES not in manifest["files"]:
        return RequestFeatures()
    stated = json.loads(read_file(directory, manifest, REQUEST_FEATURES).tobytes())
    if not isinstance(stated, dict):
        raise InputError(f"Expected an object in {REQUEST_FEATURES}, got {type(stated).__name__}.")
    return RequestFeatures.from_json(stated)


def _check_request_features(artefact: Artefact) -> None:
    """InputError where a part has other tables of features than the columns that are read need."""
    read = artefact.request_features
    for name, (prefix, schema) in product(FEATURE_READERS, ((USER, read.user), (CONTEXT, read.context))):
        part = artefact.part(name)
        embedding, projection = (len(part.get(f"{prefix}.{table}", ())) for table in ("embedding", "projection"))
        expected = (schema.num_rows, schema.vector_size) if schema and "node_table" in part else (0, 0)
        if (embedding, projection) not in (expected, (0, 0)):
            raise InputError(
                f"Expected tables of {expected} rows for the features that {name}/{prefix} reads, got "
                f"{(embedding, projection)}."
            )


def _check_sizes(artefact: Artefact) -> None:
    """InputError where the arrays beside the weights do not fit the tree."""
    popularity = artefact.popularity
    if popularity.dtype.kind == "f" and not np.isfinite(popularity).all():
        raise InputError("Expected the popularity as finite numbers, got some that are not.")
    if popularity.shape != (artefact.tree.num_items,) or popularity.dtype.kind not in "iuf":
        raise InputError(
            f"Expected the popularity as numbers of shape {(artefact.tree.num_items,)}, got {popularity.dtype} of "
            f"shape {popularity.shape}."
        )
    if "item_id" not in artefact.item_table.columns:
        raise InputError(f"Expected a column item_id in the item table, got {', '.join(artefact.item_table.columns)}.")
