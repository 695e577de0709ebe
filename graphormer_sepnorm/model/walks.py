"""Encodings by the ways between atoms: random walks, or simple paths.

B graphs · R packed rows · b graphs of a block · T tokens · K lengths · H heads · C channels (width)
· P pair types · N paths
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from graphormer_sepnorm.graphs.batch import FIRST_ATOM_PAIR, AttentionBlock, GraphBatch
from graphormer_sepnorm.kernels.library import integers, point, pointers
from graphormer_sepnorm.model.attention_ops import BlockBias, PackedBias
from graphormer_sepnorm.model.ops import Linear

# Drug-like molecules have some thousand simple paths of up to 20 bonds, the richest of ZINC-subset
# 37,248; C60 has them by the million.
MOST_PATHS = 1 << 17


class _WaysEncoding(nn.Module, ABC):
    """Describes the ways between two atoms by ``P_ij [K]``, K lengths with the 0th among them.

    ``W P_ij`` is added to the attention bias of all layers, ``V P_ii`` to the embedding of atom i
    (GRIT: one linear layer for pairs, one for atoms, at the entrance). Neither has a bias: pairs
    with the graph token are described by zeros and keep the bias that they have.
    """

    most_paths = 0  # of a graph; 0: it is random walks

    def __init__(self, steps: int, width: int, heads: int) -> None:
        super().__init__()
        self.steps = steps
        self.pairs = Linear(steps, heads, bias=False)
        self.atoms = Linear(steps, width, bias=False)

    @abstractmethod
    def ways(self, is_bond: Tensor, block: AttentionBlock) -> Tensor:
        """Return P of each pair of tokens, ``[K, b, T, T]``, for ``is_bond [b, T, T]``."""

    def forward(
        self, rows: Tensor, biases: Sequence[BlockBias], batch: GraphBatch
    ) -> tuple[Tensor, list[BlockBias]]:
        """Add both encodings to the embedded tokens ``[R, C]`` and the bias of each block."""
        distance = batch.type_distance
        is_bond = torch.cat([distance.new_zeros(FIRST_ATOM_PAIR), distance]) == 1
        if isinstance(biases[0], PackedBias):
            returns = rows.new_zeros(len(rows), self.steps)
            packed = [
                _add_packed(bias, self.pairs.weight, is_bond, returns, self.most_paths)
                for bias in cast(Sequence[PackedBias], biases)
            ]
            return rows + self.atoms(returns), packed
        dtype = self.pairs.weight.dtype
        wide = torch.promote_types(dtype, torch.float32)  # bfloat16 counts no further than 256
        ways = [
            self.ways(is_bond[block.pair_type].to(wide), block).to(dtype) for block in batch.blocks
        ]
        diagonals = [way.diagonal(dim1=2, dim2=3).flatten(1) for way in ways]  # [K, b T]
        rows = rows + self.atoms(torch.cat(diagonals, dim=1).index_select(1, batch.unpad).t())
        # Graph by graph, as in `mix_bias`.
        return rows, [
            cast(Tensor, bias)
            + torch.bmm(
                self.pairs.weight.expand(way.shape[1], -1, -1), way.flatten(2).transpose(0, 1)
            ).view_as(cast(Tensor, bias))
            for bias, way in zip(biases, ways, strict=True)
        ]


class RandomWalkEncoding(_WaysEncoding):
    """Relative random-walk probabilities (RRWP) of atoms and pairs.

    From GRIT: Ma et al. 2023, "Graph Inductive Biases in Transformers without Message Passing".
    With A the bonds, D the degrees and ``M = D^-1 A`` a pair of atoms is described by

        P_ij = [I, M, M^2, ..., M^(K-1)]_ij

    the probabilities of being at j after 0, 1, ... steps from i.
    """

    def ways(self, is_bond: Tensor, block: AttentionBlock) -> Tensor:
        """Return the probabilities of each pair of tokens, ``[K, b, T, T]``."""
        walk = is_bond / is_bond.sum(-1, keepdim=True).clamp(min=1)
        # In place: the largest numbers of a batch, which stacked from a list would be there twice.
        walks = walk.new_empty(self.steps, *walk.shape)
        walks[0] = _same_atom(block, walk.dtype)
        with torch.autocast(walk.device.type, enabled=False):
            for power in range(1, self.steps):
                torch.bmm(walks[power - 1], walk, out=walks[power])
        return walks


class PathEncoding(_WaysEncoding):
    """Numbers of simple paths between atoms, and of simple cycles through them.

    A simple path visits no atom twice. A pair of atoms is described by ``P_ij``: 1 or 0 for i = j,
    then log(1 + n_k) of the n_k simple paths of k = 1, 2, ..., K - 1 bonds from i to j; for i = j
    n_k counts the simple cycles of k bonds through i (Airale et al. 2025, "Simple Path Structural
    Encoding for Graph Transformers"; they are approximated there, here exact).

    A cage of rings may have millions. Of a graph with more than `MOST_PATHS` only as many lengths
    as have no more in all are counted, 0 stands for the longer ones.
    """

    most_paths = MOST_PATHS

    def ways(self, is_bond: Tensor, block: AttentionBlock) -> Tensor:
        """Return log(1 + n) of each pair of tokens, ``[K, b, T, T]``."""
        if block.ways is not None:
            return block.ways.permute(3, 0, 1, 2).to(is_bond.dtype)
        counts = path_counts(is_bond, block, self.steps, self.most_paths)
        counts[1:].log1p_()
        return counts


@torch.no_grad()
def path_counts(adjacency: Tensor, block: AttentionBlock, steps: int, most: int) -> Tensor:
    """Return the number of simple paths and cycles of each pair of tokens, ``[K, b, T, T]``.

    All paths of all graphs grow by a bond at a time; each keeps the atoms that it has visited.

    Args:
        adjacency: 1 where a bond leads from the first token to the second, ``[b, T, T]``.
        block: The tokens of some graphs, and which of them are atoms.
        steps: K, lengths of paths.
        most: Paths of a graph; of one with more, the longer ones are not counted.
    """
    graphs, tokens, _ = adjacency.shape
    counts = adjacency.new_zeros(steps, graphs, tokens, tokens)
    counts[0] = _same_atom(block, counts.dtype)
    graph, source, target = adjacency.nonzero(as_tuple=True)  # ordered by graph and source
    number = torch.bincount(graph * tokens + source, minlength=graphs * tokens)
    first, target = number.cumsum(0) - number, graph * tokens + target
    visited = torch.arange(graphs * tokens, device=adjacency.device)[:, None]  # [N, k], over all
    found = number.new_zeros(graphs)
    for length in range(1, steps):
        # Each path with each bond out of its last atom.
        bonds = number[visited[:, -1]]
        path = torch.arange(len(bonds), device=bonds.device).repeat_interleave(bonds)
        within = torch.arange(len(path), device=bonds.device) - (bonds.cumsum(0) - bonds)[path]
        after = target[first[visited[path, -1]] + within]
        visited = visited[path]
        known = visited == after[:, None]
        grown = torch.cat([visited, after[:, None]], dim=1)
        new = ~known.any(1)
        found = found + torch.bincount(grown[new, 0] // tokens, minlength=graphs)
        goes_on = (found <= most)[grown[:, 0] // tokens]
        pair = grown[:, 0] * tokens + after % tokens
        total = counts[length].view(-1)
        new, closed = new & goes_on, known[:, 0] & goes_on
        total.index_add_(0, pair[new], torch.ones_like(pair[new], dtype=total.dtype))
        if length > 2:  # a cycle is found both ways
            total.index_add_(0, pair[closed], torch.full_like(pair[closed], 0.5, dtype=total.dtype))
        visited = grown[new]
    return counts


def _same_atom(block: AttentionBlock, dtype: torch.dtype) -> Tensor:
    """Return 1 where both tokens are the same atom, ``[b, T, T]``."""
    is_atom = block.pair_type.diagonal(dim1=1, dim2=2) >= FIRST_ATOM_PAIR
    return is_atom.to(dtype).diag_embed()


class _Walks(ctypes.Structure):
    """``Walks`` of kernels/walks.c."""

    _fields_ = (
        *pointers("rows", "num_tokens", "bias_start", "pair_type", "is_bond"),
        *integers("max_tokens", "heads", "steps", "most_paths"),
        *pointers("weight", "bias", "output", "returns", "gradient", "weight_gradient"),
    )


def _add_packed(
    bias: PackedBias, weight: Tensor, is_bond: Tensor, returns: Tensor, most_paths: int
) -> BlockBias:
    """Add ``sum_k weight_hk P_k(i, j)`` to the bias of each pair, by the compiled functions.

    ``P_k(i, i)`` of the block's tokens is written to `returns`.
    """
    values = _AddWalkBias.apply(bias.values, weight, is_bond, returns, bias, most_paths)
    return replace(bias, values=cast(Tensor, values))


class _AddWalkBias(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        weight: Tensor,
        is_bond: Tensor,
        returns: Tensor,
        layout: PackedBias,
        most_paths: int,
    ) -> Tensor:
        weight, output = weight.contiguous(), torch.empty_like(values)
        arguments = _arguments(weight, is_bond, layout, most_paths)
        point(arguments, bias=values, output=output, returns=returns)
        layout.run("walks_forward", arguments)
        ctx.save_for_backward(weight, is_bond)
        ctx.layout, ctx.most_paths = layout, most_paths
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        weight, is_bond = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_graphs = weight.new_empty(len(ctx.layout.num_tokens), *weight.shape)
        arguments = _arguments(weight, is_bond, ctx.layout, ctx.most_paths)
        point(arguments, gradient=gradient, weight_gradient=of_graphs)
        ctx.layout.run("walks_backward", arguments)
        return gradient, of_graphs.sum(0), None, None, None, None


def _arguments(weight: Tensor, is_bond: Tensor, layout: PackedBias, most_paths: int) -> _Walks:
    heads, steps = weight.shape
    arguments = layout.arguments(_Walks, heads)
    arguments.steps, arguments.most_paths = steps, most_paths
    return point(arguments, weight=weight, is_bond=is_bond)
