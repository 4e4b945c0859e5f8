import pytest
import torch

from beamtree.training.rows import RowAdam


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_with_every_row_touched_it_is_the_adam_of_torch(decoupled: bool, weight_decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    judged = torch.nn.Parameter(table.clone())
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    judge = kind([judged], lr=1.0, weight_decay=weight_decay)
    rows_adam = RowAdam.for_table(table, decoupled_decay=decoupled, weight_decay=weight_decay)
    for step in range(1, 12):
        gradients = torch.randn(6, 3, generator=generator, dtype=torch.float64)
        learning_rate = 0.1 / step
        order = torch.randperm(6, generator=generator)
        rows_adam.step(table, rows=order, gradients=gradients[order], learning_rate=learning_rate, step=step)
        judged.grad = gradients
        judge.param_groups[0]["lr"] = learning_rate
        judge.step()
        torch.testing.assert_close(table, judged.detach(), rtol=1e-12, atol=1e-12)


def test_a_first_step_by_hand() -> None:
    """m = .1 g and v = .001 g^2 are both corrected to g and g^2, so that the step is the learning rate by sign."""
    table = torch.tensor([[1.0], [5.0], [2.0]])
    adam = RowAdam.for_table(table, decoupled_decay=True, weight_decay=0.5)
    adam.step(table, rows=torch.tensor([2, 0]), gradients=torch.tensor([[-4.0], [3.0]]), learning_rate=0.1, step=1)
    # Decay first: 1 * (1 - .1 * .5) = .95 and 2 * .95 = 1.9.
    assert table.flatten().tolist() == pytest.approx([0.95 - 0.1, 5.0, 1.9 + 0.1])
    assert adam.first_moment.flatten().tolist() == pytest.approx([0.3, 0.0, -0.4])
    assert adam.second_moment.flatten().tolist() == pytest.approx([0.009, 0.0, 0.016])


@pytest.mark.parametrize("decoupled", [True, False])
def test_untouched_rows_and_their_moments_stand_still_bit_for_bit(decoupled: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(8, 3, generator=generator)
    adam = RowAdam.for_table(table, decoupled_decay=decoupled, weight_decay=0.1)
    adam.step(table, rows=torch.arange(8), gradients=torch.ones(8, 3), learning_rate=0.1, step=1)
    before = [tensor.clone() for tensor in (table, adam.first_moment, adam.second_moment)]
    touched, untouched = torch.tensor([1, 4, 6]), torch.tensor([0, 2, 3, 5, 7])
    for step in (2, 3):
        gradients = torch.randn(3, 3, generator=generator)
        adam.step(table, rows=touched, gradients=gradients, learning_rate=0.1, step=step)
    for old, new in zip(before, (table, adam.first_moment, adam.second_moment), strict=True):
        assert torch.equal(old[untouched], new[untouched])
        assert (old[touched] != new[touched]).all()
