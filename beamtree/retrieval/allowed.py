"""Which items the options of a call allow, as one flag per item; conditions are kept for the next call."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from beamtree.data.raw_ids import RawIds, id_list, unknown_ids
from beamtree.data.vocabulary import Id
from beamtree.errors import InputError
from beamtree.retrieval.request import Allow, ItemCondition, RecommendOptions
from beamtree.types import BoolArray, Int32Array

CACHE_BYTES = 32 * 2**20
ENTRY_BYTES = 512
"""What a kept mask takes besides its flags: its key, the array, its place in the table."""


@dataclass(frozen=True, eq=False)
class Allowed:
    """mask: (items,), None = all items; key: equal for equal masks; unknown: ids that the model has never seen."""

    mask: BoolArray | None = None
    key: Hashable = None
    unknown: tuple[Id, ...] = ()


EVERYTHING = Allowed()


class AllowedItems:
    """Resolves `allow` and `exclude` over one item table. Keeps the latest masks of conditions, up to `cache_bytes`."""

    def __init__(self, item_table: pl.DataFrame, *, ids: RawIds, cache_bytes: int = CACHE_BYTES) -> None:
        self._item_table = item_table
        self._ids = ids
        self._masks: OrderedDict[Hashable, BoolArray] = OrderedDict()
        self._mask_bytes = len(item_table) + ENTRY_BYTES
        self._capacity = cache_bytes // self._mask_bytes
        self._lock = threading.Lock()

    @property
    def cached_bytes(self) -> int:
        """What the kept masks and their keys take."""
        return len(self._masks) * self._mask_bytes

    def resolve(self, options: RecommendOptions) -> Allowed:
        """The items that these options allow; InputError for ids or conditions that cannot be used."""
        if options.allow is None and options.exclude is None:
            return EVERYTHING
        allow = _as_allow(options.allow)
        mask: BoolArray | None = None
        key: tuple[Hashable, ...] = ()
        unknown: list[Id] = []
        if allow.where is not None:
            condition = _Expression(allow.where) if isinstance(allow.where, pl.Expr) else allow.where
            mask, key = self._matching(condition), (condition.key,)
        if allow.ids is not None:
            what = "allow.ids" if isinstance(options.allow, Allow) else "allow"
            listed = known_items(self._ids, allow.ids, what=what, unknown=unknown)
            by_ids = np.zeros(len(self._item_table), dtype=np.bool_)
            by_ids[listed] = True
            mask = by_ids if mask is None else by_ids & mask
            key = (*key, "ids", listed.tobytes())
        if options.exclude is not None:
            without = known_items(self._ids, options.exclude, what="exclude", unknown=unknown)
            mask = np.ones(len(self._item_table), dtype=np.bool_) if mask is None else mask.copy()
            mask[without] = False
            key = (*key, "exclude", without.tobytes())
        return Allowed(mask, key, tuple(unknown))

    def _matching(self, condition: ItemCondition) -> BoolArray:
        key = condition.key
        with self._lock:
            if key in self._masks:
                self._masks.move_to_end(key)
                return self._masks[key]
        mask = condition.mask(self._item_table)
        mask.setflags(write=False)
        with self._lock:
            self._masks[key] = mask
            while len(self._masks) > self._capacity:
                self._masks.popitem(last=False)
        return mask


def known_items(ids: RawIds, raw: Any, *, what: str, unknown: list[Id]) -> Int32Array:
    """Dense ids of the known ones; the others are added to `unknown`. InputError for what is not a list of ids."""
    listed = ids.check(id_list(raw, what=what), what=what)
    dense = ids.encode(listed)
    is_known = dense >= 0
    if is_known.all():
        return dense
    unknown += unknown_ids(listed, dense)
    return dense[is_known]


def _as_allow(allow: Any) -> Allow:
    if allow is None or isinstance(allow, Allow):
        return allow or Allow()
    return Allow(where=allow) if isinstance(allow, pl.Expr) else Allow(ids=allow)


class _Expression:
    """A Polars expression as a condition. Two are the same where they are one object: expressions have no equality."""

    def __init__(self, expression: pl.Expr) -> None:
        self._expression = expression

    @property
    def key(self) -> Hashable:
        return self

    def __hash__(self) -> int:
        return id(self._expression)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Expression) and other._expression is self._expression

    def mask(self, item_table: pl.DataFrame) -> BoolArray:
        try:
            matches = item_table.with_columns(self._expression.fill_null(False).alias("is_allowed"))["is_allowed"]
        except pl.exceptions.PolarsError as error:
            raise InputError(
                f"The condition on items cannot be used: {error}. The item table has the columns "
                f"{', '.join(item_table.columns)}."
            ) from error
        if matches.dtype != pl.Boolean:
            raise InputError(f"A condition on items is true or false for each item, got {matches.dtype}.")
        return matches.to_numpy().copy()
