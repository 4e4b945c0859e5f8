"""Items join and leave a trained model: from one artefact to another, nothing changed where that fails.

A new item gets a vacant leaf near the items that it is likely to be like (the tree grows where none is left), the mean
of their vectors unless a content model gives another, and empty lists in memory. Vectors of other items stay what they
are. A removed item keeps its leaf and its vector, because histories go on reading them, and is returned to nobody.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl

from beamtree.artefact import FITTED_ITEMS, Artefact
from beamtree.catalogue.growth import NODE_TABLES, grow_model
from beamtree.catalogue.item_rows import new_rows
from beamtree.catalogue.neighbours import FirstInteractions, Neighbours, find_neighbours
from beamtree.catalogue.placement import held_nodes, most_similar_leaves, nearest_vacant_leaves
from beamtree.data.columns import CATEGORY, ITEM_ID
from beamtree.data.features import FeatureSchema
from beamtree.data.interactions import InteractionLog
from beamtree.data.raw_ids import Ids, RawIds, id_list, unknown_ids
from beamtree.data.vocabulary import Id, Vocabulary
from beamtree.errors import DataError, InputError, UnknownIdsError
from beamtree.model.content import ContentModel
from beamtree.retrieval.scorers import unknown_parts
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, BoolArray, Float32Array, Int32Array, Int64Array

ContentVectors = Callable[[pl.DataFrame], Float32Array]
"""From rows of the item table (all columns of the fit) to vectors (rows, width) in the space of the model's items: the
tower's where there is one, else attention's."""

GUIDES = ("tower/node_table", "attention/node_table")
"""The vectors that lead new items down the tree; the first that a model has does."""
HISTORY_TABLE = "attention/item_table"


@dataclass(frozen=True, eq=False)
class CatalogueChange:
    """A model with another catalogue, and what was done: items added, brought back, removed."""

    artefact: Artefact
    added: int = 0
    reinstated: int = 0
    removed: int = 0
    grew: bool = False

    def lines(self) -> list[str]:
        """What was done, for people."""
        counts = (("Added", self.added), ("Reinstated", self.reinstated), ("Removed", self.removed))
        done = [f"{verb} {count:,} {'item' if count == 1 else 'items'}." for verb, count in counts if count]
        tree = self.artefact.tree
        if self.grew:
            done.append(f"The tree grew to {tree.num_leaves:,} leaves on {tree.height} levels.")
        return done or ["Nothing to change."]


def change_catalogue(
    artefact: Artefact,
    *,
    add: pl.DataFrame | None = None,
    remove: Ids = (),
    interactions: InteractionLog | None = None,
    content: ContentVectors | None = None,
) -> CatalogueChange:
    """Add the items of a table and remove others; all of it, or an error and nothing.

    add: item_id and any of the columns that the model was fitted with; the id of a removed item brings it back, with
    its new row. interactions: the first ones with the new items, which say what they are like and how popular.
    content: vectors of new items; without it, their neighbours' mean, or for items that nobody has had yet what the
    columns of the item table suggest.
    DataError for items that exist already, unknown columns and other types; UnknownIdsError for ids to remove that the
    model does not know; InputError where an id is in both, where nothing would be left, and where the score has parts
    whose arrays only their author knows how to extend.
    """
    before = artefact.tree
    leaving = _known_items(artefact, remove)
    rows = None if add is None else new_rows(add, like=artefact.item_table)
    if rows is not None:
        _refuse_both_ways(artefact, rows, leaving)
        dense = artefact.items.encode(rows[ITEM_ID])
        _refuse_existing(rows, dense, removed=before.removed)
        artefact = _reinstate(artefact, rows.filter(pl.Series(dense >= 0)), dense[dense >= 0])
        artefact = _extend(artefact, rows.filter(pl.Series(dense < 0)), interactions=interactions, content=content)
    tree = artefact.tree
    removed = np.union1d(tree.removed, leaving).astype(np.int32)
    if removed.size > tree.removed.size:
        artefact = replace(artefact, tree=tree.without(removed), version="")
    return CatalogueChange(
        artefact,
        added=tree.num_items - before.num_items,
        reinstated=before.removed.size - tree.removed.size,
        removed=removed.size - tree.removed.size,
        grew=tree.num_leaves > before.num_leaves,
    )


def _known_items(artefact: Artefact, ids: Ids) -> Int32Array:
    """Dense items of ids to remove; removed ones may be removed again."""
    raw_ids = RawIds(artefact.items)
    listed = raw_ids.check(id_list(ids, what="remove"), what="remove")
    dense = raw_ids.encode(listed)
    unknown = unknown_ids(listed, dense)
    if unknown:
        raise UnknownIdsError(
            f"The model does not know {len(unknown):,} of the {len(dense):,} items to remove, the first is "
            f"{unknown[0]!r}. Leave them out.",
            unknown,
        )
    return dense


def _refuse_both_ways(artefact: Artefact, rows: pl.DataFrame, leaving: Int32Array) -> None:
    both = _shared(rows[ITEM_ID].to_list(), artefact.items.decode(leaving).to_list())
    if both:
        raise InputError(f"{both[0]!r} is to be added and to be removed. Leave it out of one of the two.")


def _shared(some: Iterable[Id], others: Iterable[Id]) -> list[Id]:
    known = set(others)
    return [one for one in some if one in known]


def _refuse_existing(rows: pl.DataFrame, dense: Int32Array, *, removed: Int32Array) -> None:
    exists = (dense >= 0) & ~np.isin(dense, removed)
    if exists.any():
        first = rows[ITEM_ID][int(np.flatnonzero(exists)[0])]
        raise DataError(
            f"{int(exists.sum()):,} of {len(rows):,} items exist already, the first is {first!r}. Leave them out; to "
            "replace what is known of an item, remove it first and add it again."
        )


def _reinstate(artefact: Artefact, rows: pl.DataFrame, items: Int32Array) -> Artefact:
    """Bring removed items (n,) back, with their new rows (n,) in the item table."""
    if not items.size:
        return artefact
    row_of = np.arange(len(artefact.item_table))
    row_of[items] = len(artefact.item_table) + np.arange(len(rows))
    table = pl.concat([artefact.item_table, rows])[row_of]
    removed = np.setdiff1d(artefact.tree.removed, items).astype(np.int32)
    return replace(artefact, item_table=table, tree=artefact.tree.without(removed), version="")


def _extend(
    artefact: Artefact, rows: pl.DataFrame, *, interactions: InteractionLog | None, content: ContentVectors | None
) -> Artefact:
    """The model with further items, whose rows in the item table these are."""
    if not len(rows):
        return artefact
    strange = unknown_parts(artefact.weights)
    if strange:
        raise InputError(
            f"The score has parts that beamtree does not know ({', '.join(strange)}), so that it cannot tell what new "
            "items are to them. Fit again with the new items, or without these parts."
        )
    fitted = artefact.training.get(FITTED_ITEMS, artefact.tree.num_items)
    first = FirstInteractions.none(len(rows))
    if interactions is not None:
        first = FirstInteractions.count(interactions.frame, known=artefact.items, new=Vocabulary(rows[ITEM_ID]))
    popularity = artefact.popularity.copy()
    popularity[artefact.tree.removed] = 0
    neighbours = find_neighbours(rows, item_table=artefact.item_table, popularity=popularity, first=first)
    ungrown = artefact.weights
    while artefact.tree.num_leaves - artefact.tree.num_items < len(rows):
        artefact = grow_model(artefact)
    vectors = _vectors(artefact, rows, neighbours=neighbours, is_met=first.counts > 0, content=content)
    tree, leaves = _place(artefact, vectors, neighbours=neighbours)
    weights = dict(artefact.weights)
    for name, own in vectors.items():
        table = weights[name]
        if name == HISTORY_TABLE:
            weights[name] = np.concatenate([table, own.astype(table.dtype)])
            continue
        weights[name] = np.array(table) if table is ungrown[name] else table
        _write_rows(weights[name], own, tree=artefact.tree, leaves=leaves)
    weights |= _longer_memory(artefact.part("memory"), first.counts)
    return replace(
        artefact,
        tree=tree,
        weights=weights,
        popularity=np.concatenate([artefact.popularity, first.counts.astype(artefact.popularity.dtype)]),
        item_table=pl.concat([artefact.item_table, rows]),
        training={**artefact.training, FITTED_ITEMS: fitted},
        version="",
    )


def _vectors(
    artefact: Artefact,
    rows: pl.DataFrame,
    *,
    neighbours: Neighbours,
    is_met: BoolArray,
    content: ContentVectors | None,
) -> dict[str, Float32Array]:
    """What the new items get in each table with rows of items: (new items, width) by name.

    is_met: (new items,), whether somebody has had them: then their neighbours say more than their columns.
    """
    tree, tables, guide = artefact.tree, artefact.weights, _guide(artefact)
    by_neighbours = [name for name in NODE_TABLES if name in tables and (content is None or name != guide)]

    def read_leaves(items: Int64Array, *, table: AnyArray) -> AnyArray:
        return np.asarray(table[tree.level_offsets[tree.height] + tree.leaf_of_item[items]])

    vectors = {name: neighbours.means(partial(read_leaves, table=tables[name])) for name in by_neighbours}
    if HISTORY_TABLE in tables:
        vectors[HISTORY_TABLE] = neighbours.means(lambda items: np.asarray(tables[HISTORY_TABLE][items]))
    if guide is None:
        return vectors
    if content is None and not is_met.all():
        by_columns = content_of(artefact, guide)
        if by_columns is not None:
            vectors[guide] = np.where(is_met[:, None], vectors[guide], by_columns(rows))
    elif content is not None:
        given, wanted = np.asarray(content(rows), dtype=np.float32), (len(rows), tables[guide].shape[1])
        if given.shape != wanted or not np.isfinite(given).all():
            raise InputError(
                f"Expected finite vectors {wanted} of the new items from their content, got {given.shape}."
            )
        vectors[guide] = given
    return vectors


def _place(
    artefact: Artefact, vectors: dict[str, Float32Array], *, neighbours: Neighbours
) -> tuple[ItemTree, Int64Array]:
    """The tree with the new items, numbered after the others, and their leaves."""
    tree, guide = artefact.tree, _guide(artefact)
    if guide is None:  # memory alone finds an item anywhere
        wanted = tree.leaf_of_item[neighbours.nearest()].astype(np.int64)
    else:
        wanted = most_similar_leaves(tree, artefact.weights[guide], vectors[guide])
    leaves = nearest_vacant_leaves(tree, wanted)
    placement = tree.placement
    placement[leaves] = tree.num_items + np.arange(len(leaves), dtype=np.int32)
    return ItemTree(tree.branching, placement, removed=tree.removed), leaves


def _write_rows(table: AnyArray, vectors: Float32Array, *, tree: ItemTree, leaves: Int64Array) -> None:
    """Write vectors (n, width) to leaves (n,) that are vacant into a table over the nodes of a tree.

    An inner node that had no item below it gets the mean of the vectors that it has now; no other item's path leads
    there.
    """
    table[tree.level_offsets[tree.height] + leaves] = vectors
    for level in range(1, tree.height):
        above = tree.ancestors(leaves, level)
        is_new = ~held_nodes(tree, level)[above]
        if not is_new.any():
            continue
        nodes, group, count = np.unique(above[is_new], return_inverse=True, return_counts=True)
        sums = np.zeros((len(nodes), vectors.shape[1]), dtype=np.float32)
        np.add.at(sums, group, vectors[is_new])
        table[tree.level_offsets[level] + nodes] = sums / count[:, None]


def _longer_memory(memory: dict[str, AnyArray], counts: Int64Array) -> dict[str, AnyArray]:
    """Counted memory with further items, by full name: nothing points to or from them, and they return like any other.

    counts (new items,): their first interactions, which say how popular they are. Empty where there is no memory.
    """
    if not memory:
        return {}
    longer: dict[str, AnyArray] = {}
    for name in ("transitions.offsets", "company.offsets"):
        longer[name] = np.concatenate([memory[name], np.repeat(memory[name][-1:], len(counts))])
    longer["returns"] = np.concatenate([memory["returns"], np.ones(len(counts), dtype=memory["returns"].dtype)])
    logarithms = np.log1p(counts).astype(memory["popularity"].dtype)
    longer["popularity"] = np.concatenate([memory["popularity"], logarithms])
    demand = memory["trend.demand"]
    if demand.size:
        longer["trend.demand"] = np.concatenate([demand, np.zeros(len(counts), dtype=demand.dtype)])
    return {f"memory/{name}": array for name, array in longer.items()}


def _guide(artefact: Artefact) -> str | None:
    return next((name for name in GUIDES if name in artefact.weights), None)


FEWEST_ITEMS, MOST_ITEMS = 100, 20_000
"""So many items must be known to learn from; the most popular of very many say enough."""


def content_of(artefact: Artefact, table: str) -> Callable[[pl.DataFrame], Float32Array] | None:
    """From rows of the item table to vectors, in the space of a table of nodes; None where nothing but a category says
    what an item is like, or where there are too few items to learn it from.

    table: the name of the table among the model's weights, such as tower/node_table.
    """
    schema = FeatureSchema.infer(artefact.item_table, artefact.config.log.item_features)
    if all(column.name == CATEGORY for column in schema.columns) or artefact.tree.num_items < FEWEST_ITEMS:
        return None
    tree = artefact.tree
    items = np.sort(np.argsort(-artefact.popularity, kind="stable")[:MOST_ITEMS])
    vectors = artefact.weights[table][int(tree.level_offsets[tree.height]) + tree.leaf_of_item[items]]
    features = schema.encode(artefact.item_table[items])
    model = ContentModel.fit(schema, features, vectors, weights=np.sqrt(artefact.popularity[items] + 1.0))
    return lambda rows: model.vectors(schema.encode(rows))
