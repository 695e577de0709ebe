"""What the prediction of a graph is read from: its graph token, the sum of its atoms, or both.

B graphs · M rows of atoms · C channels
"""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor, nn

from graphormer_sepnorm.graphs.batch import GraphBatch

ReadoutName = Literal["graph_token", "sum", "both"]
READOUTS: tuple[ReadoutName, ...] = get_args(ReadoutName)


def sum_over_atoms(values: Tensor, batch: GraphBatch) -> Tensor:
    """Return the sums ``[B, C]`` of the atoms' ``values [M, C]``; filler rows do not count."""
    if batch.real_atoms is not None:
        values = values.masked_fill(~batch.real_atoms[:, None], 0)
    sums = values.new_zeros(batch.num_graphs, values.shape[1])
    return sums.index_add(0, batch.graph_of_atom, values)


class AtomReadout(nn.Linear):
    """The atoms' part of a prediction, beside the graph token's: ``W s``, without a bias.

    With ``s = 1/n sum_i h_i`` over the last embeddings h of a graph's atoms. A target that is a sum
    over parts of a molecule is linear in s; hence sum pooling on ZINC (Xu et al. 2019, "How
    Powerful are Graph Neural Networks?", Section 4.2; Rampášek et al. 2022). Together with the
    token's read-out this is one linear layer on token and sum side by side.

    The constant n, atoms of an average training graph, is the same for all graphs: it makes s as
    large as an embedding, so that one learning rate fits both, and leaves the size of a graph in
    it, which a mean over its own atoms would take out.

    Args:
        width: C, channels of a token.
        num_targets: T, outputs.
    """

    def __init__(self, width: int, num_targets: int) -> None:
        super().__init__(width, num_targets, bias=False)
