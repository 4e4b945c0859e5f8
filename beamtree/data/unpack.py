"""The bytes of a compressed file."""

import gzip
import zlib
from pathlib import Path
from typing import Final

import zstandard

from beamtree.errors import DataError

COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd"}
"""What the last suffix of a name says."""


def unpacked(path: Path) -> Path | bytes:
    """The path of a plain file; the bytes of a compressed one."""
    compression = COMPRESSIONS.get(path.suffix.lower())
    if compression is None:
        return path
    try:
        with path.open("rb") as file:
            if compression == "gzip":
                return gzip.decompress(file.read())
            return _decompress_zstd(file.read())
    except (OSError, EOFError, zlib.error) as problem:
        raise DataError(
            f"{path}: its name says {compression}, but it cannot be unpacked ({problem}). It is damaged, cut short or "
            "not compressed: fetch it again or rename it."
        ) from problem


def _decompress_zstd(packed: bytes) -> bytes:
    """All frames of a zstd file; OSError where one is damaged or cut short, which readers of streams let pass."""
    unpacked = []
    while packed:
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            unpacked.append(frame.decompress(packed))
        except zstandard.ZstdError as problem:
            raise OSError(str(problem)) from problem
        if not frame.eof:
            raise OSError("it ends in the middle of a frame")
        packed = frame.unused_data
    return b"".join(unpacked)
