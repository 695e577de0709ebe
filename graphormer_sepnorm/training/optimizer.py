"""The optimiser, AdamW alone or beside Muon, and its learning rate.

The rate is a pure function of the step: on resume nothing has to be restored but its number.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from graphormer_sepnorm.config import DecayedName, OptimizerName, ScheduleName
from graphormer_sepnorm.training.muon import MuonAdamW

if TYPE_CHECKING:
    from graphormer_sepnorm.model.graphormer import Graphormer

log = logging.getLogger(__name__)


def decay_groups(
    model: nn.Module, weight_decay: float, decayed: DecayedName = "matrices"
) -> list[dict]:
    """Split the parameters into those with weight decay and those without.

    Decayed are all, or the weight ``matrices`` of linear layers. Then not decayed are

    * biases and the scales of norms: pulling a scale to 0 weakens a channel whatever the data say;
    * embedding tables and the graph token: a row gets a gradient only when its code occurs, but
      AdamW would shrink it at every step, so rare atoms, bonds and distances would fade.

    Args:
        model: The module whose parameters are to be trained.
        weight_decay: Weight decay of the first group; the second has none.
        decayed: Which parameters form the first group.

    Returns:
        Two parameter groups for `torch.optim.AdamW`, each with a ``name``.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    first = trained if decayed == "all" else [module.weight for module in linear]
    decayed_ids = {id(parameter) for parameter in first}
    with_decay = [parameter for parameter in trained if id(parameter) in decayed_ids]
    without = [parameter for parameter in trained if id(parameter) not in decayed_ids]
    return [
        {"name": "decay", "params": with_decay, "weight_decay": weight_decay},
        {"name": "no decay", "params": without, "weight_decay": 0.0},
    ]


def muon_groups(model: Graphormer, groups: list[dict]) -> list[dict]:
    """Take the matrices of the layers out of parameter groups, into groups for Muon.

    Muon is for matrices from hidden features to hidden features. Embeddings, random walks and
    read-outs, which have single features or few on one side, stay with AdamW.

    Args:
        model: The model whose parameters stand in the groups.
        groups: Parameter groups, as `decay_groups` gives them.

    Returns:
        The groups, each with ``muon``; behind each that held such matrices a group of them.
    """
    hidden = {
        id(module.weight) for module in model.layers.modules() if isinstance(module, nn.Linear)
    }
    parted = []
    for group in groups:
        of_muon = [parameter for parameter in group["params"] if id(parameter) in hidden]
        others = [parameter for parameter in group["params"] if id(parameter) not in hidden]
        parted.append({**group, "params": others, "muon": False})
        if of_muon:
            parted.append(
                {**group, "name": f"{group['name']}, Muon", "params": of_muon, "muon": True}
            )
    return parted


def make_optimizer(
    model: Graphormer,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float],
    eps: float,
    capturable: bool = False,
    decayed: DecayedName = "matrices",
    name: OptimizerName = "adamw",
    mixed: bool = False,
) -> torch.optim.Optimizer:
    """Return AdamW over the `decay_groups` of `model`, or `MuonAdamW` over its `muon_groups`.

    With `capturable` a step can be recorded in a CUDA graph: a few kernels for all parameters, and
    the count of steps on the device. With `mixed` the trainer's precision is: it then refuses to
    clip the gradients of a fused optimiser, which could unscale them itself.
    """
    # One loop over everything is several times faster than a dozen operations for each parameter,
    # and on a GPU a few kernels instead of thousands. Where it cannot be had torch is left to
    # choose: told not to fuse, it takes one parameter after the other on a GPU too.
    kinds = {parameter.device.type for parameter in model.parameters()}
    fused = capturable or (kinds <= {"cpu", "cuda"} and not mixed) or None
    groups = decay_groups(model, weight_decay, decayed)
    if name == "muon":
        groups = muon_groups(model, groups)
    return (MuonAdamW if name == "muon" else torch.optim.AdamW)(
        groups,
        lr=learning_rate,
        betas=betas,
        eps=eps,
        capturable=capturable,
        fused=fused,
    )


def renew_options(
    optimizer: torch.optim.Optimizer, schedule: LambdaLR, options: list[dict[str, Any]]
) -> None:
    """Give optimiser and schedule, as a checkpoint has restored them, the options of this run.

    The counts of steps go to where this optimiser expects them: they are restored where they were
    when the checkpoint was written, by an optimiser that was capturable, fused or neither.

    Args:
        optimizer: Of the parameters that are trained.
        schedule: Of its learning rates.
        options: Of each parameter group, all but ``params``.
    """
    schedule.base_lrs = [group["lr"] for group in options]
    for group, own, factor in zip(
        optimizer.param_groups, options, schedule.lr_lambdas, strict=True
    ):
        rate = own["lr"] * factor(schedule.last_epoch)
        group.update({**own, "initial_lr": own["lr"], "lr": rate})
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if "step" in state:
                on_device = group["capturable"] or group["fused"]
                device = parameter.device if on_device else torch.device("cpu")
                state["step"] = state["step"].to(device)


def make_schedule(
    optimizer: torch.optim.Optimizer,
    *,
    total_steps: int,
    warmup: int | float,
    peak: float,
    final: float,
    schedule: ScheduleName,
) -> LambdaLR:
    """Return the schedule of an optimiser whose learning rate is `peak`.

    The warm-up rises linearly and reaches `peak` with its last step, as in Graphormer version 1:
    the first step already learns. From there the rate falls to `final`, which the last step all but
    reaches and every later one has.

    Args:
        optimizer: The optimiser.
        total_steps: Length of the whole training, in optimiser steps.
        warmup: Length of the warm-up in optimiser steps; below 1 a fraction of all.
        peak: Highest learning rate.
        final: Learning rate at the end of training.
        schedule: ``linear`` or ``cosine`` (half a period).
    """
    warmup_steps = round(warmup * total_steps) if warmup < 1 else int(warmup)
    if warmup_steps > total_steps:
        log.warning(
            "--model.warmup_steps %d is longer than the training of %d steps: the peak learning "
            "rate is not reached",
            warmup_steps,
            total_steps,
        )

    def factor(step: int) -> float:
        """Learning rate of a step, counted from 0, in units of the peak."""
        if step < warmup_steps:
            return peak * (step + 1) / warmup_steps / peak
        progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
        left = 1 - progress if schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
        return (final + (peak - final) * left) / peak

    return LambdaLR(optimizer, factor)


def rate_of_step(schedule: LambdaLR, before: int = 0) -> float:
    """Return the learning rate that the last step had; the optimiser has that of the next one.

    Args:
        schedule: Of the optimiser.
        before: So many steps earlier.
    """
    return float(schedule.base_lrs[0] * schedule.lr_lambdas[0](schedule.last_epoch - 1 - before))
