"""Minimum free memory and disk space: with less, large calls or events get 503, and the rest is answered."""

import shutil
import time
from collections.abc import Callable, Sequence
from math import nan
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
        self._store = store
        self._measure_memory = measure_memory
        self._free_memory = 0
        self._measured_until = 0.0

    @property
    def free_memory(self) -> int:
        """Bytes, at most half a second old: measuring takes a moment."""
        now = time.monotonic()
        if now >= self._measured_until:
            self._free_memory, self._measured_until = self._measure_memory(), now + MEASURED_SECONDS
        return self._free_memory

    @property
    def free_disk(self) -> float:
        """Bytes; not a number where there is no store or its disk cannot be measured."""
        try:
            return nan if self._store is None else shutil.disk_usage(self._store.parent).free
        except OSError:
            return nan

    def refuse_heavy(self, requests: Sequence[Recommend]) -> None:
        """503 for a call with a large answer, when memory is short."""
        is_light = sum(request.k for request in requests) <= LIGHT_ITEMS and not any(
            request.explain for request in requests
        )
        if not is_light and (free := self.free_memory) < self._min_free_memory:
            raise ApiError(
                503,
                "low_memory",
                f"{free // MEBIBYTE:,} MiB of memory are free, and {self._min_free_memory // MEBIBYTE:,} MiB must stay "
                f"so. Ask for at most {LIGHT_ITEMS} items in a call and no explanation, or try again later.",
                headers=RETRY,
            )

    def refuse_events(self) -> None:
        """503 when the disk of the store is nearly full."""
        if (free := self.free_disk) < self._min_free_disk:
            raise ApiError(
                503,
                "low_disk",
                f"{free // MEBIBYTE:,.0f} MiB are free on the disk of events, and {self._min_free_disk // MEBIBYTE:,} "
                "MiB must stay so. No event was stored; try again later.",
                headers=RETRY,
            )
