"""AdamW alone or beside Muon; weight decay on the matrices of linear layers, or on everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import nn

from graphormer_sepnorm.training.muon import MuonAdamW

if TYPE_CHECKING:
    from graphormer_sepnorm.model.graphormer import Graphormer

OptimizerName = Literal["adamw", "muon"]
OPTIMIZERS: tuple[OptimizerName, ...] = get_args(OptimizerName)
DecayedName = Literal["matrices", "all"]
DECAYED: tuple[DecayedName, ...] = get_args(DecayedName)


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
    return [
        {
            "name": "decay",
            "params": [parameter for parameter in trained if id(parameter) in decayed_ids],
            "weight_decay": weight_decay,
        },
        {
            "name": "no decay",
            "params": [parameter for parameter in trained if id(parameter) not in decayed_ids],
            "weight_decay": 0.0,
        },
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


def place_step_counts(optimizer: torch.optim.Optimizer) -> None:
    """Bring the counts of steps to where the optimiser expects them.

    A checkpoint restores them where they were when it was written, which need not be where this
    optimiser, capturable, fused or neither, has them.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if "step" in state:
                on_device = group["capturable"] or group["fused"]
                device = parameter.device if on_device else torch.device("cpu")
                state["step"] = state["step"].to(device)
