"""Muon for the matrices inside the layers, AdamW for everything else, as one optimiser.

Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks": the update of a
matrix is its momentum with all singular values moved to about 1, so that no direction is drowned by
a few large ones. Liu et al. 2025, "Muon is Scalable for LLM Training": scaled to the size that
AdamW's updates have, it takes AdamW's learning rate and weight decay.

`torch.optim.Muon` computes the same (`tests/training/test_muon.py`), one matrix after another, in
bfloat16 even where that is slow, and without learning rates on the device, which recorded steps
need. Here all matrices of one shape go together.

    N matrices of one shape · [A, B] that shape
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphormer_sepnorm.kernels.library import run
from graphormer_sepnorm.model.fused.cpu_linear import products_usable

# Of the odd polynomial a s + b s³ + c s⁵ (Jordan et al.): its iteration brings singular values from
# (0, 1] to between 0.7 and 1.2 in few steps, fast rather than exact.
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_MOMENTUM = 0.95
# Matrices that a thread takes at a time.
_SHARE = 4
# Larger matrices do not stay in the cache, and torch's products are made for them.
_MOST_ELEMENTS = 1 << 16
# Of a matrix's norm: five iterations, each of which multiplies small values by 3.4445 at most, do
# not bring less to what float32 shows.
_NOTHING = 1e-15
# Root mean square of an AdamW update, in units of the learning rate (Liu et al., Section 2.2).
_ADAMW_SIZE = 0.2


class MuonAdamW(torch.optim.Optimizer):
    """Trains the groups with ``muon: True``, all of them matrices, by Muon, the others by AdamW.

    Muon with Nesterov's momentum, 0.95. It needs no correction of its first steps: the size of the
    momentum does not matter to the update.

    Args:
        groups: Parameter groups, each with ``muon``.
        **options: Options of `torch.optim.AdamW`. Learning rate and weight decay act on Muon's
            groups too.
    """

    def __init__(self, groups: list[dict[str, Any]], **options: Any) -> None:
        self._adamw = torch.optim.AdamW(groups, **options)
        super().__init__(groups, self._adamw.defaults)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Take a step; `closure`, if given, computes the gradients first.

        Returns:
            What the closure returns.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group["muon"]:
                self._orthogonal_step(group)
        # Groups and state may have been read from a checkpoint since the last step.
        self._adamw.param_groups = [group for group in self.param_groups if not group["muon"]]
        self._adamw.state = self.state
        self._adamw.step()
        return loss

    @torch.no_grad()
    def _orthogonal_step(self, group: dict[str, Any]) -> None:
        # Lists of tensors take a few kernels on a GPU where a loop takes a few for each tensor.
        shapes: dict[torch.Size, list[Tensor]] = {}
        for parameter in group["params"]:
            if parameter.grad is not None:
                shapes.setdefault(parameter.shape, []).append(parameter)
        parameters = [parameter for alike in shapes.values() for parameter in alike]
        if not parameters:
            return
        ahead = self._momenta(parameters)
        updates: list[Tensor] = []
        for shape, alike in shapes.items():
            stacked = torch.stack(ahead[len(updates) : len(updates) + len(alike)])
            update = orthogonalised(stacked)
            update *= _ADAMW_SIZE * max(shape) ** 0.5 * group["lr"]
            updates += update.unbind()
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])  # type: ignore[attr-defined]
        torch._foreach_sub_(parameters, updates)  # type: ignore[attr-defined]

    def _momenta(self, parameters: list[Tensor]) -> list[Tensor]:
        """Take the gradients into the momenta; return Nesterov's look ahead of each."""
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
        gradients: list[Any] = [parameter.grad for parameter in parameters]
        momenta = [self.state[parameter]["momentum"] for parameter in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - _MOMENTUM)  # type: ignore[attr-defined]
        return list(torch._foreach_lerp(gradients, momenta, _MOMENTUM))  # type: ignore[attr-defined]


def orthogonalised(matrices: Tensor) -> Tensor:
    """Move the singular values of each matrix to about 1, by Newton-Schulz iteration.

    Args:
        matrices: ``[N, A, B]``; only their directions matter.

    Returns:
        ``[N, A, B]``; zero where a matrix is zero.
    """
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    # The Frobenius norm is at least the largest singular value.
    wide = wide / wide.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    # The momentum of a unit that has died fades to numbers whose products are denormal, and
    # Intel's processors take many times as long for these: half of a training step.
    wide = wide.masked_fill(wide.abs() < _NOTHING, 0)
    if products_usable(wide) and wide[0].numel() <= _MOST_ELEMENTS:
        wide = newton_schulz_in_c(wide)
    else:
        a, b, c = _POLYNOMIAL
        for _ in range(_ITERATIONS):
            square = wide @ wide.mT
            wide = torch.baddbmm(
                wide, torch.baddbmm(square, square, square, beta=b, alpha=c), wide, beta=a
            )
    return wide if matrices.shape[1] <= matrices.shape[2] else wide.mT


class _NewtonSchulz(ctypes.Structure):
    """``NewtonSchulz`` of kernels/newton_schulz.c."""

    _fields_ = (
        ("matrices", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("iterations", ctypes.c_int64),
        ("a", ctypes.c_float),
        ("b", ctypes.c_float),
        ("c", ctypes.c_float),
    )


def newton_schulz_in_c(matrices: Tensor) -> Tensor:
    """Iterate on ``[N, A, B]``, A at most B, by kernels/newton_schulz.c; see `orthogonalised`."""
    result = matrices.clone(memory_format=torch.contiguous_format)
    arguments = _NewtonSchulz(result.data_ptr(), *result.shape[1:], _ITERATIONS, *_POLYNOMIAL)
    run("newton_schulz", arguments, len(result), _SHARE, torch.get_num_threads())
    return result
