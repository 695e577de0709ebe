"""A layer's own view of the attention bias that all layers share.

b graphs of a block · T tokens · H heads
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from graphormer_sepnorm.model.encodings import BlockBias
from graphormer_sepnorm.model.fused.cpu_attention import PackedBias


class BiasMixing(nn.Module):
    """Head h of this layer has the bias ``sum_g X_hg bias_g``; X starts as the identity.

    Graphormer adds one bias in every layer; GRIT (Ma et al. 2023) and GPTrans (Chen et al. 2023)
    let their pairs evolve from layer to layer. This is the cheapest form of it: H² numbers a layer.

    Args:
        heads: H, attention heads.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(heads))

    def set_neutral(self) -> None:
        """Become the identity."""
        nn.init.eye_(self.weight)

    def forward(self, biases: list[BlockBias]) -> list[BlockBias]:
        """Return the biases of this layer, laid out like those given, one per attention block.

        Packed ones are mixed by the compiled attention, which has them in its cache.
        """
        return [
            replace(bias, mixing=self.weight) if isinstance(bias, PackedBias) else self._mix(bias)
            for bias in biases
        ]

    def _mix(self, bias: Tensor) -> Tensor:
        padding = bias == float("-inf")
        # Graph by graph: as one product, the gradient of X would be a sum over all pairs of the
        # batch in very few results, for which a GPU has no use for its width.
        weight = self.weight.expand(len(bias), -1, -1)
        mixed = torch.bmm(weight, bias.masked_fill(padding, 0).flatten(2)).view_as(bias)
        return mixed.masked_fill(padding, float("-inf"))
