"""Linear layers on a CPU, by the compiled functions of `kernels`.

A batch has a few thousand rows, another number each time, and the matrices are small. That is not
what the libraries behind torch are made for: MKL reaches half of the products' speed on an AMD, and
oneDNN makes a new program for each number of rows. What a row becomes does not depend on how many
others there are, and no number on how many threads compute: so small layers go this way too.

R packed rows · K features in · N features out
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from graphormer_sepnorm.kernels.library import integers, library, point, pointers, run
from graphormer_sepnorm.model.fused.cpu_attention import usable

# What a thread takes at a time: rows, outputs of a weight's gradient.
_SHARE_OF_ROWS, _SHARE_OF_OUTPUTS = 280, 48
_WIDE = 16  # kernels/linear.c
# Larger matrices do not stay in the cache, and are what the libraries are made for.
_MOST_WEIGHTS = 1 << 17


class _Linear(ctypes.Structure):
    """``Linear`` of kernels/linear.c."""

    _fields_ = (
        *pointers("input", "matrix", "bias", "gradient", "packed", "output", "bias_gradient"),
        *integers("rows", "depth", "columns", "outputs", "matrix_row", "matrix_column"),
    )


def products_usable(values: Tensor) -> bool:
    """Whether compiled matrix products can take `values`, and are faster here than torch's."""
    if not usable(values):  # first: torch.compile must not look into the library
        return False
    compiled = library()
    return compiled is not None and bool(compiled.products_are_fast())


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``rows @ weight.T + bias``, as `torch.nn.functional.linear`.

    Args:
        rows: What is multiplied, ``[R, K]``.
        weight: Weights of the layer, ``[N, K]``.
        bias: Added to each row, ``[N]``; None: there is none.

    Returns:
        ``[R, N]``.

    Raises:
        RuntimeError: `rows` are not as wide as `weight`.
    """
    if (
        products_usable(rows)
        and weight.dtype == torch.float32
        and weight.numel() <= _MOST_WEIGHTS
        # C would read beyond what is there; torch says what does not fit.
        and rows.dim() == 2
        and rows.shape[1] == weight.shape[1]
    ):
        result: Any = _LinearFunction.apply(rows, weight, bias)
        return result
    return functional.linear(rows, weight, bias)


class Linear(nn.Linear):
    """`nn.Linear` for packed rows ``[R, K]``, by `linear`."""

    def forward(self, rows: Tensor) -> Tensor:
        """Return ``[R, N]``."""
        return linear(rows, self.weight, self.bias)


class _LinearFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, weight = rows.contiguous(), weight.contiguous()
        ctx.save_for_backward(rows, weight)
        return _products(rows, weight, bias, transposed=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        rows, weight = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_rows = _products(gradient, weight) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            of_bias = gradient.sum(0) if ctx.needs_input_grad[2] else None
            return of_rows, None, of_bias
        of_weight = torch.empty_like(weight)
        outputs, columns = weight.shape
        of_bias = weight.new_empty(outputs) if ctx.needs_input_grad[2] else None
        arguments = _Linear(rows=rows.shape[0], columns=columns, outputs=outputs)
        point(arguments, input=rows, gradient=gradient, output=of_weight, bias_gradient=of_bias)
        run("linear_weights", arguments, outputs, _SHARE_OF_OUTPUTS, torch.get_num_threads())
        return of_rows, of_weight, of_bias


def _products(
    rows: Tensor, matrix: Tensor, bias: Tensor | None = None, transposed: bool = False
) -> Tensor:
    """Return ``rows @ matrix + bias``, or with ``matrix.T``; all are contiguous but `bias`."""
    depth, columns = reversed(matrix.shape) if transposed else matrix.shape
    count, threads = rows.shape[0], torch.get_num_threads()
    output = rows.new_empty(count, columns)
    bias = None if bias is None else bias.contiguous()
    arguments = _Linear(rows=count, depth=depth, columns=columns)
    arguments.matrix_row, arguments.matrix_column = (1, depth) if transposed else (columns, 1)
    point(arguments, input=rows, matrix=matrix, bias=bias, output=output)
    packed = None
    if threads > 1 and count > _SHARE_OF_ROWS:  # else the one thread packs for itself
        packed = rows.new_empty(depth * -(-columns // _WIDE) * _WIDE)
        run("linear_pack", point(arguments, packed=packed), 1, 1)
    run("linear_rows", arguments, count, _SHARE_OF_ROWS, threads)
    return output
