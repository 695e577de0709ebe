"""The training loss: a mean over the labels that are present.

B graphs · T targets.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.task import Task

LossName = Literal["l1", "mse", "bce"]

_ELEMENTWISE = {
    "l1": lambda outputs, targets: (outputs - targets).abs(),
    "mse": lambda outputs, targets: (outputs - targets).square(),
    "bce": lambda outputs, targets: F.binary_cross_entropy_with_logits(
        outputs, targets, reduction="none"
    ),
}


def choose_loss(name: Literal["auto", "l1", "mse", "bce"], task: Task) -> LossName:
    """Return the loss that fits `task`; ``auto`` is L1 for regression and BCE for binary targets.

    Raises:
        ConfigError: If the loss does not fit the kind of target.
    """
    fitting: tuple[LossName, ...] = ("bce",) if task.kind == "binary" else ("l1", "mse")
    if name == "auto":
        return fitting[0]
    if name not in fitting:
        raise ConfigError(
            f"--model.loss {name} does not fit {task.kind} targets: use {' or '.join(fitting)}"
        )
    return name


def masked_loss(name: LossName, outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean loss over the labels that are present.

    The mean is over labels, not first over graphs: a graph with ten labels weighs ten times one
    with a single label. A batch without any label gives 0 with zero gradients.

    Args:
        name: Which loss.
        outputs: Standardised predictions or logits, float ``[B, T]``.
        targets: Standardised values or 0/1, float ``[B, T]``; nan where a label is missing.

    Returns:
        A scalar, in float32 or wider whatever the precision of `outputs`.
    """
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    present = ~targets.isnan()
    # The missing labels are replaced before the loss is formed: nan * 0 would still be nan.
    losses = _ELEMENTWISE[name](outputs, targets.to(outputs.dtype).where(present, 0.0))
    return losses.where(present, 0.0).sum() / present.sum().clamp(min=1)
