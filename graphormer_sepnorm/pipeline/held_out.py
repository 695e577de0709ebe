"""What networks say of molecules that they were not trained on.

n molecules · K networks · T targets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.graphs.loading import in_order, make_loader
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.training.module import GraphormerModule

_PARTS = 5


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What a model says of molecules that it has not seen: real units, or probabilities of class 1.

    Attributes:
        numbers: int64 ``[n]``, of the graphs in the store.
        values: float64 ``[n, T]``.
        folds: int64 ``[n]``, from 0: the fold of an ensemble, or a part drawn at random.
        spread: ``[n, T]``, standard deviation over networks that all have not seen the molecule;
            None: there is one.
        apart: ``[n, T]``, how far network and trees of a blend are from each other; None: no blend.
        each: ``[n, K, T]``, what each of several networks says; None: there is one.
    """

    numbers: np.ndarray
    values: np.ndarray
    folds: np.ndarray
    spread: np.ndarray | None = None
    apart: np.ndarray | None = None
    each: np.ndarray | None = None

    @property
    def networks(self) -> np.ndarray:
        """What each network says, ``[K, n, T]``; of an ensemble by folds the one that may."""
        return self.values[None] if self.each is None else np.moveaxis(self.each, 1, 0)

    def take(self, rows: np.ndarray) -> HeldOut:
        """Return some of the molecules, by their places."""
        parts = (getattr(self, field.name) for field in dataclasses.fields(self))
        return HeldOut(*(None if part is None else part[rows] for part in parts))  # type: ignore[misc]


def of_validation_split(module: GraphormerModule, data: MoleculeDataModule) -> HeldOut:
    """Return what a model says of the validation molecules."""
    numbers = data.indices("validation")
    each = of_molecules(module, data, numbers)
    parts = np.random.default_rng(0).permutation(len(numbers)) % _PARTS
    if len(each) == 1:
        return HeldOut(numbers, each[0], parts)
    spread = each.std(axis=0, ddof=1)
    return HeldOut(numbers, each.mean(axis=0), parts, spread, each=np.moveaxis(each, 0, 1))


def out_of_fold(module: GraphormerModule, data: MoleculeDataModule) -> HeldOut:
    """Return what an ensemble's members say of all that they were trained on, each of its own fold.

    Of what weighs 0 nothing is said.

    Args:
        module: With the members that were trained by ``--ensemble_by folds``, in their order.
        data: Theirs.
    """
    trained_on = data.numbers.described
    numbers = data.numbers.weighed(trained_on)
    dealt = data.numbers.dealt[np.isin(trained_on, numbers)]
    values = np.full((len(numbers), len(module.task.targets)), np.nan)
    for fold, network in enumerate(_networks(module)):
        values[dealt == fold] = _values(module, data, numbers[dealt == fold], network)
    return HeldOut(numbers, values, dealt)


def of_molecules(
    module: GraphormerModule, data: MoleculeDataModule, numbers: np.ndarray
) -> np.ndarray:
    """Return what each network of a model says of molecules, ``[K, n, T]``."""
    return np.stack([_values(module, data, numbers, network) for network in _networks(module)])


def networks_of(
    module: GraphormerModule, data: MoleculeDataModule, split: str, predictions: np.ndarray
) -> np.ndarray:
    """Return what each network of a model says of a split, ``[K, n, T]``.

    `predictions` are their mean, as they were evaluated, which are those of a single one.
    """
    if not module.members:
        return predictions[None]
    return of_molecules(module, data, data.indices(split))


@torch.inference_mode()
def tokens_of(
    module: GraphormerModule, data: MoleculeDataModule, numbers: np.ndarray
) -> np.ndarray:
    """Return [CLS] of molecules in each network of a model, float32 ``[K, n, C]``."""
    networks = _networks(module)
    parts = [np.empty((len(networks), 0, module.model.config.width), np.float32)]
    batches = in_order(data.store, numbers, data.eval_batch_size)
    for batch in make_loader(data.store, module.vocabulary, batches):
        given = batch.to(module.device)
        tokens = [network.encode(given)[0].float().cpu().numpy() for network in networks]
        parts.append(np.stack(tokens))
    return np.concatenate(parts, axis=1)


def _networks(module: GraphormerModule) -> list[Graphormer]:
    """Return the networks of a model, ready to be asked."""
    module.eval()
    return [network.to(module.device).eval() for network in (module.model, *module.members)]


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
