"""The result of a training, and what its networks predict for molecules of its data set.

n molecules · K networks · T targets. Real units, or probabilities of class 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from graphormer_sepnorm.datasets.molecule_data import MoleculeData
from graphormer_sepnorm.graphs.loading import in_order, make_loader
from graphormer_sepnorm.inference.predictor import Predictor, outputs_of
from graphormer_sepnorm.metrics import Metric
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.described import Described, Tested
from graphormer_sepnorm.uncertainty.uncertainty import Inputs, Uncertainty

if TYPE_CHECKING:
    from graphormer_sepnorm.baselines.blend import Blend
    from graphormer_sepnorm.baselines.evaluation import Baseline

_PARTS = 5


@dataclass(frozen=True, eq=False)
class Predicted:
    """What a model predicts for some molecules.

    Attributes:
        indices: int64 ``[n]``, of the graphs in the store.
        networks: float64 ``[K, n, T]``, by network; out of fold the one that did not see the
            molecule, K = 1.
        inputs: What uncertainty is estimated from: values of the networks together, and of a blend
            once there is one, their spread, and the distance of a blend's parts.
        folds: int64 ``[n]``, from 0: the fold of an ensemble, or a random part; calibration is
            evaluated by them.
    """

    indices: np.ndarray
    networks: np.ndarray
    inputs: Inputs
    folds: np.ndarray

    @classmethod
    def of_networks(
        cls,
        indices: np.ndarray,
        networks: np.ndarray,
        values: np.ndarray | None = None,
        folds: np.ndarray | None = None,
    ) -> Predicted:
        """Take the mean over networks, where `values` are not given, and their spread."""
        if folds is None:
            folds = np.random.default_rng(0).permutation(len(indices)) % _PARTS
        spread = networks.std(axis=0, ddof=1) if len(networks) > 1 else None
        mean: np.ndarray = networks.mean(axis=0) if values is None else values
        return cls(indices, networks, Inputs(mean, spread), folds)

    def take(self, rows: np.ndarray) -> Predicted:
        """Return those of some of the molecules, by their positions."""
        some = self.networks[:, rows], self.inputs.take(rows), self.folds[rows]
        return Predicted(self.indices[rows], *some)

    @property
    def values(self) -> np.ndarray:
        """Predictions, float64 ``[n, T]``."""
        return self.inputs.values


@dataclass
class Outcome:
    """The result of a training: what is tested, printed and stored.

    Attributes:
        run: Its directory.
        selected: What decided on the best checkpoint.
        network: The test of the network, or of the mean of an ensemble.
        summary: As ``summary.json`` stores it, of all that the checkpoint holds.
        unseen: Predictions for molecules that were not trained on; None: there are none.
        test: Predictions for the test split, for blend and uncertainty; None: there are none of
            these, or they are not known of all its molecules.
        out_of_fold: Whether `unseen` was predicted so, as by an ensemble by folds.
        blend: Of network and trees; None: the predictions are those of the networks alone.
        baselines: Their metrics.
        left_out: What they leave out, in words.
        evaluated_on: The molecules that the blend was fitted on.
        uncertainty: Of the model; None where it is not known.
        quality: Of the uncertainty on the test split, by the names of targets that have labels.
        columns: Of the test molecules: ends of intervals, similarity, distance of [CLS].
        outside: Which test molecules are outside the domain: bool ``[n]``.
    """

    run: RunDirectory
    selected: Metric
    network: Tested
    summary: dict[str, Any]
    unseen: Predicted | None = None
    test: Predicted | None = None
    out_of_fold: bool = False
    blend: Blend | None = None
    baselines: list[Baseline] = field(default_factory=list)
    left_out: str = ""
    evaluated_on: str = ""
    uncertainty: Uncertainty | None = None
    quality: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    outside: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def model(self, device: str | None = None) -> Predictor:
        """Return the model, ready to predict."""
        return Predictor.load(self.run.path, device)


def out_of_sample(module: Described, data: MoleculeData) -> Predicted:
    """Predict molecules that the networks were not trained on.

    The validation split, or a member's fold; of an ensemble by folds (`module` with the members in
    their order) all that they were trained on and that does not weigh 0, each molecule by the
    member whose fold it is in.
    """
    networks, of_members = networks_of(module), data.member_folds
    if of_members is None or of_members.own is not None:
        indices = data.indices("validation")
        each, _ = of_networks(module, data, indices, networks)
        nothing = None if networks else np.full(each.shape[1:], np.nan)
        return Predicted.of_networks(indices, each, nothing)
    trained_on = data.numbers.described
    indices = data.numbers.weighed(trained_on)
    folds = data.numbers.assigned[np.isin(trained_on, indices)]
    values = np.full((len(indices), len(module.task.targets)), np.nan)
    for fold, network in enumerate(networks):
        [values[folds == fold]], _ = of_networks(module, data, indices[folds == fold], [network])
    return Predicted.of_networks(indices, values[None][: len(networks)], values, folds)


def on_split(module: Described, data: MoleculeData, split: str, evaluated: np.ndarray) -> Predicted:
    """Return predictions for a split that was evaluated: the values `evaluated`, and by network."""
    indices = data.indices(split)
    alone = module.has_network and not module.members
    networks = evaluated[None] if alone else of_networks(module, data, indices)[0]
    return Predicted.of_networks(indices, networks, evaluated)


def of_networks(
    module: Described,
    data: MoleculeData,
    indices: np.ndarray,
    networks: Sequence[Graphormer] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return `outputs_of` some networks, None: all of a model, for molecules.

    Not by Lightning's loop: it would log a validation, and ask all processes for their part.
    """
    loader = make_loader(
        data.store, module.vocabulary, in_order(data.store, indices, data.eval_batch_size)
    )
    batches = (batch.to(module.device) for batch in loader)
    networks = networks_of(module) if networks is None else networks
    values, tokens = outputs_of(networks, batches, module.facts)
    return values.reshape(len(networks), len(indices), values.shape[2]), tokens


def networks_of(module: Described) -> list[Graphormer]:
    """Return the networks of a model, ready to predict; none of one without networks."""
    if not module.has_network:
        return []
    return [network.to(module.device).eval() for network in (module.model, *module.members)]
