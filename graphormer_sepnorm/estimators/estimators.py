"""Graphormer as regressor and classifier of scikit-learn."""

from __future__ import annotations

import io
import sys
import warnings
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from graphormer_sepnorm.chem.features import OF_SMILES
from graphormer_sepnorm.datasets.lazy_graphs import load_arrays, read_texts
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.estimators.inputs import (
    InputError,
    class_names,
    classes_of,
    explained,
    labels_of,
    names_of,
    smiles_of,
    unusable,
    weights_of,
)
from graphormer_sepnorm.estimators.training import options_of, trained
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import (
    KEY,
    check_checkpoint,
    for_prediction,
    in_one_line,
    read_checkpoint,
)
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.metrics import Kind, metrics_of
from graphormer_sepnorm.tables.columns import is_word_for


class Supervised(BaseEstimator):
    """What trains a network, stored as the bytes of its checkpoint; see `GraphormerRegressor`."""

    _kind: ClassVar[Kind]
    _recipe: ClassVar[str]  # taken if no other is named
    seed: int
    validation_fraction: float
    device: str | None
    checkpoint_: bytes
    n_features_in_: int
    _loaded: tuple[str | None, Predictor] | None = None

    def __init__(
        self,
        recipe: str | None = None,
        *,
        from_pretrained: str | None = None,
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        loss: str | None = None,
        norm: str | None = None,
        layers: int | None = None,
        width: int | None = None,
        heads: int | None = None,
        ffn_width: int | None = None,
        dropout: float | None = None,
        options: dict[str, Any] | None = None,
        validation_fraction: float = 0.0,
        seed: int = 0,
        device: str | None = None,
        verbose: bool = False,
    ) -> None:
        # Of this class: a subclass may have others.
        vars(self).update({name: one for name, one in locals().items() if name != "self"})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.target_tags.multi_output = True
        return tags

    def _predictor(self) -> Predictor:
        """Return the network, on its device; read from the checkpoint when it is first needed."""
        check_is_fitted(self)
        if self._loaded is None or self._loaded[0] != self.device:
            with in_one_line("checkpoint_"):
                checkpoint = torch.load(io.BytesIO(self.checkpoint_), "cpu", weights_only=True)
                check_checkpoint(checkpoint)
            with explained():
                predictor = Predictor(checkpoint, self.device, refuse_new_elements=False)
            self._loaded = (self.device, predictor)
        return self._loaded[1]

    def _predicted(self, X: Any) -> Any:
        """Return the `Predictions` of all rows."""
        found = self._predictor().predict(smiles_of(X), max_atoms=sys.maxsize)
        bad = [(row, error) for row, error in enumerate(found.errors) if error]
        if bad:
            with explained():
                raise unusable(bad)
        new = [row for row, text in enumerate(found.warnings) if text.startswith("not understood")]
        if new:
            warnings.warn(
                f"{len(new):,} of {len(found.warnings):,} molecules have elements that did not "
                f"occur in training, which the model ignores; the first, X[{new[0]}]: "
                f"{found.warnings[new[0]].partition('; ')[0]}",
                stacklevel=3,
            )
        return found

    def __getstate__(self) -> Any:
        # No network: the checkpoint has it, and reading that runs no code.
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_loaded"}

    def _train(
        self, X: Any, labels: np.ndarray, names: tuple[str, ...], weights: Any, **of_classes: Any
    ) -> None:
        """Train on ``[n, targets]`` labels, nan where missing; `of_classes` are those of `Task`."""
        smiles = smiles_of(X)
        if len(smiles) != len(labels):
            raise InputError(f"X has {len(smiles)} molecules, y labels of {len(labels)}")
        with explained():
            config = options_of(vars(self), self._recipe)
            featurizer = feature_version = OF_SMILES
            if backbone := config.model.from_pretrained:
                facts = read_checkpoint(backbone)[KEY]
                featurizer, feature_version = facts["featurizer"], facts["feature_version"]
                if featurizer is None:
                    raise ConfigError(f"from_pretrained {backbone} does not take SMILES")
            steps = config.data.standardize or ()
            smiles, canonical, bad = read_texts(smiles, featurizer, steps)
            if bad:
                raise unusable(bad)
            labeled = np.flatnonzero(~np.isnan(labels).all(axis=1))
            if weights is not None:
                weights = weights_of(weights, len(smiles))
            size = round(self.validation_fraction * len(labeled))
            left = len(labeled) - size
            if left < 2 or (self.validation_fraction and not size):
                raise DataError(
                    f"of {len(labeled)} molecules with labels {max(left, 0)} are left to train on, "
                    f"and {size} to validate on: two and one are needed"
                )
            held_out = np.sort(np.random.default_rng(self.seed).permutation(labeled)[:size])
            units, metric = ("",) * len(names), metrics_of(self._kind)[0].name
            splits = load_arrays(
                smiles,
                canonical,
                labels,
                Task(self._kind, names, units, metric, **of_classes),
                weights,
                (np.setdiff1d(labeled, held_out), held_out),
                featurizer,
                feature_version,
                steps,
            )
            torch.save(for_prediction(trained(config, splits)), file := io.BytesIO())
        self.checkpoint_, self._loaded = file.getvalue(), None
        self.n_features_in_ = 1
        self.n_outputs_ = 1 if "one_of" in of_classes else len(names)


