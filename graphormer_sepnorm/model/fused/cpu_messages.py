"""The sums of messages along bonds on a CPU, by the compiled functions of `kernels`.

Nothing of the size of the messages is kept: backward makes them again.

R packed rows · E bonds · k kinds of bond · C channels
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphormer_sepnorm.kernels.library import integers, pointers, run

# Channels that a thread takes at a time: whole vectors, kernels/vector.h.
_SHARE_OF_CHANNELS = 32


class _Messages(ctypes.Structure):
    """``Messages`` of kernels/messages.c."""

    _fields_ = (
        *pointers("source", "target", "kind"),
        *integers("bonds", "rows", "width"),
        *pointers("values", "bond_values", "sums"),
        *pointers("sums_gradient", "values_gradient", "bond_values_gradient"),
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


class _MessageSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, bond_values: Tensor, bonds: Tensor) -> Tensor:
        rows, bond_values, bonds = (one.contiguous() for one in (rows, bond_values, bonds))
        sums = torch.zeros_like(rows)
        arguments = _arguments(rows, bond_values, bonds)
        arguments.sums = sums.data_ptr()
        _run("messages_forward", arguments)
        ctx.save_for_backward(rows, bond_values, bonds)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        rows, bond_values, bonds = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_rows, of_bonds = torch.zeros_like(rows), torch.zeros_like(bond_values)
        arguments = _arguments(rows, bond_values, bonds)
        arguments.sums_gradient = gradient.data_ptr()
        arguments.values_gradient = of_rows.data_ptr()
        arguments.bond_values_gradient = of_bonds.data_ptr()
        _run("messages_backward", arguments)
        return of_rows, of_bonds, None


def _arguments(rows: Tensor, bond_values: Tensor, bonds: Tensor) -> _Messages:
    source, target, kind = bonds
    return _Messages(
        source=source.data_ptr(),
        target=target.data_ptr(),
        kind=kind.data_ptr(),
        bonds=bonds.shape[1],
        rows=rows.shape[0],
        width=rows.shape[1],
        values=rows.data_ptr(),
        bond_values=bond_values.data_ptr(),
    )


def _run(name: str, arguments: _Messages) -> None:
    run(name, arguments, arguments.width, _SHARE_OF_CHANNELS, torch.get_num_threads())
