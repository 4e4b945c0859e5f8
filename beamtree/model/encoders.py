"""Which sequence encoder it is: by settings, or by the arrays of a stored one."""

from collections.abc import Mapping

from beamtree.config import EstimatorSettings
from beamtree.model.recurrent import Recurrent
from beamtree.model.self_attention import SelfAttention
from beamtree.model.sequence_encoder import SequenceEncoder
from beamtree.native.encoder_arrays import RecurrentSizes, encoder_sizes
from beamtree.types import AnyArray

STATE_OVER_WIDTH = 2
"""Width of a recurrent state, as a multiple of the width of an item vector."""


def make_encoder(settings: EstimatorSettings, *, history_length: int) -> SequenceEncoder:
    """A new encoder of the kind and sizes in the settings, for the latest `history_length` items."""
    width, layers = settings.width, settings.num_layers
    match settings.encoder:
        case "gru":
            return Recurrent(width, hidden=STATE_OVER_WIDTH * width, layers=layers, history_length=history_length)
        case "self-attention":
            return SelfAttention(width, heads=settings.heads, layers=layers, history_length=history_length)


def encoder_like(arrays: Mapping[str, AnyArray], *, width: int) -> SequenceEncoder:
    """A fresh one of the kind and sizes of stored arrays, as `encoder_sizes` reads them."""
    sizes = encoder_sizes(arrays, width=width)
    if isinstance(sizes, RecurrentSizes):
        return Recurrent(width, hidden=sizes.hidden, layers=sizes.layers, history_length=sizes.history_length)
    return SelfAttention(width, heads=sizes.heads, layers=sizes.layers, history_length=sizes.history_length)
