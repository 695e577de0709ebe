"""The training loss, a mean over the labels that are present, and SepNorm's auxiliary loss.

B graphs · T targets · n embeddings · C channels.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from graphormer_sepnorm.config import LossChoice
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.model.norms import sum_over_processes

LossName = Literal["l1", "mse", "bce"]

_LOSSES = {"l1": F.l1_loss, "mse": F.mse_loss, "bce": F.binary_cross_entropy_with_logits}


def choose_loss(name: LossChoice, task: Task) -> LossName:
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


def summed_loss(
    name: LossName,
    outputs: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    bounds: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the losses of the labels that are present, and their number.

    The mean is one over labels, not first over graphs: a graph with ten labels weighs ten times one
    with a single label. A weighted sum is divided by the number of labels too, not by the sum of
    the weights of this batch: so a graph of weight 2 counts twice as much as one of weight 1
    whichever batches they are in.

    A bound is a label that costs nothing on its far side (a one-sided loss): of *at least 5* an
    output of 4 costs as much as of the label 5, an output of 6 nothing.

    Args:
        name: Name of the loss.
        outputs: Standardized predictions or logits, float ``[B, T]``.
        targets: Standardized values or 0/1, float ``[B, T]``; nan where a label is missing.
        weights: Weight of each graph, ``[B]``, with a mean of 1 over the training graphs; None: 1.
        bounds: Of missing labels what they are at least, then what they are at most, standardized,
            ``[B, 2 T]``; nan where nothing is known. None or ``[B, 0]``: of none.

    Returns:
        Two scalars, the sum in float32 or wider whatever the precision of `outputs`.
    """
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    if bounds is not None and bounds.shape[1]:
        low, high = bounds.to(outputs.dtype).chunk(2, dim=1)
        # A bound that is nan leaves an output as it is. Not by fmin and fmax: these would take the
        # bound for an output that is nan, and its loss would be 0.
        below = outputs.minimum(low.masked_fill(low.isnan(), math.inf))
        above = outputs.maximum(high.masked_fill(high.isnan(), -math.inf))
        outputs = torch.cat([outputs, below, above], dim=1)
        targets = torch.cat([targets.to(outputs.dtype), low, high], dim=1)
    present = ~targets.isnan()
    # The missing labels are replaced before the loss is formed: nan * 0 would still be nan.
    known = targets.to(outputs.dtype).where(present, 0.0)
    losses = _LOSSES[name](outputs, known, reduction="none").where(present, 0.0)
    if weights is not None:
        losses = losses * weights[:, None].to(losses.dtype)
    return losses.sum(), present.sum()


def uniformity_loss(rows: Tensor) -> Tensor:
    """Mean of ``h_i · h_j`` over all pairs i ≠ j of rows ``[n, C]`` of all processes; 0 of none.

    Eq. 8 of SepNorm's paper (Chen et al. 2023), of the last [CLS] of each graph, normalized. The
    paper does not say whether i = j counts; here it does not. For a graph token behind LayerNorm:
    behind BatchNorm it says nothing about directions. A learned scale lets it fall without bound.
    """
    # The squared norm of the sum has all pairs in it, and each row with itself.
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    count = rows.new_tensor([float(len(rows))])
    sums = sum_over_processes(torch.cat([rows.sum(dim=0), rows.square().sum()[None], count]))
    vector, squares, number = sums[:-2], sums[-2], sums[-1]
    return (vector.square().sum() - squares) / (number * (number - 1)).clamp(min=1)
