"""What a model has to beat: a constant, and a linear model of Morgan fingerprints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score

from graphormer_sepnorm.chem.fingerprints import morgan_fingerprints

PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


def baseline_errors(
    smiles: Mapping[str, Sequence[str]], targets: Mapping[str, np.ndarray], counts: bool = True
) -> dict[str, float]:
    """Return the test errors of two models that take no training to speak of.

    Args:
        smiles: The molecules under ``train``, ``validation`` and ``test``.
        targets: One real value per molecule, ``[n]``, under the same names, in any unit.
        counts: Whether the fingerprints count environments (the stronger baseline for a target
            that adds up over atoms) or only note that they occur.

    Returns:
        Mean absolute errors on the test set in the targets' unit: ``mean`` predicts the mean of
        the training targets; ``ridge`` is linear in 2,048 Morgan counts or bits of radius 2,
        fitted to the training set by penalised least squares with that of `PENALTIES` that does
        best on the validation set.

    Raises:
        DataError: A SMILES cannot be read.
    """
    values = {split: np.asarray(column, dtype=np.float64) for split, column in targets.items()}
    features = _features(smiles, counts)
    models = [Ridge(alpha=penalty).fit(features["train"], values["train"]) for penalty in PENALTIES]
    best = min(models, key=lambda model: _mae(model, features["validation"], values["validation"]))
    return {
        "mean": float(np.abs(values["test"] - values["train"].mean()).mean()),
        "ridge": _mae(best, features["test"], values["test"]),
    }


def baseline_aurocs(
    smiles: Mapping[str, Sequence[str]], targets: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Return the test AUROC of logistic regression on Morgan fingerprints.

    Args:
        smiles: The molecules under ``train``, ``validation`` and ``test``.
        targets: 0 or 1 per molecule, ``[n]``, under the same names.

    Returns:
        ``logistic``: linear in 2,048 Morgan bits of radius 2, with that of `PENALTIES` that does
        best on the validation set; nan where a split lacks one of the classes.

    Raises:
        DataError: A SMILES cannot be read.
    """
    classes = {split: np.asarray(column) > 0.5 for split, column in targets.items()}
    if any(column.all() or not column.any() for column in classes.values()):
        return {"logistic": float("nan")}
    features = _features(smiles, counts=False)
    models = [
        LogisticRegression(C=1 / penalty, max_iter=1000).fit(features["train"], classes["train"])
        for penalty in PENALTIES
    ]

    def auroc(model: LogisticRegression, split: str) -> float:
        return float(roc_auc_score(classes[split], model.decision_function(features[split])))

    best = max(models, key=lambda model: auroc(model, "validation"))
    return {"logistic": auroc(best, "test")}


def _features(smiles: Mapping[str, Sequence[str]], counts: bool) -> dict[str, np.ndarray]:
    return {
        split: morgan_fingerprints(smiles[split], counts=counts)
        for split in ("train", "validation", "test")
    }


def _mae(model: Ridge, features: np.ndarray, targets: np.ndarray) -> float:
    return float(np.abs(model.predict(features) - targets).mean())
