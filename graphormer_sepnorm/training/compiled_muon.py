"""Muon's Newton-Schulz iteration on a CPU, by the compiled functions of `kernels`."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from graphormer_sepnorm.kernels.library import run

# Matrices that a thread takes at a time.
_SHARE = 4


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


def newton_schulz(
    matrices: Tensor, polynomial: tuple[float, float, float], iterations: int
) -> Tensor:
    """Apply an odd polynomial to the singular values of matrices, several times.

    Args:
        matrices: ``[N, A, B]`` with A at most B.
        polynomial: a, b, c of ``a s + b s³ + c s⁵``.
        iterations: How often the iteration is applied.

    Returns:
        ``[N, A, B]``.
    """
    result = matrices.clone(memory_format=torch.contiguous_format)
    a, b, c = polynomial
    arguments = _NewtonSchulz(result.data_ptr(), *result.shape[1:], iterations, a, b, c)
    run("newton_schulz", arguments, len(result), _SHARE, torch.get_num_threads())
    return result
