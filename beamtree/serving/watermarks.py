"""Minimum free memory and disk space: with less, large calls or events get 503, and the rest is answered."""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from beamtree.machine import available_memory
from beamtree.serving.api_error import ApiError
from beamtree.serving.limits import LIGHT_ITEMS
from beamtree.serving.schemas.recommend_body import Recommend

MEASURED_SECONDS = 0.5
RETRY = {"Retry-After": "5"}
MEBIBYTE = 2**20


class Watermarks:
    """Memory of the machine or its container, and the disk below `store`, the file of events.

    min_free_memory, min_free_disk: bytes. Where the free disk space is unknown, nothing is refused.
    """

    def __init__(
        self,
        *,
        min_free_memory: int,
        min_free_disk: int,
        store: Path | None,
        measure_memory: Callable[[], int] = available_memory,
    ) -> None:
        self._min_free_memory = min_free_memory
        self._min_free_disk = min_free_disk
        self._memory = _Cached(measure_memory)
        self._disk = _Cached(lambda: None if store is None else _free_disk(store))

    @property
    def free_memory(self) -> float:
        """Bytes."""
        return _or_nan(self._memory.value)

    @property
    def free_disk(self) -> float:
        """Bytes; not a number where there is no store."""
        return _or_nan(self._disk.value)

    def refuse_heavy(self, requests: Sequence[Recommend]) -> None:
        """503 for a call with a large answer, when memory is short."""
        is_light = sum(request.k for request in requests) <= LIGHT_ITEMS and not any(
            request.explain for request in requests
        )
        free = None if is_light else self._memory.value
        if free is not None and free < self._min_free_memory:
            raise ApiError(
                503,
                "low_memory",
                f"{free // MEBIBYTE:,} MiB of memory are free, and {self._min_free_memory // MEBIBYTE:,} MiB must stay "
                f"so. Ask for at most {LIGHT_ITEMS} items in a call and no explanation, or try again later.",
                headers=RETRY,
            )

    def refuse_events(self) -> None:
        """503 when the disk of the store is nearly full."""
        free = self._disk.value
        if free is not None and free < self._min_free_disk:
            raise ApiError(
                503,
                "low_disk",
                f"{free // MEBIBYTE:,} MiB are free on the disk of the events, and {self._min_free_disk // MEBIBYTE:,} "
                "MiB must stay so. No event was taken; try again later.",
                headers=RETRY,
            )


class _Cached:
    """A value that is measured on demand, at most every half second."""

    def __init__(self, measure: Callable[[], int | None]) -> None:
        self._measure = measure
        self._value: int | None = None
        self._until = 0.0

    @property
    def value(self) -> int | None:
        now = time.monotonic()
        if now >= self._until:
            self._value = self._measure()
            self._until = now + MEASURED_SECONDS
        return self._value


def _free_disk(store: Path) -> int | None:
    try:
        return shutil.disk_usage(store.parent).free
    except OSError:
        return None


def _or_nan(value: int | None) -> float:
    return float("nan") if value is None else value
