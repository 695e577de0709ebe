"""The compiled sums of messages along bonds, beside the plain ones."""

from __future__ import annotations

import pytest
import torch
from reference.compiled import assert_threads_change_nothing, output_and_gradients
from torch import Tensor

from graphormer_sepnorm.kernels.library import library
from graphormer_sepnorm.model.fused.cpu_messages import message_sums

pytestmark = pytest.mark.skipif(library() is None, reason="the kernels are not compiled")


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


def test_bonds_that_only_fill_up_say_nothing():
    rows, bond_values, ends = drawn(12, 50, 8)
    fill = torch.tensor([[0], [12], [0]]).expand(-1, 7)
    filled = output_and_gradients(message_sums, [rows, bond_values, torch.cat([ends, fill], 1)])
    plain = output_and_gradients(message_sums, [rows, bond_values, ends])
    for one, other in zip(filled, plain, strict=True):
        assert torch.equal(one, other)


def test_rows_that_are_not_contiguous():
    rows, bond_values, ends = drawn(12, 50, 8)
    wide = torch.stack([rows, torch.zeros_like(rows)], 2).flatten(1)
    assert torch.equal(
        message_sums(wide[:, ::2], bond_values, ends), plain_sums(rows, bond_values, ends)
    )


def test_the_number_of_threads_changes_nothing():
    given = drawn(40, 200, 72)
    assert_threads_change_nothing(lambda: output_and_gradients(message_sums, given))


def test_an_undefined_row_is_heard_by_its_neighbours_alone():
    rows = torch.ones(3, 8)
    rows[0] = torch.nan
    sums = message_sums(rows, torch.zeros(1, 8), torch.tensor([[0, 1], [1, 2], [0, 0]]))
    assert sums[1].isnan().all()
    assert not sums[[0, 2]].isnan().any()
