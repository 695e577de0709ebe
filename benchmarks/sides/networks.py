"""Timing a network: training steps or forward passes over batches that are ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.sides.protocol import Work

CLIP_NORM = 5.0


def timed(
    model: nn.Module,
    forward: Callable[[Any], Tensor],
    batches: Sequence[Any],
    molecules: int,
    optimizer: torch.optim.Optimizer | None = None,
) -> Work:
    """One round is a training step on each batch: forward, L1 loss, backward, clip, AdamW.

    Without an optimizer it is a forward pass of each, without gradients. `forward` makes
    predictions ``[B, 1]`` of a batch; `molecules` are those of all batches.
    """
    model.train(optimizer is not None)

    @torch.inference_mode(optimizer is None)
    def run() -> None:
        for batch in batches:
            values = forward(batch)
            if optimizer is not None:
                loss = (values - 1).abs().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
                optimizer.step()

    with FlopCounterMode(display=False) as counter:
        run()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    facts = {"flops": counter.get_total_flops(), "parameters": parameters}
    return Work(run, facts={"molecules": molecules, **facts})
