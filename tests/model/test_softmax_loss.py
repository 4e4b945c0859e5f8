"""The loss over all items: equal to torch's own cross-entropy, in parts and whole, its gradients included."""

import pytest
import torch
from torch.nn import functional

from beamtree.model import softmax_loss as module
from beamtree.model.softmax_loss import sampled_softmax_loss, softmax_loss


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()


@pytest.mark.parametrize("scores_at_a_time", [1, 14, 10**6])
def test_one_label_each_is_the_cross_entropy_of_torch(scores_at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCORES_AT_A_TIME", scores_at_a_time)
    vectors, items, labels = draw(5, 3), draw(7, 3, seed=1), torch.tensor([0, 6, 2, 2, 5])
    ours = softmax_loss(vectors, items, labels.unsqueeze(1))
    theirs = functional.cross_entropy(vectors @ items.T, labels, reduction="sum")
    torch.testing.assert_close(ours, theirs)
    for mine, reference in zip(
        torch.autograd.grad(ours, [vectors, items]), torch.autograd.grad(theirs, [vectors, items]), strict=True
    ):
        torch.testing.assert_close(mine, reference)


def test_gradients_follow_the_loss_with_several_labels_repeated_ones_and_none() -> None:
    labels = torch.tensor([[0, 3, 3], [4, -1, -1], [1, 2, -1]])
    assert torch.autograd.gradcheck(
        lambda vectors, items: softmax_loss(vectors, items, labels), (draw(3, 4), draw(5, 4, seed=1))
    )


def test_large_scores_do_not_overflow() -> None:
    vectors = torch.full((2, 1), 1e3).requires_grad_()
    items = torch.tensor([[1.0], [-1.0], [0.5]])
    loss = softmax_loss(vectors, items, torch.tensor([[0], [2]]))
    assert loss.item() == pytest.approx(500.0)
    loss.backward()
    assert vectors.grad is not None
    assert torch.isfinite(vectors.grad).all()


def test_a_sample_of_everything_is_the_whole_loss() -> None:
    labels = torch.tensor([[0, 3, 3], [4, -1, -1], [1, 2, -1]])
    vectors, items = draw(3, 4), draw(5, 4, seed=1)
    torch.testing.assert_close(
        sampled_softmax_loss(vectors, items, labels, sample=torch.tensor([4, 2, 0, 1, 3]), stand_for=torch.ones(5)),
        softmax_loss(vectors, items, labels),
    )


def test_samples_stand_for_all_items() -> None:
    """Averaged over many samples, what competes with the label comes near what really does."""
    vectors, items, labels = draw(1, 4), draw(40, 4, seed=1), torch.tensor([[7]])
    generator = torch.Generator().manual_seed(0)
    mass = [
        torch.exp(
            sampled_softmax_loss(
                vectors,
                items,
                labels,
                sample=torch.randperm(40, generator=generator)[:10],
                stand_for=torch.full((10,), 4.0),
            )
        ).item()
        for _ in range(3000)
    ]
    assert sum(mass) / len(mass) == pytest.approx(torch.exp(softmax_loss(vectors, items, labels)).item(), rel=0.05)


def test_gradients_follow_the_sampled_loss() -> None:
    labels, sample = torch.tensor([[0, 3, 3], [4, -1, -1], [1, 2, -1]]), torch.tensor([3, 5, 1])
    stand_for = torch.tensor([1.0, 5.0, 2.5], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda vectors, items: sampled_softmax_loss(vectors, items, labels, sample=sample, stand_for=stand_for),
        (draw(3, 4), draw(6, 4, seed=1)),
    )


def test_what_is_left_out_does_not_compete_unless_it_is_a_label() -> None:
    """Against scores that are masked before the softmax, and a sample of everything against all items."""
    vectors, items, labels = draw(2, 3), draw(6, 3, seed=1), torch.tensor([[0, 3], [5, -1]])
    left_out = torch.tensor([[1, 3, -1], [2, 2, 4]])
    scores = vectors @ items.T
    masked = torch.stack([scores[0].index_fill(0, torch.tensor([1]), -torch.inf), scores[1].clone()])
    masked[1, [2, 4]] = -torch.inf
    log_p = masked.log_softmax(dim=1)
    expected = -(log_p[0, [0, 3]].mean() + log_p[1, 5])
    over_all = softmax_loss(vectors, items, labels, left_out=left_out)
    over_sample = sampled_softmax_loss(
        vectors, items, labels, sample=torch.arange(6), stand_for=torch.ones(6), left_out=left_out
    )
    gradients = torch.autograd.grad(expected, [vectors, items])
    for ours in (over_all, over_sample):
        torch.testing.assert_close(ours, expected)
        torch.testing.assert_close(torch.autograd.grad(ours, [vectors, items]), gradients)


def test_shares_weigh_labels_and_rows() -> None:
    """A row of shares that add up to 2 counts as much as the same row twice."""
    labels, shares = torch.tensor([[0, 3], [4, -1]]), torch.tensor([[1.5, 0.5], [0.25, 0.0]], dtype=torch.float64)
    vectors, items = draw(2, 4), draw(5, 4, seed=1)
    logs = functional.log_softmax(vectors @ items.T, dim=1)
    expected = -(1.5 * logs[0, 0] + 0.5 * logs[0, 3] + 0.25 * logs[1, 4])
    torch.testing.assert_close(softmax_loss(vectors, items, labels, shares=shares), expected)
    everything = {"sample": torch.arange(5), "stand_for": torch.ones(5)}
    torch.testing.assert_close(sampled_softmax_loss(vectors, items, labels, shares=shares, **everything), expected)
    assert torch.autograd.gradcheck(
        lambda vectors, items: softmax_loss(vectors, items, labels, shares=shares), (vectors, items)
    )
    some = {"sample": torch.tensor([1, 3]), "stand_for": torch.tensor([2.0, 1.5])}
    assert torch.autograd.gradcheck(
        lambda vectors, items: sampled_softmax_loss(vectors, items, labels, shares=shares, **some), (vectors, items)
    )
