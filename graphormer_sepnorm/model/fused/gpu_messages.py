"""The sums of messages along bonds on a GPU as one kernel forward and one backward, by Triton.

The plain path takes about eight kernels forward and as many backward, with states of bonds twice
that, and adds up at one row whatever only fills up. As attention's, the kernels are used for some
width after they have given the plain path's values and gradients on the device itself. As on the
plain path the order of additions on a GPU is not fixed: results are the same up to rounding.

R packed rows · E bonds · k kinds of bond · C channels
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphormer_sepnorm.model.fused.gpu import (
    agreement,
    largest_difference,
    on_device_of,
    possible,
)

MOST_CHANNELS = 512
# Bonds of a program.
_EDGES = 8


def usable(rows: Tensor) -> bool:
    """Whether the functions below can be used, and give what the plain path gives."""
    return (
        possible(rows)
        and rows.shape[1] <= MOST_CHANNELS
        and not torch.are_deterministic_algorithms_enabled()  # then torch's additions have an order
        and agrees(rows.device, rows.shape[1])
    )


def message_sums(rows: Tensor, bond_values: Tensor, bonds: Tensor) -> Tensor:
    """Return ``sum_{bonds j -> i} ReLU(rows_j + bond_values_kind)``: `cpu_messages`' function."""
    result: Any = _MessageSums.apply(rows, bond_values, bonds)
    return result


def state_message_sums(
    rows: Tensor, ends: Tensor, bond_values: Tensor, before: Tensor | None, bonds: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the sums of messages that go by the states of bonds, and these: `cpu_messages`'.

    States of bonds that only fill up are 0.
    """
    result: Any = _StateMessageSums.apply(rows, ends, bond_values, before, bonds)
    return result


class _MessageSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, bond_values: Tensor, bonds: Tensor) -> Tensor:
        from graphormer_sepnorm.model.fused.gpu_messages_kernels import messages_forward

        rows, bond_values, bonds = (one.contiguous() for one in (rows, bond_values, bonds))
        sums = torch.zeros_like(rows)
        _launch(messages_forward, rows, bonds, (rows, bond_values, bonds, sums))
        ctx.save_for_backward(rows, bond_values, bonds)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        from graphormer_sepnorm.model.fused.gpu_messages_kernels import messages_backward

        rows, bond_values, bonds = ctx.saved_tensors
        of_rows, of_bonds = _zeros(rows, bond_values)
        given = rows, bond_values, bonds, gradient.contiguous(), of_rows, of_bonds
        _launch(messages_backward, rows, bonds, given)
        return of_rows, of_bonds, None


class _StateMessageSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        ends: Tensor,
        bond_values: Tensor,
        before: Tensor | None,
        bonds: Tensor,
    ) -> tuple[Tensor, Tensor]:
        from graphormer_sepnorm.model.fused.gpu_messages_kernels import state_messages_forward

        rows, ends, bond_values, bonds = (
            one.contiguous() for one in (rows, ends, bond_values, bonds)
        )
        sums, states = torch.zeros_like(rows), rows.new_empty(bonds.shape[1], rows.shape[1])
        ctx.first = before is None
        known = states if before is None else before.contiguous()  # not looked at if there is none
        given = rows, ends, bond_values, known, bonds, sums, states
        _launch(state_messages_forward, rows, bonds, given, FIRST=ctx.first)
        ctx.save_for_backward(rows, ends, bond_values, bonds, states)
        ctx.set_materialize_grads(False)
        return sums, states

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, of_sums: Tensor | None, of_states: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None]:
        from graphormer_sepnorm.model.fused.gpu_messages_kernels import state_messages_backward

        rows, ends, bond_values, bonds, states = ctx.saved_tensors
        of_sums = torch.zeros_like(rows) if of_sums is None else of_sums.contiguous()
        of_rows, of_ends, of_bonds = _zeros(rows, ends, bond_values)
        of_before = None if ctx.first else torch.empty_like(states)
        given = rows, ends, bond_values, states, bonds, of_sums
        # What is not there is not looked at, but has to be a tensor.
        given += (of_sums if of_states is None else of_states.contiguous(), of_rows, of_ends)
        given += (of_bonds, of_rows if of_before is None else of_before)
        which = {"FIRST": ctx.first, "LAST": of_states is None}
        _launch(state_messages_backward, rows, bonds, given, **which)
        return of_rows, of_ends, of_bonds, of_before, None


def _zeros(*like: Tensor) -> list[Tensor]:
    """Zeros like some matrices of the same width, made at once."""
    made = like[0].new_zeros(sum(len(one) for one in like), like[0].shape[1])
    return list(made.split([len(one) for one in like]))


def _launch(
    kernel: Any, rows: Tensor, bonds: Tensor, given: tuple[Tensor, ...], **which: bool
) -> None:
    """Start a kernel; what it is given comes before E, R and C."""
    number, (count, channels) = bonds.shape[1], rows.shape
    if number:
        width = 1 << (channels - 1).bit_length()
        with on_device_of(rows):
            kernel[(-(-number // _EDGES),)](
                *given, number, count, channels, **which, EDGES=_EDGES, W=width, num_warps=4
            )


@functools.lru_cache
def agrees(device: torch.device, channels: int) -> bool:
    """Whether messages of this width are what the plain path gives; says so if they are not."""
    return agreement("messages take", device, lambda: disagreement(device, channels))


def disagreement(device: torch.device, channels: int) -> float:
    """Largest relative difference of values and gradients to the plain path, in two layers."""
    from graphormer_sepnorm.model.messages import plain_state_sums, plain_sums

    generator = torch.Generator().manual_seed(0)
    count, bonds, kinds = 150, 500, 5

    def drawn(*shape: int) -> Tensor:
        # Few digits: sums are exact, and both paths agree on what is above 0.
        return (torch.randn(shape, generator=generator) * 64).round() / 64

    ends = torch.randint(0, count, (2, bonds), generator=generator)
    ways = torch.cat([ends, torch.randint(0, kinds, (1, bonds), generator=generator)])
    ways[1, -50:] = count  # bonds that only fill up
    ways = ways.to(device)
    given = [drawn(count, channels), drawn(count, channels), drawn(kinds, channels)]
    slope = drawn(2 * count, channels).to(device)
    results = []
    for dtype in (torch.float32, torch.float64):
        fused = dtype == torch.float32
        by_states, sums = (
            (state_message_sums, message_sums) if fused else (plain_state_sums, plain_sums)
        )
        rows, own, values = parts = [one.to(device, dtype).requires_grad_() for one in given]
        first, states = by_states(rows, own, values, None, ways)
        second, _ = by_states(own, rows, values, states, ways)
        output = torch.cat([first + sums(rows, values, ways), second])
        results.append([output, *torch.autograd.grad(output, parts, slope.to(dtype))])
    return largest_difference(*results)
