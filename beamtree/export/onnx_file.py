"""Writing an ONNX model: constants inside the file, or beside it where they are too large for protobuf.

The file beside is called after its content and written first; then the model is replaced in one step. Whoever loads the
model, at any instant, finds the old one or the new one with the constants that belong to it.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

from beamtree.errors import InputError
from beamtree.storage import replace_file
from beamtree.types import AnyArray

EMBED_LIMIT = 2_000_000_000
"""Bytes of constants up to which they stay inside the file; protobuf ends at 2 GiB."""

SMALL = 1024
"""Constants of fewer bytes stay inside in any case: shapes are read before the file beside is opened."""

PAGE = 4096
"""Constants beside the file start at multiples of this, so that a runtime can map them into memory."""


@dataclass(frozen=True)
class OnnxFiles:
    """What was written: the model, and the constants beside it where they do not fit inside."""

    model: Path
    constants: Path | None

    @property
    def size(self) -> int:
        """Bytes of both."""
        return sum(path.stat().st_size for path in (self.model, self.constants) if path is not None)


def write_onnx(
    model: ModelProto, constants: Mapping[str, AnyArray], *, path: Path, embed_limit: int = EMBED_LIMIT
) -> OnnxFiles:
    """Add the constants to the model and write it; checked before it takes the place of an earlier file.

    Arrays of texts always stay inside: InputError where they alone exceed the limit.
    """
    texts = {name: array for name, array in constants.items() if array.dtype.kind == "O"}
    text_bytes = sum(len(text.encode()) for array in texts.values() for text in array)
    if text_bytes > embed_limit:
        raise InputError(
            f"The raw ids are texts of {text_bytes:,} bytes in all, and an ONNX file holds {embed_limit:,}. "
            "Export without raw ids."
        )
    numbers = {name: np.asarray(array, order="C") for name, array in constants.items() if name not in texts}
    apart = {}
    if text_bytes + sum(array.nbytes for array in numbers.values()) > embed_limit:
        apart = {name: array for name, array in numbers.items() if array.nbytes >= SMALL}
    beside = path.with_name(f"{path.stem}-{_digest(apart)}.data") if apart else None
    offsets = dict(_offsets(apart))
    for name, array in constants.items():
        if beside is not None and name in apart:
            model.graph.initializer.append(_reference(name, array, location=beside.name, offset=offsets[name]))
        elif name in texts:
            encoded = [text.encode() for text in array]
            model.graph.initializer.append(helper.make_tensor(name, TensorProto.STRING, array.shape, encoded))
        else:
            model.graph.initializer.append(numpy_helper.from_array(numbers[name], name))

    def write_model(destination: Path) -> None:
        destination.write_bytes(model.SerializeToString())
        checker.check_model(str(destination))

    if beside is not None:
        replace_file(beside, lambda destination: _write_constants(destination, apart))
    replace_file(path, write_model)
    _remove_earlier(path, current=beside)
    return OnnxFiles(path, beside)


def _offsets(arrays: Mapping[str, AnyArray]) -> Iterator[tuple[str, int]]:
    """Where each array starts when they follow each other, page by page."""
    end = 0
    for name, array in arrays.items():
        start = -(-end // PAGE) * PAGE
        yield name, start
        end = start + array.nbytes


def _write_constants(destination: Path, arrays: Mapping[str, AnyArray]) -> None:
    with destination.open("wb") as stream:
        for name, offset in _offsets(arrays):
            stream.seek(offset)
            stream.write(arrays[name].data)


def _digest(arrays: Mapping[str, AnyArray]) -> str:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()[:16]


def _reference(name: str, array: AnyArray, *, location: str, offset: int) -> TensorProto:
    """A tensor whose bytes are in another file."""
    tensor = TensorProto(
        name=name,
        dims=array.shape,
        data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
        data_location=TensorProto.EXTERNAL,
    )
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(array.nbytes))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def _remove_earlier(path: Path, *, current: Path | None) -> None:
    """Delete the constants of models that this one replaced."""
    for other in path.parent.iterdir():
        is_ours = re.fullmatch(rf"{re.escape(path.stem)}-[0-9a-f]{{16}}\.data", other.name)
        if is_ours and other != current:
            other.unlink(missing_ok=True)
