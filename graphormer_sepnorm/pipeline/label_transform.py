"""Which targets are learned as logarithms, where nobody has said it: by errors out of fold."""

from __future__ import annotations

import numpy as np
from scipy.stats import skew

from graphormer_sepnorm.datasets.logarithms import known_values, numbers_of_table, with_logarithms
from graphormer_sepnorm.datasets.molecule_data import MoleculeData
from graphormer_sepnorm.formatting import four_digits

# Labels are skewed above this; molecules, sampled at random, on which the kernel is fitted.
_SKEWED, _MOST, _FEWEST = 1.0, 2000, 20


def choose_logarithms(data: MoleculeData) -> tuple[list[str], str]:
    """Return the targets that are better learned as logarithms, and a sentence on it.

    Labels that are nowhere below 0 and skewed to the right, more than their logarithms in either
    direction, are predicted by kernel ridge regression from those of all other molecules that are
    trained on, once as they are and once as logarithms; the smaller mean absolute error, in the
    unit of the labels, decides. Of the test split only the sign of labels is looked at.
    """
    from graphormer_sepnorm.baselines.fit_kernel import fit_kernel
    from graphormer_sepnorm.chem.fingerprints import substructures
    from graphormer_sepnorm.chem.molecules import parse_smiles

    splits, task = data.splits, data.splits.task
    if not (parts := numbers_of_table(splits)):
        return [], ""
    targets, described = len(task.targets), data.numbers.described
    labels = np.concatenate([part.y for part in parts]).astype(np.float64)[described]
    lowest = np.fmin.reduce(known_values(parts))
    above = [name for name, least in zip(task.targets, lowest, strict=True) if least >= 0]
    task = with_logarithms(splits, above).task
    learned = task.as_learned(labels)
    candidates = [
        target
        for target, name in enumerate(task.targets)
        if name in above and _is_skewed(labels[:, target], learned[:, target])
    ]
    if not candidates:
        return [], ""
    known = np.flatnonzero(~np.isnan(labels[:, candidates]).all(axis=1))
    some = np.sort(np.random.default_rng(0).permutation(known)[:_MOST])
    labels, learned = labels[some], learned[some]
    smiles = splits.smiles_of(described[some])
    both = np.hstack([labels, learned])
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
            name = task.targets[target]
            chosen.append(name)
            errors = f"{four_digits(as_logarithms)}, else {four_digits(as_they_are)}"
            told.append(f"{name} (MAE of a kernel out of fold {errors})")
    return chosen, f"learned as logarithms: {', '.join(told)}" if told else ""


def _is_skewed(labels: np.ndarray, logarithms: np.ndarray) -> bool:
    """Whether labels ``[n]``, nan = missing, are more skewed than their logarithms."""
    known = labels[~np.isnan(labels)]
    if len(known) < _FEWEST or len(set(known.tolist())) < 3:
        return False
    found, of_logarithms = (skew(of, nan_policy="omit") for of in (labels, logarithms))
    return bool(found > max(_SKEWED, abs(of_logarithms)))
