"""What the encoders make of histories."""

import numpy as np
import pytest
import torch

from beamtree.baselines.neural.fmlp_rec import FilterBlock, FilterEncoder
from beamtree.baselines.neural.gru4rec import GruEncoder
from beamtree.baselines.neural.youtube_dnn import MeanEncoder
from beamtree.model.packing import Packing
from beamtree.model.recurrent import Recurrent
from beamtree.model.sequence_encoder import initialise, keep

WIDTH, LENGTH = 4, 6


AnyEncoder = MeanEncoder | FilterEncoder | Recurrent


def fresh(encoder: AnyEncoder) -> AnyEncoder:
    initialise(encoder, torch.Generator().manual_seed(0))
    return encoder.eval()


ENCODERS = {
    "mean": fresh(MeanEncoder(WIDTH, layers=(8, 5))),
    "gru": fresh(GruEncoder(WIDTH, hidden=5, layers=2, history_length=LENGTH)),
    "filter": fresh(FilterEncoder(WIDTH, hidden=8, layers=2, history_length=LENGTH)),
}


def encode(encoder: AnyEncoder, vectors: torch.Tensor, *, lengths: list[int]) -> torch.Tensor:
    present = torch.arange(LENGTH) >= LENGTH - torch.tensor(lengths).unsqueeze(1)
    with torch.no_grad():
        return encoder.expectation(vectors, present=present, dropout=keep)


@pytest.mark.parametrize("name", list(ENCODERS))
def test_what_stands_in_padding_does_not_matter(name: str) -> None:
    vectors = torch.randn(3, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))
    other = vectors.clone()
    other[0, :4] = 7.0
    other[1] = 7.0
    found = [encode(ENCODERS[name], each, lengths=[2, 0, LENGTH]) for each in (vectors, other)]
    torch.testing.assert_close(found[0], found[1])
    assert torch.isfinite(found[0]).all()


@pytest.mark.parametrize("name", list(ENCODERS))
def test_every_item_counts_and_only_a_mean_forgets_the_order(name: str) -> None:
    vectors = torch.randn(1, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))
    lengths = [LENGTH]
    first = encode(ENCODERS[name], vectors, lengths=lengths)
    changed = vectors.clone()
    changed[0, 0, 0] += 1.0
    assert not torch.allclose(encode(ENCODERS[name], changed, lengths=lengths), first)
    turned = encode(ENCODERS[name], vectors.flip(1), lengths=lengths)
    assert torch.allclose(turned, first, atol=1e-5) == (name == "mean")


def test_recurrent_layers_say_the_same_everywhere_as_at_the_end() -> None:
    encoder = ENCODERS["gru"]
    assert isinstance(encoder, Recurrent)
    generator = torch.Generator().manual_seed(2)
    lengths = np.array([2, 3, LENGTH])
    flat = torch.randn(int(lengths.sum()), WIDTH, generator=generator)
    with torch.no_grad():
        everywhere = encoder.packed(flat, packing=Packing(lengths, device=flat.device), dropout=keep)
    start = 0
    for length in lengths.tolist():
        for end in range(1, length + 1):
            padded = torch.zeros(1, LENGTH, WIDTH)
            padded[0, LENGTH - end :] = flat[start : start + end]
            alone = encode(encoder, padded, lengths=[end])
            torch.testing.assert_close(alone[0], everywhere[start + end - 1])
        start += length


def test_a_filter_of_ones_passes_what_it_gets() -> None:
    """The filtered sequence is the sequence, so that the block normalises twice what it gets."""
    block = FilterBlock(WIDTH, hidden=8, history_length=LENGTH)
    initialise(block, torch.Generator().manual_seed(0))
    with torch.no_grad():
        block.filter[0], block.filter[1] = 1.0, 0.0
        hidden = torch.randn(2, LENGTH, WIDTH, generator=torch.Generator().manual_seed(3))
        expected = block.filter_norm(2 * hidden)
        expected = block.network_norm(expected + block.narrow(torch.nn.functional.gelu(block.widen(expected))))
        torch.testing.assert_close(block(hidden, last=LENGTH, dropout=keep), expected)
        torch.testing.assert_close(block(hidden, last=1, dropout=keep), expected[:, -1:])
