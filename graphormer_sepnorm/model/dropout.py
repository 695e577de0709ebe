"""Dropout, alone and on its way into the residual stream."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from graphormer_sepnorm.model.fused import cpu_attention


def dropout(values: Tensor, probability: float) -> Tensor:
    """Drop values with a probability, scale up the others (Srivastava et al. 2014)."""
    if probability and cpu_attention.usable(values):
        return cpu_attention.dropout_add(None, values, probability)
    return functional.dropout(values, probability)


def dropout_add(residual: Tensor, update: Tensor, probability: float) -> Tensor:
    """Return ``residual + dropout(update)``; all of one shape."""
    if probability and cpu_attention.usable(update):
        return cpu_attention.dropout_add(residual, update, probability)
    return residual + functional.dropout(update, probability)
