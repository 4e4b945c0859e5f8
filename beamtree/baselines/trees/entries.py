"""The tree systems of the comparison, in the order of tables."""

from functools import partial

from beamtree.baselines.registry import Entry
from beamtree.baselines.trees.dtr import Dtr
from beamtree.baselines.trees.jtr import Jtr
from beamtree.baselines.trees.otm import Otm
from beamtree.baselines.trees.system import TreeSystem

_plt, _tdm, _jtm = (
    partial(TreeSystem, name, table) for name, table in (("plt", "separate"), ("tdm", "separate"), ("jtm", "shared"))
)
_learned = partial(Entry, libraries=("torch",), extra="train", learns=True)

ENTRIES: tuple[Entry, ...] = (
    _learned(Jtr, "a tree of overlapping buckets of items under a sequence encoder"),
    _learned(_plt, "a label tree: products of conditional probabilities along the path"),
    _learned(_tdm, "node-wise binary cross-entropy, uniform negatives, the tree clustered anew"),
    _learned(_jtm, "the same loss, histories as ancestors, the tree learned by likelihood"),
    _learned(Otm, "JTM's tree, trained on what the beam meets with corrected labels"),
    _learned(partial(Dtr, "dtr-u"), "softmax on each level of a tree, uniform negatives, as published"),
    _learned(partial(Dtr, "dtr-t"), "softmax on each level, negatives drawn down the tree, as published"),
    _learned(partial(Dtr, "dtr-t-rl"), "the same with labels that SASRec rectifies, as published"),
)
"""Every system, fitted by `Entry.fit`; what comes back can be asked, and is an `Index` whose effort is the beam."""
