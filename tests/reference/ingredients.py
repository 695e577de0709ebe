"""Ideas beyond Graphormer, written out atom by atom on top of its literal form."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphormer_sepnorm.model.graphormer import GraphormerConfig
from reference.literal import Literal


@dataclass
class LiteralWithIngredients(Literal):
    """A `Literal` that does what a configuration says beyond Graphormer."""

    config: GraphormerConfig = field(default_factory=GraphormerConfig)

    def read_out(self, states: list[Tensor]) -> Tensor:
        """Predictions from the graph token, from the sum of the atoms, or the sum of both."""
        predictions = []
        for tokens in states:
            total = sum(tokens[1:]) / self.config.mean_atoms
            if self.config.readout == "sum":
                predictions.append(self.linear("readout", total))
                continue
            prediction = self.linear("readout", tokens[0])
            if self.config.readout == "both":
                prediction = prediction + self.parameters["atom_readout.weight"] @ total
            predictions.append(prediction)
        return torch.stack(predictions)
