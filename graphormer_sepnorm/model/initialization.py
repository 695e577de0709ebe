"""Initial values, each parameter drawn from (seed, its name).

So two models that differ in a norm start with the same values in everything else, whatever the
order in which their parts are built: a comparison of the two is paired.
"""

from __future__ import annotations

import hashlib

import torch
from torch import nn

from graphormer_sepnorm.model.attention import BiasMixing, DegreeScaler
from graphormer_sepnorm.model.batch_norm import MaskedBatchNorm
from graphormer_sepnorm.model.encodings import RingEncoding, SharedRing
from graphormer_sepnorm.model.norm_arms import SeparateNorm, SharedNorm

_STD = 0.02


@torch.no_grad()
def initialize(model: nn.Module, layers: int, seed: int) -> None:
    """Initialise as version 1 of the reference implementation.

    Linear weights are drawn from N(0, 0.02 / sqrt(layers)), linear biases are 0, embeddings and
    other tables are drawn from N(0, 0.02). Norms start as the identity (one that is neither
    LayerNorm nor BatchNorm as it was made), and so does what changes Graphormer's own numbers
    (`BiasMixing`, `DegreeScaler`) or must not be random where no training molecule reaches it
    (`RingEncoding`, `SharedRing`).

    Args:
        model: All of its parameters and BatchNorm statistics are set.
        layers: Number of transformer layers.
        seed: With the name of a parameter it decides its values.
    """
    arms = [one for one in model.modules() if isinstance(one, SharedNorm | SeparateNorm)]
    norms = {norm for arm in arms for norm in arm.modules()}
    for prefix, module in model.named_modules():
        if isinstance(module, MaskedBatchNorm):
            module.running_mean.zero_()
            module.running_var.fill_(1)
            module.num_batches_tracked.zero_()
        if isinstance(module, BiasMixing | DegreeScaler | RingEncoding | SharedRing):
            module.set_neutral()
            continue
        if module in norms and not isinstance(module, MaskedBatchNorm | nn.LayerNorm):
            continue
        for name, parameter in module.named_parameters(prefix=prefix, recurse=False):
            short = name.rpartition(".")[2]
            if isinstance(module, MaskedBatchNorm | nn.LayerNorm):
                parameter.fill_(1.0 if short == "weight" else 0.0)
            elif isinstance(module, nn.Linear) and short == "bias":
                parameter.zero_()
            elif not parameter.is_meta:  # one that has no values, for its shape, takes no memory
                std = _STD / layers**0.5 if isinstance(module, nn.Linear) else _STD
                # Drawn on the CPU, whatever torch's default device, and in float32, so that every
                # device and dtype starts alike.
                generator = _generator(seed, name)
                values = torch.randn(parameter.shape, generator=generator, device="cpu")
                parameter.copy_(values * std)
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                parameter[module.padding_idx] = 0


def _generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator("cpu").manual_seed(int.from_bytes(digest[:8], "little") >> 1)
