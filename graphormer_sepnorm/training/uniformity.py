"""The auxiliary loss of SepNorm's paper that pushes embeddings apart (Chen et al. 2023, Eq. 8)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.model.batch_norm import sum_over_processes

UniformityOn = Literal["graph_token", "atoms", "both"]
UNIFORMITY_ON: tuple[UniformityOn, ...] = get_args(UniformityOn)


def uniformity_loss(
    graph_token: Tensor, atoms: Tensor, batch: GraphBatch, on: UniformityOn
) -> Tensor:
    """Mean inner product of two different embeddings, of the graphs or atoms of a batch.

    The paper's Eq. 8 for [CLS]; for atoms the pairs are all atoms of the batch; for both the two
    means are added. The batch is that of all processes. The paper's mean over i and j does not say
    whether i = j counts; here it does not.

    Behind BatchNorm n rows are centred but for its bias, so there the loss is
    ``|bias|² - |weight|² / (n - 1)``: it says nothing about directions any more, and has no lower
    bound. It is meant for a graph token behind LayerNorm.

    Args:
        graph_token: Last graph tokens, normalised, ``[B, C]``.
        atoms: Last atoms, normalised, ``[M, C]``.
        batch: The graphs, and which of their rows are real atoms.
        on: Which embeddings are pushed apart.

    Returns:
        A scalar, 0 where there are fewer than two embeddings.
    """
    total = graph_token.new_zeros(())
    if on != "atoms":
        total = total + mean_inner_product(graph_token)
    if on != "graph_token":
        real = batch.real_atoms
        total = total + mean_inner_product(atoms if real is None else atoms[real])
    return total


def mean_inner_product(rows: Tensor) -> Tensor:
    """Mean of ``h_i · h_j`` over all pairs i ≠ j of rows ``[n, C]`` of all processes, a scalar.

    In O(n C) time: the squared norm of the sum has all pairs in it, and each row with itself.
    """
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    count = rows.new_tensor([float(len(rows))])
    own = torch.cat([rows.sum(dim=0), rows.square().sum()[None], count])
    sums = sum_over_processes(own)
    vector, squares, number = sums[:-2], sums[-2], sums[-1]
    return (vector.square().sum() - squares) / (number * (number - 1)).clamp(min=1)
