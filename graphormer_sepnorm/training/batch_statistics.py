"""BatchNorm's statistics, measured for the weights that are evaluated.

The running averages that BatchNorm keeps in training lag behind weights that change, hold the
variance that dropout adds, and belong to other weights where an average of weights is evaluated.
"Precise BatchNorm" (Wu & Johnson 2021, Rethinking "Batch" in BatchNorm, section 3) measures them
anew on training data instead, with the weights as they are.

They can also be fixed for the last part of training (ibid., section 4, "FrozenBN"), which then
sees the function that is evaluated. Until then the mean of the graph tokens, say of 128 graphs, is
off by about 1 / sqrt(128) of their deviation in every batch, right before the read-out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.model.batch_norm import MaskedBatchNorm
from graphormer_sepnorm.model.graphormer import Graphormer


def batch_norms(model: torch.nn.Module) -> list[MaskedBatchNorm]:
    """Return the BatchNorms of a model; empty where every norm is a LayerNorm."""
    return [module for module in model.modules() if isinstance(module, MaskedBatchNorm)]


def fix_batch_norm(model: torch.nn.Module, fixed: bool) -> None:
    """Make the running statistics of every BatchNorm constants in training too, or no longer."""
    for norm in batch_norms(model):
        norm.fixed = fixed


@torch.no_grad()
def measure_batch_norm(model: Graphormer, batches: Iterable[GraphBatch]) -> None:
    """Set the running statistics of every BatchNorm to those of the model as it is evaluated.

    The mean over the batches of their means and of their unbiased variances, each layer fed by
    normalised layers before it, without dropout. Under several processes each gives its share of
    every batch, as in training.

    Args:
        model: The network, on the device of the batches; its mode is the same afterwards.
        batches: Training batches, of about equal size; without any nothing is changed.
    """
    norms = batch_norms(model)
    if not norms:
        return
    with _measuring(model, norms):
        for number, batch in enumerate(batches, start=1):
            for norm in norms:
                norm.momentum = 1 / number  # the running average becomes the mean of all so far
                if number == 1:  # of which nothing is kept, but 0 times nan is nan
                    norm.running_mean.nan_to_num_(0.0, 0.0, 0.0)
                    norm.running_var.nan_to_num_(1.0, 1.0, 1.0)
            model(batch)


@contextmanager
def _measuring(model: Graphormer, norms: list[MaskedBatchNorm]) -> Iterator[None]:
    """Evaluation mode, but BatchNorms take the statistics of their batch and keep them."""
    was_training = model.training
    before = [(norm.momentum, norm.num_batches_tracked.clone()) for norm in norms]
    model.eval()
    for norm in norms:
        norm.train()
    try:
        yield
    finally:
        for norm, (momentum, count) in zip(norms, before, strict=True):
            norm.momentum = momentum
            norm.num_batches_tracked.copy_(count)  # training batches, not these
        model.train(was_training)
