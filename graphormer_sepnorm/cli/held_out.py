"""What networks say of molecules that they were not trained on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.graphs.loading import in_order, make_loader
from graphormer_sepnorm.training.module import GraphormerModule


def of_validation_split(module: GraphormerModule, data: MoleculeDataModule) -> np.ndarray:
    """What a model says of the validation molecules, float64 ``[n, T]``."""
    module.eval()
    return _values(module, data, data.indices("validation"), module.outputs)


def out_of_fold(module: GraphormerModule, data: MoleculeDataModule) -> np.ndarray:
    """What an ensemble's members say of all that they were trained on, each of its own fold.

    Args:
        module: With the members that were trained by ``--ensemble_by folds``, in their order.
        data: Theirs.

    Returns:
        float64 ``[training + validation, T]``.
    """
    dealt, numbers = data.dealt(), data.described()
    values = np.full((len(numbers), len(module.task.targets)), np.nan)
    for fold, network in enumerate((module.model, *module.members)):
        network.to(module.device).eval()
        values[dealt == fold] = _values(module, data, numbers[dealt == fold], network)
    return values


@torch.inference_mode()
def _values(
    module: GraphormerModule,
    data: MoleculeDataModule,
    numbers: np.ndarray,
    outputs: Callable[[GraphBatch], Tensor],
) -> np.ndarray:
    """Real units, or the probability of class 1: float64 ``[n, T]``.

    Not by Lightning's loop: it would log what is validated, and ask all processes for their part.
    """
    mean, std = (np.asarray(module.facts[f"target_{name}"]) for name in ("mean", "std"))
    batches = in_order(data.store, numbers, data.eval_batch_size)
    parts = [
        module.task.values_of(outputs(batch.to(module.device)), mean, std)
        for batch in make_loader(data.store, module.vocabulary, batches)
    ]
    return np.concatenate([np.empty((0, len(mean))), *parts])
