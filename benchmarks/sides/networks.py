"""Timing a network: training steps or forward passes over batches that are ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.sides.protocol import Work

CLIP_NORM = 5.0


def training(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    forward: Callable[[Any], Tensor],
    batches: Sequence[Any],
    molecules: int,
) -> Work:
    """One round is a training step on each batch: forward, L1 loss, backward, clip, AdamW.

    `forward` makes predictions ``[B, 1]`` of a batch; `molecules` are those of all batches.
    """
    model.train()

    def run() -> None:
        for batch in batches:
            loss = (forward(batch) - 1).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            optimizer.step()

    return Work(run, facts=_facts(model, run, molecules))


def prediction(
    model: nn.Module,
    forward: Callable[[Any], Tensor],
    batches: Sequence[Any],
    molecules: int,
) -> Work:
    """One round is a forward pass of each batch, without gradients; arguments as `training`."""
    model.eval()

    @torch.inference_mode()
    def run() -> None:
        for batch in batches:
            forward(batch)

    return Work(run, facts=_facts(model, run, molecules))


def _facts(model: nn.Module, run: Callable[[], None], molecules: int) -> dict[str, int]:
    with FlopCounterMode(display=False) as counter:
        run()
    return {
        "molecules": molecules,
        "flops": counter.get_total_flops(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
