"""Dropout, alone and on its way into the residual stream, and of whole branches.

B graphs · R packed rows · L layers
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.model.fused import cpu_residual
from graphormer_sepnorm.model.fused.cpu_attention import usable


def dropout(values: Tensor, probability: float) -> Tensor:
    """Drop values with a probability, scale up the others (Srivastava et al. 2014)."""
    if probability and usable(values):
        return cpu_residual.dropout_add(None, values, probability)
    return functional.dropout(values, probability)


def dropout_add(residual: Tensor, update: Tensor, probability: float) -> Tensor:
    """Return ``residual + dropout(update)``; all of one shape."""
    if probability and usable(update):
        return cpu_residual.dropout_add(residual, update, probability)
    return residual + functional.dropout(update, probability)


def branch_scales(batch: GraphBatch, layers: int, probability: float) -> Tensor:
    """Draw which branches each graph takes: stochastic depth (Huang et al. 2016, Section 3).

    Layer l = 1 ... L becomes ``x + s f(x)``: s is 0 with probability ``p_l = p l / L``, otherwise
    ``1 / (1 - p_l)``, so that its mean is 1 and nothing is left to do in evaluation. Attention and
    feed-forward network are drawn apart, all tokens of a graph together (per sample, as in
    GPTrans, Chen et al. 2023): a token on its own would lose touch with its graph.

    Args:
        batch: Says which rows belong together.
        layers: L, transformer layers.
        probability: p, of skipping a branch of the last layer.

    Returns:
        s of each packed row in both branches of each layer, ``[L, 2, R, 1]``.
    """
    of_row = torch.cat(
        [torch.arange(batch.num_graphs, device=batch.unpad.device), batch.graph_of_atom]
    )
    skipping = torch.arange(1, layers + 1, device=of_row.device)[:, None, None] * (
        probability / layers
    )
    taken = torch.rand(layers, 2, batch.num_graphs, device=of_row.device) >= skipping
    return (taken / (1 - skipping)).index_select(2, of_row)[..., None]
