"""Which targets are learned as logarithms, where nobody has said it: by errors out of fold."""

from __future__ import annotations

import numpy as np
from scipy.stats import skew

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs
from graphormer_sepnorm.formatting import four_digits

# Labels are skewed above this; molecules, sampled at random, on which the kernel is fitted.
_SKEWED, _MOST, _FEWEST = 1.0, 2000, 20


def choose_logarithms(data: MoleculeDataModule) -> tuple[list[str], str]:
    """Return the targets that are better learned as logarithms, and a sentence on it.

    Labels that are nowhere below 0 and skewed to the right, more than their logarithms in either
    direction, are predicted by kernel ridge regression from those of all other molecules that are
    trained on, once as they are and once as logarithms; the smaller mean absolute error, in the
    unit of the labels, decides. Of the test split only the sign of labels is looked at.
    """
    from graphormer_sepnorm.baselines.fit_kernel import fit_kernel
    from graphormer_sepnorm.chem.fingerprints import substructures
    from graphormer_sepnorm.chem.molecules import parse_smiles
    from graphormer_sepnorm.datasets.logarithms import with_logarithms

    splits = data.splits
    parts = [part for part in splits.parts.values() if isinstance(part, LazyGraphs)]
    if splits.task.kind != "regression" or len(parts) < len(splits.parts):
        return [], ""
    targets = len(splits.task.targets)
    sides = [side for part in parts for side in part.sides]
    lowest = np.fmin.reduce(np.concatenate([*(part.labels for part in parts), *sides]))
    described = data.numbers.described
    labels = np.concatenate([part.labels for part in parts]).astype(np.float64)[described]
    candidates = [
        target
        for target in range(targets)
        if lowest[target] >= 0 and _is_skewed(labels[:, target][~np.isnan(labels[:, target])])
    ]
    if not candidates:
        return [], ""
    task = with_logarithms(splits, [splits.task.targets[target] for target in candidates]).task
    known = np.flatnonzero(~np.isnan(labels[:, candidates]).all(axis=1))
    some = np.sort(np.random.default_rng(0).permutation(known)[:_MOST])
    labels = labels[some]
    smiles = splits.smiles_of(described[some])
    both = np.hstack([labels, task.as_learned(labels)])
    of_both = [*candidates, *(targets + target for target in candidates)]
    everything, same = np.ones(len(some), bool), np.ones(len(some))
    found = substructures([parse_smiles(text).molecule for text in smiles])
    _, predicted = fit_kernel(found, both, everything, same, None, "regression", of_both)
    raw, logarithms = np.hsplit(predicted, 2)
    chosen, told = [], []
    for target in candidates:
        as_they_are, as_logarithms = (
            float(np.nanmean(np.abs(values - labels)[:, target]))
            for values in (raw, task.in_units(logarithms))
        )
        if as_logarithms < as_they_are:
            name = splits.task.targets[target]
            chosen.append(name)
            errors = f"{four_digits(as_logarithms)}, else {four_digits(as_they_are)}"
            told.append(f"{name} (MAE of a kernel out of fold {errors})")
    return chosen, f"learned as logarithms: {', '.join(told)}" if told else ""


def _is_skewed(labels: np.ndarray) -> bool:
    """Whether labels ``[n]``, which are not below 0, are more skewed than their logarithms."""
    above = labels[labels > 0]
    if len(labels) < _FEWEST or len(set(above.tolist())) < 3:
        return False
    logarithms = np.log(labels + (0 if len(above) == len(labels) else above.min() / 2))
    return bool(skew(labels) > max(_SKEWED, abs(skew(logarithms))))
