"""The compiled sums of messages along bonds, beside the plain ones."""

from collections.abc import Callable

import pytest
import torch
from reference.compiled import assert_threads_change_nothing, output_and_gradients
from torch import Tensor

from graphormer_sepnorm.model.ops import message_sums, scaled_sum, state_message_sums

pytestmark = pytest.mark.usefixtures("compiled_form")


def plain_sums(rows: Tensor, bond_values: Tensor, bonds: Tensor) -> Tensor:
    """Bond by bond."""
    sums = [row * 0 + bond_values[0] * 0 for row in rows]
    for source, target, kind in bonds.T.tolist():
        if target < len(rows):
            sums[target] = sums[target] + (rows[source] + bond_values[kind]).relu()
    return torch.stack(sums)


def drawn(rows: int, bonds: int, width: int, dtype=torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows + bonds + width)
    ends = torch.randint(0, rows, (2, bonds), generator=generator)
    kinds = torch.randint(0, 3, (1, bonds), generator=generator)
    values, of_bonds = (torch.randn(n, width, generator=generator).to(dtype) for n in (rows, 3))
    return values.requires_grad_(), of_bonds.requires_grad_(), torch.cat([ends, kinds])


@pytest.mark.parametrize("width", [1, 8, 30, 72])
@pytest.mark.parametrize("bonds", [0, 1, 50])
def test_sums_and_gradients(width, bonds):
    truth = output_and_gradients(plain_sums, drawn(12, bonds, width, torch.float64))
    fast = output_and_gradients(message_sums, drawn(12, bonds, width))
    for exact, quick in zip(truth, fast, strict=True):
        torch.testing.assert_close(quick.double(), exact, rtol=1e-5, atol=1e-5)


def test_rows_that_are_not_contiguous():
    rows, bond_values, ends = drawn(12, 50, 8)
    wide = torch.stack([rows, torch.zeros_like(rows)], 2).flatten(1)
    assert torch.equal(
        message_sums(wide[:, ::2], bond_values, ends), plain_sums(rows, bond_values, ends)
    )
    for given in ((wide[:, ::2], rows), (rows, wide[:, ::2])):
        found = state_message_sums(*given, bond_values, None, ends)
        wanted = plain_state_sums(rows, rows, bond_values, None, ends)
        torch.testing.assert_close(found, wanted)


def test_an_undefined_row_is_heard_by_its_neighbors_alone():
    """And makes the states of its bonds undefined, and no others."""
    rows = torch.ones(4, 9)
    rows[0] = torch.nan
    bonds = torch.tensor([[0, 1, 2], [1, 2, 3], [0, 0, 0]])
    with_states, states = state_message_sums(rows, rows, torch.zeros(1, 9), None, bonds)
    for sums in (message_sums(rows, torch.zeros(1, 9), bonds), with_states):
        assert sums[1].isnan().all()
        assert not sums[[0, 2, 3]].isnan().any()
    assert states[0].isnan().all()
    assert not states[1:].isnan().any()


def plain_state_sums(
    rows: Tensor, ends: Tensor, bond_values: Tensor, before: Tensor | None, bonds: Tensor
) -> tuple[Tensor, Tensor]:
    """Bond by bond."""
    nothing = 0 * ends[0] + 0 * bond_values[0]
    sums = [row * 0 + nothing for row in rows]
    states = [nothing] * bonds.shape[1] if before is None else list(before)
    for place, (source, target, kind) in enumerate(bonds.T.tolist()):
        states[place] = states[place] + (ends[source] + ends[target] + bond_values[kind]).relu()
        sums[target] = sums[target] + (rows[source] + states[place]).relu()
    return torch.stack(sums), torch.stack([*states, nothing])[:-1]


def two_layers(function) -> Callable[..., Tensor]:
    """The sums of two layers, of which the second has the states that the first made."""

    def run(rows: Tensor, ends: Tensor, bond_values: Tensor, bonds: Tensor) -> Tensor:
        first, states = function(rows, ends, bond_values, None, bonds)
        second, _ = function(first, ends.flip(0), bond_values, states, bonds)
        return torch.cat([first, second])

    return run


@pytest.mark.parametrize("width", [1, 8, 30, 72])
@pytest.mark.parametrize("bonds", [0, 1, 50])
def test_sums_and_gradients_with_states(width, bonds):
    def results(function, dtype):
        rows, bond_values, ways = drawn(12, bonds, width, dtype)
        ends = (rows.detach().flip(1) / 3).requires_grad_()
        return output_and_gradients(two_layers(function), (rows, ends, bond_values, ways))

    truth = results(plain_state_sums, torch.float64)
    for exact, plain in zip(truth, results(state_message_sums, torch.float64), strict=True):
        torch.testing.assert_close(plain, exact, rtol=1e-12, atol=1e-12)
    for exact, quick in zip(truth, results(state_message_sums, torch.float32), strict=True):
        torch.testing.assert_close(quick.double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["compiled", "plain"])
def test_bonds_that_only_fill_up_say_nothing(dtype):
    rows, bond_values, ways = drawn(12, 50, 8, dtype)
    ends = rows.detach().flip(1).requires_grad_()
    both = torch.cat([ways, torch.tensor([[0], [12], [0]]).expand(-1, 7)], 1), ways
    for function, given in (
        (message_sums, (rows, bond_values)),
        (two_layers(state_message_sums), (rows, ends, bond_values)),
    ):
        filled, plain = (output_and_gradients(function, (*given, bonds)) for bonds in both)
        for one, other in zip(filled, plain, strict=True):
            assert torch.equal(one, other)


def test_the_number_of_threads_changes_nothing():
    rows, bond_values, ways = drawn(40, 200, 72)
    given = rows, rows.detach().flip(1).requires_grad_(), bond_values, ways
    layers = two_layers(state_message_sums)
    assert_threads_change_nothing(lambda: output_and_gradients(layers, given))
    of_sums = rows, bond_values, ways
    assert_threads_change_nothing(lambda: output_and_gradients(message_sums, of_sums))


def scaled(messages, update, *scaling):
    return scaled_sum(update, *scaling, messages)


def scaling_arguments(rows: int, width: int, dtype=torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    of_rows, of_channels = (
        [torch.randn(shape, generator=generator).to(dtype) for _ in range(2)]
        for shape in ((rows, width), (width,))
    )
    of_rows = [one.T.contiguous().T for one in of_rows]  # column by column
    log_degree = torch.rand(rows, 1, generator=generator).to(dtype)
    learned = [one.requires_grad_() for one in (*of_rows, *of_channels)]
    return [*learned[:2], log_degree, *learned[2:]]


@pytest.mark.parametrize(("rows", "width"), [(1, 8), (3, 10), (65, 33), (500, 80)])
def test_messages_and_an_update_that_is_scaled_by_degree(rows, width):
    def scaled_plainly(messages, update, log_degree, plain, by_degree):
        return messages + update * (plain + log_degree * by_degree)

    truth = output_and_gradients(scaled_plainly, scaling_arguments(rows, width, torch.float64))
    fast = output_and_gradients(scaled, scaling_arguments(rows, width))
    assert len(fast) == len(truth) == 5
    for exact, quick in zip(truth, fast, strict=True):
        torch.testing.assert_close(quick.double(), exact, rtol=1e-4, atol=2e-5)
    given = scaling_arguments(700, 72)
    assert_threads_change_nothing(lambda: output_and_gradients(scaled, given))
