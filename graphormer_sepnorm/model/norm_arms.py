"""The norm arms: how the graph token ([CLS]) and the atoms are normalised.

ShareNorm sends every token through one norm; SepNorm (Chen et al., NeurIPS 2023, Eq. 5) sends the
graph token through one of its own. An arm is written [CLS] + atoms:

    shared-ln (sharenorm)   one LayerNorm for both: the usual transformer
    shared-bn               one BatchNorm for both
    bn+ln (sepnorm)         BatchNorm for the graph token, LayerNorm for the atoms
    bn+bn, ln+ln, ln+bn     the other pairs, each with parameters of its own

    B graphs · M atoms · D channels
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from graphormer_sepnorm.model.batch_norm import MaskedBatchNorm, several_processes
from graphormer_sepnorm.model.config import norm_name
from graphormer_sepnorm.model.fused import cpu_attention, cpu_norm


class LayerNorm(nn.LayerNorm):
    """`nn.LayerNorm` that takes (and needs not) the mask of real rows."""

    def forward(self, rows: Tensor, real: Tensor | None = None) -> Tensor:
        """Normalise each row of ``[M, D]`` over its channels."""
        return super().forward(rows)


class SharedNorm(nn.Module):
    """ShareNorm: one norm for the graph token and the atoms.

    Args:
        norm: Normalises rows ``[B + M, D]``, with an optional mask of the real ones.
    """

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, rows: Tensor, num_graphs: int, real_atoms: Tensor | None = None) -> Tensor:
        """Normalise rows ``[B + M, D]``, graph tokens first.

        Args:
            rows: Graph tokens, then atoms, ``[B + M, D]``.
            num_graphs: B, graph tokens at the front.
            real_atoms: Which atoms are none of padding, bool ``[M]``; None: all.
        """
        in_one = _normalise([self.norm], rows, [rows.shape[0]], real_atoms)
        if in_one is not None:
            return in_one
        if real_atoms is not None:
            real_atoms = torch.cat([real_atoms.new_ones(num_graphs), real_atoms])
        return self.norm(rows, real_atoms)


class SeparateNorm(nn.Module):
    """SepNorm (Chen et al. 2023, Eq. 5): the graph token and the atoms each have their norm.

    Args:
        graph_token_norm: Normalises the graph tokens ``[B, D]``.
        atom_norm: Normalises the atoms ``[M, D]``, with an optional mask of the real ones, ``[M]``.
    """

    def __init__(self, graph_token_norm: nn.Module, atom_norm: nn.Module) -> None:
        super().__init__()
        self.graph_token_norm = graph_token_norm
        self.atom_norm = atom_norm

    def forward(self, rows: Tensor, num_graphs: int, real_atoms: Tensor | None = None) -> Tensor:
        """Normalise rows ``[B + M, D]``, graph tokens first; see `SharedNorm`."""
        lengths = [num_graphs, len(rows) - num_graphs]
        norms = [self.graph_token_norm, self.atom_norm]
        in_one = _normalise(norms, rows, lengths, real_atoms)
        if in_one is not None:
            return in_one
        # Not slices: the gradient of each would be as large as `rows`, mostly zeros.
        graph_token, atoms = rows.split(lengths)
        return torch.cat([self.graph_token_norm(graph_token), self.atom_norm(atoms, real_atoms)])


def _normalise(
    norms: Sequence[nn.Module],
    rows: Tensor,
    lengths: Sequence[int],
    real_atoms: Tensor | None,
) -> Tensor | None:
    """Normalise stretches of rows at once; None where that is not possible."""
    if torch.compiler.is_compiling() or several_processes() or min(lengths) < 0:
        return None
    if real_atoms is not None or not cpu_attention.usable(rows):
        return None
    if not all(_in_one(norm, rows) for norm in norms):
        return None
    return cpu_norm.normalise(rows, cast(Sequence[LayerNorm | MaskedBatchNorm], norms), lengths)


def _in_one(norm: nn.Module, rows: Tensor) -> bool:
    """Whether a norm of `rows` need not be called; a subclass or a hook may do anything."""
    if type(norm) not in (LayerNorm, MaskedBatchNorm):
        return False
    if (
        norm._forward_hooks
        or norm._forward_pre_hooks
        or norm._backward_hooks
        or norm._backward_pre_hooks
    ):
        return False
    weight = norm.weight
    return (
        weight is not None
        and norm.bias is not None
        and weight.dtype == rows.dtype
        and weight.device == rows.device
        and weight.shape == rows.shape[1:]
    )


NormArm = SharedNorm | SeparateNorm

# A norm of channels D, called with rows ``[M, D]`` and, for atoms, a mask of the real ones (None:
# all are). One more kind here, and in `config.KINDS`, is one more arm, shared and with every other
# (CONTRIBUTING.md).
NORM_KINDS: dict[str, Callable[[int], nn.Module]] = {"ln": LayerNorm, "bn": MaskedBatchNorm}


def make_norm(name: str, channels: int, *, first: bool = False) -> NormArm:
    """Build the norm of an arm.

    Args:
        name: One of `NORMS` or an alias.
        channels: D, of a row.
        first: Before the first attention a norm meets the same graph token in every graph.
            BatchNorm would return its bias for all of them in training, and in evaluation divide
            the drift of its running mean by sqrt(eps). So there the token's branch is LayerNorm in
            every arm (shared BatchNorm thereby becomes ln+bn).

    Raises:
        ConfigError: If there is no such arm.
    """
    name = norm_name(name)
    if name.startswith("shared-"):
        kind = name.removeprefix("shared-")
        if not (first and kind == "bn"):
            return SharedNorm(NORM_KINDS[kind](channels))
        token, atom = kind, kind
    else:
        token, atom = name.split("+")
    if first and token == "bn":
        token = "ln"
    return SeparateNorm(NORM_KINDS[token](channels), NORM_KINDS[atom](channels))
