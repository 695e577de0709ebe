"""What is predicted: the kind of target, its names and its units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


@dataclass(frozen=True)
class Task:
    """The targets of a data set.

    Attributes:
        kind: ``regression`` (real values) or ``binary`` (0 or 1, one logit per target).
        targets: Names, one per column of ``y``.
        units: Units, one per target; the empty string for a dimensionless one.
        metric: The metric that models are selected by: ``mae`` (smaller is better) or
            ``auroc`` (larger is better).
    """

    kind: Literal["regression", "binary"]
    targets: tuple[str, ...]
    units: tuple[str, ...]
    metric: Literal["mae", "auroc"]

    def to_plain(self) -> dict[str, str | list[str]]:
        """Return the task as lists and strings, for a checkpoint."""
        return {
            "kind": self.kind,
            "targets": list(self.targets),
            "units": list(self.units),
            "metric": self.metric,
        }

    def values_of(self, outputs: Tensor, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        """Return what the outputs of a model say: real units, or probabilities of class 1.

        Args:
            outputs: ``[n, targets]`` of the model: standardised values, or logits.
            mean: ``[targets]`` by which real values were standardised.
            std: ``[targets]``, as `mean`.

        Returns:
            float64 ``[n, targets]``.
        """
        outputs = outputs.double()
        if self.kind == "binary":
            return outputs.sigmoid().cpu().numpy()
        return outputs.cpu().numpy() * std + mean

    @classmethod
    def from_plain(cls, plain: dict) -> Task:
        """Make a task from what `to_plain` gave."""
        return cls(plain["kind"], tuple(plain["targets"]), tuple(plain["units"]), plain["metric"])