class GraphormerRegressor(RegressorMixin, Supervised):
    """Graphormer for real values, as a regressor of scikit-learn.

    X is a list, array or Series of SMILES, or two-dimensional with one column of them; y has one
    value for each or one column for each target, nan where a label is missing. Training takes all
    molecules and a fixed number of epochs, and keeps the last weights, unless a validation fraction
    is set aside.

    Args:
        recipe: Configuration that the options come from which are not given here: the name of one
            that comes with the package, or a YAML file; None: table_regression, for the classifier
            table_classification. table is the one that predicts best: five networks by folds (by
            chance), blended with boosting, with intervals, as ``train.py fit -c table`` trains it.
        from_pretrained: A trained network to begin with: a bundled model's name, a run directory or
            a checkpoint. It decides the options of the network, dropout apart.
        max_epochs: How often the molecules are gone through.
        batch_size: Molecules of a step.
        learning_rate: Peak learning rate.
        weight_decay: Decoupled decay of the weights.
        loss: l1 or mse; for the classifier bce.
        norm: Norm of [CLS] + norm of the atoms, as sharenorm, sepnorm, bn+bn.
        layers: Transformer layers.
        width: Channels of a token, a multiple of heads.
        heads: Attention heads.
        ffn_width: Channels inside the feed-forward networks.
        dropout: Of what attention and feed-forward networks add, 0 to below 1.
        options: Other options of ``train.py fit`` by name: {"model.encodings": "rrwp"}.
        validation_fraction: Share of the molecules, sampled at random, on which each epoch is
            validated; the one with the lowest loss is kept. 0 trains on all.
        seed: Decides initial weights, order of the molecules, dropout and validation molecules.
        device: cpu, cuda, cuda:1 ...; None: a GPU if there is one.
        verbose: Show the progress of training.

    Attributes:
        checkpoint_: The trained network as the bytes of a checkpoint file, which `predict.py`,
            `Predictor.load` and `from_pretrained` take.
        n_features_in_: 1, the SMILES.
        n_outputs_: Number of targets.
    """

    _kind = "regression"
    _recipe = "table_regression"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train from the beginning.

        Args:
            X: ``[n]`` SMILES.
            y: ``[n]`` or ``[n, targets]``; nan = missing.
            sample_weight: ``[n]``, weights in the training loss, 0 or more.

        Raises:
            ParameterError: A parameter has no such value.
            InputError: A molecule, a label or a weight cannot be used.
            CheckpointError: There is no such pre-trained network, or it reads other features.
        """
        self._train(X, labels_of(y), names_of(y), sample_weight)
        return self

    def predict(
        self, X: Any, return_interval: float | None = None
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return values, float64 ``[n]`` or ``[n, targets]``.

        Args:
            X: ``[n]`` SMILES.
            return_interval: Level, such as 0.9, of prediction intervals; their lower and upper ends
                are returned behind the values.

        Raises:
            InputError: A SMILES cannot be read.
            ParameterError: The model has no intervals, or not of this level.
        """
        predictor = self._predictor()
        with explained():
            if isinstance(return_interval, str):
                raise ConfigError(f"return_interval is {return_interval!r}: give a level, as 0.9")
            predictor.configure("none" if return_interval is None else return_interval)
        found = self._predicted(X)

        def of_targets(values: np.ndarray) -> np.ndarray:
            return values[:, 0] if values.shape[1] == 1 else values

        if return_interval is None:
            return of_targets(found.values)
        return of_targets(found.values), of_targets(found.low), of_targets(found.high)


class GraphormerClassifier(ClassifierMixin, Supervised):
    """Graphormer for classes, as a classifier of scikit-learn.

    As `GraphormerRegressor`, but y is of classes of any kind, two or more; or it has one column of
    0 and 1 for each of several targets, nan where a label is missing.

    Attributes:
        classes_: The classes, sorted; of several targets a list of these.
        checkpoint_: As in `GraphormerRegressor`; its predictions are probabilities of the second
            class, or of each of more than two.
    """

    _kind = "binary"
    _recipe = "table_classification"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train from the beginning; see `GraphormerRegressor.fit`.

        Raises:
            InputError: y is of one class, or lacks the class of a molecule.
        """
        given, names = labels_of(y, classes=True), names_of(y)
        of_classes: dict[str, Any] = {}
        if given.shape[1] > 1:
            labels = labels_of(y)
            if not np.isin(labels[~np.isnan(labels)], (0, 1)).all():
                raise InputError("y has several columns: each must hold 0, 1 or nan (missing)")
            classes: Any = [np.array([0, 1])] * labels.shape[1]
        else:
            classes, indices = classes_of(given[:, 0])
            if len(classes) < 2:
                raise InputError(f"y is {classes.tolist()[:1]} throughout: two classes are needed")
            labels = indices.reshape(-1, 1).astype(np.float64)
            if len(classes) > 2:
                of_classes["one_of"] = names[0]
                names = tuple(f"{names[0]}_{name}" for name in class_names(classes.tolist()))
                labels = np.eye(len(classes))[indices]
            else:
                zero, one = map(str, classes)
                zeros = () if is_word_for(zero, 0) else (zero,)
                ones = (one,) if zeros or one not in ("1", "1.0", "True") else ()
                of_classes = {"zeros": zeros, "ones": ones}
        self._train(X, labels, names, sample_weight, **of_classes)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of all classes ``[n, C]``; of 1 if several ``[n, targets]``.

        Raises:
            InputError: A SMILES cannot be read.
        """
        ones = self._predicted(X).values
        return np.hstack([1 - ones, ones]) if ones.shape[1] == 1 else ones

    def predict(self, X: Any) -> np.ndarray:
        """Return the likeliest class ``[n]``; 0 and 1 if there are several targets.

        Raises:
            InputError: A SMILES cannot be read.
        """
        probability = self.predict_proba(X)
        if self.n_outputs_ == 1:
            return self.classes_[probability.argmax(axis=1)]
        return (probability > 0.5).astype(int)
