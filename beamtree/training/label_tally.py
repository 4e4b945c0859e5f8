"""Mean labels by level in a round: every instance counts once, even if the run is restarted."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from beamtree.types import AnyArray, Float32Array, Float64Array, Int64Array

Arrays = dict[str, AnyArray]


class LabelTally:
    """Sums of labels by level, and whose labels they are.

    `state` is what a checkpoint keeps, a bit per instance and a number per level; `restore` goes on from there.
    """

    def __init__(self, num_instances: int, *, height: int) -> None:
        self._is_counted = np.zeros(num_instances, dtype=bool)
        self._sums = np.zeros(height)

    def add(self, instances: Int64Array, labels: Float32Array) -> None:
        """Count the labels (instances, height) of those that were not counted before."""
        distinct, first = np.unique(instances, return_index=True)
        is_new = ~self._is_counted[distinct]
        self._sums += labels[first[is_new]].sum(axis=0, dtype=np.float64)
        self._is_counted[distinct] = True

    def means(self) -> Float64Array:
        """The mean label of each level, 1 to height; empty if there was none."""
        count = int(self._is_counted.sum())
        return self._sums / count if count else np.empty(0)

    def state(self) -> Arrays:
        """Everything there is."""
        return {"is_counted": np.packbits(self._is_counted), "sums": self._sums.copy()}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """Put it where `state` was called."""
        self._is_counted = np.unpackbits(state["is_counted"], count=len(self._is_counted)).astype(bool)
        self._sums = np.array(state["sums"])


def merge_states(states: Sequence[Mapping[str, AnyArray]]) -> Arrays:
    """States of labelled instances that several workers met, as one state: of a tally, of seconds, or of both.

    Seconds are those of the slowest worker. The means are over what each worker counted, so that an instance that
    two workers met weighs twice.
    """
    merged: Arrays = {}
    if "seconds" in states[0]:
        merged["seconds"] = np.array(max(float(state["seconds"]) for state in states))
    if "sums" in states[0]:
        bits = np.bitwise_or.reduce([state["is_counted"] for state in states])
        counted = sum(_count(state["is_counted"]) for state in states)
        sums = np.sum([state["sums"] for state in states], axis=0)
        merged |= {"is_counted": bits, "sums": sums * (_count(bits) / max(1, counted))}
    return merged


def _count(bits: npt.NDArray[np.uint8]) -> int:
    return int(np.unpackbits(bits).sum())
