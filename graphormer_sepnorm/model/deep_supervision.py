"""Read-outs between the layers: what a few layers know has to predict the targets too.

B graphs · R packed rows · C channels (width) · T targets
"""

from __future__ import annotations

from torch import Tensor, nn

from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.model.attention import mean_over_atoms, sum_over_atoms
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.fused.cpu_linear import Linear
from graphormer_sepnorm.model.norm_arms import atom_norm, normalise_atoms


class DeepReadout(nn.Module):
    """Predicts after a layer, for the training loss alone.

    "Deeply-Supervised Nets" (Lee et al. 2015) has such companion objectives at every layer.

    ``W sum_i g_i / n + V mean_i g_i + b`` over the normalised atoms g of a graph, n the atoms of an
    average training graph. Atoms alone: before the first attention the graph token has heard
    nothing. A mean beside the sum, since after a few layers no atom knows how many there are.

    Args:
        config: The options of the model.
    """

    def __init__(self, config: GraphormerConfig) -> None:
        super().__init__()
        self.mean_atoms = config.mean_atoms
        pre = config.norm_position == "pre"  # otherwise a layer's rows are normalised already
        self.norm = atom_norm(config.norm, config.width) if pre else None
        self.sum = Linear(config.width, config.num_targets)
        self.mean = Linear(config.width, config.num_targets, bias=False)

    def forward(self, rows: Tensor, batch: GraphBatch) -> Tensor:
        """Return predictions ``[B, T]`` from packed rows ``[R, C]``."""
        atoms = rows[batch.num_graphs :]
        if self.norm is not None:
            atoms = normalise_atoms(self.norm, atoms, batch.real_atoms)
        total = sum_over_atoms(atoms, batch) / self.mean_atoms
        return self.sum(total) + self.mean(mean_over_atoms(atoms, batch))
