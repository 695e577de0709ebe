"""The sums of messages along bonds on a CPU, by the compiled functions of `kernels`.

Of the size of the messages nothing is kept but the states of bonds: backward makes them again.

R packed rows · E bonds · k kinds of bond · C channels
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphormer_sepnorm.kernels.library import integers, point, pointers, run

# Channels that a thread takes at a time: whole vectors, kernels/vector.h.
_SHARE_OF_CHANNELS = 32


class _Messages(ctypes.Structure):
    """``Messages`` of kernels/messages.c."""

    _fields_ = (
        *pointers("source", "target", "kind"),
        *integers("bonds", "rows", "width"),
        *pointers("values", "bond_values", "sums"),
        *pointers("sums_gradient", "values_gradient", "bond_values_gradient"),
        *pointers("ends", "before", "states", "states_gradient"),
        *pointers("ends_gradient", "before_gradient"),
    )


def message_sums(rows: Tensor, bond_values: Tensor, bonds: Tensor) -> Tensor:
    """Return ``sum_{bonds j -> i} ReLU(rows_j + bond_values_kind)`` of each row.

    Args:
        rows: What the atoms pass on, float32 ``[R, C]``.
        bond_values: What each kind of bond adds, float32 ``[k, C]``.
        bonds: int64 ``[3, E]``, see `GraphBatch.bonds`.

    Returns:
        ``[R, C]``.
    """
    result: Any = _MessageSums.apply(rows, bond_values, bonds)
    return result


def state_message_sums(
    rows: Tensor, ends: Tensor, bond_values: Tensor, before: Tensor | None, bonds: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the sums of messages that go by the states of bonds, and these.

    The state ``s_ji`` of a bond grows by ``ReLU(ends_j + ends_i + bond_values_kind)``; then each
    row i hears ``sum_{bonds j -> i} ReLU(rows_j + s_ji)``.

    Args:
        rows: What the atoms pass on, float32 ``[R, C]``.
        ends: What states take from the atoms at both ends, float32 ``[R, C]``.
        bond_values: What they take from each kind of bond, float32 ``[k, C]``.
        before: The states so far, float32 ``[E, C]``; None: zeros.
        bonds: int64 ``[3, E]``, see `GraphBatch.bonds`.

    Returns:
        ``[R, C]`` and ``[E, C]``.
    """
    result: Any = _StateMessageSums.apply(rows, ends, bond_values, before, bonds)
    return result


class _MessageSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, bond_values: Tensor, bonds: Tensor) -> Tensor:
        rows, bond_values, bonds = (one.contiguous() for one in (rows, bond_values, bonds))
        sums = torch.zeros_like(rows)
        _run("messages_forward", point(_arguments(rows, bond_values, bonds), sums=sums))
        ctx.save_for_backward(rows, bond_values, bonds)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        rows, bond_values, bonds = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_rows, of_bonds = torch.zeros_like(rows), torch.zeros_like(bond_values)
        arguments = _arguments(rows, bond_values, bonds)
        point(arguments, sums_gradient=gradient, values_gradient=of_rows)
        _run("messages_backward", point(arguments, bond_values_gradient=of_bonds))
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
        rows, ends, bond_values, bonds = (
            one.contiguous() for one in (rows, ends, bond_values, bonds)
        )
        before = None if before is None else before.contiguous()
        sums, states = torch.zeros_like(rows), rows.new_zeros(bonds.shape[1], rows.shape[1])
        arguments = _arguments(rows, bond_values, bonds)
        point(arguments, ends=ends, before=before, sums=sums, states=states)
        _run("state_messages_forward", arguments)
        ctx.save_for_backward(rows, ends, bond_values, bonds, states)
        ctx.first = before is None
        ctx.set_materialize_grads(False)
        return sums, states

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, of_sums: Tensor | None, of_states: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None]:
        rows, ends, bond_values, bonds, states = ctx.saved_tensors
        of_sums = torch.zeros_like(rows) if of_sums is None else of_sums.contiguous()
        of_states = None if of_states is None else of_states.contiguous()
        of_rows, of_ends, of_bonds, of_before = (
            torch.zeros_like(one) for one in (rows, ends, bond_values, states)
        )
        arguments = _arguments(rows, bond_values, bonds)
        point(arguments, ends=ends, states=states, ends_gradient=of_ends)
        point(arguments, sums_gradient=of_sums, states_gradient=of_states)
        point(arguments, values_gradient=of_rows, bond_values_gradient=of_bonds)
        point(arguments, before_gradient=of_before)
        _run("state_messages_backward", arguments)
        return of_rows, of_ends, of_bonds, None if ctx.first else of_before, None


def _arguments(rows: Tensor, bond_values: Tensor, bonds: Tensor) -> _Messages:
    source, target, kind = bonds
    sizes = _Messages(bonds=bonds.shape[1], rows=rows.shape[0], width=rows.shape[1])
    point(sizes, source=source, target=target, kind=kind)
    return point(sizes, values=rows, bond_values=bond_values)


def _run(name: str, arguments: _Messages) -> None:
    run(name, arguments, arguments.width, _SHARE_OF_CHANNELS, torch.get_num_threads())
