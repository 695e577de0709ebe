"""Attention averages, and an average does not know over how many: degrees bring the number back.

R packed rows · C channels (width)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.model.fused.cpu_residual import add_scaled
from graphormer_sepnorm.model.readout import sum_over_atoms


def log_degrees(batch: GraphBatch, dtype: torch.dtype) -> Tensor:
    """Return ``log(1 + d)`` of each packed row, ``[R, 1]``, in this precision.

    d is the in-degree of an atom. The graph token is joined to every atom: its degree is their
    number, so it can tell large graphs from small ones.
    """
    atoms = batch.in_degree[:, None].to(dtype)
    tokens = sum_over_atoms(torch.ones_like(atoms), batch)
    return torch.cat([tokens, atoms]).log1p()


class DegreeScaler(nn.Module):
    """``x * theta_1 + log(1 + d) x * theta_2`` after attention (Ma et al. 2023, GRIT, Section 3).

    Channel by channel, of what the output projection of attention gives (GRIT's code scales what
    goes into it). Starts as the identity, theta_1 = 1 and theta_2 = 0.

    Args:
        width: C, channels of a token.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.plain = nn.Parameter(torch.ones(width))
        self.by_degree = nn.Parameter(torch.zeros(width))

    def set_neutral(self) -> None:
        """Become the identity."""
        nn.init.ones_(self.plain)
        nn.init.zeros_(self.by_degree)

    def forward(self, update: Tensor, log_degree: Tensor) -> Tensor:
        """Scale ``update [R, C]``; `log_degree` is that of its rows, ``[R, 1]``."""
        return update * (self.plain + log_degree * self.by_degree)

    def add_to(
        self, rows: Tensor, update: Tensor, messages: Tensor | None, log_degree: Tensor
    ) -> Tensor:
        """Return ``rows + self(update, log_degree) + messages`` in one pass, compiled."""
        return add_scaled(rows, update, messages, log_degree, self.plain, self.by_degree)
