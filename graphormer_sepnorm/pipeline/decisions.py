"""What decides on a training: length, metric, logarithms; and how it ends where it fails."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.datasets.logarithms import known_values, numbers_of_table, with_logarithms
from graphormer_sepnorm.datasets.molecule_data import MoleculeData
from graphormer_sepnorm.errors import ConfigError, Interrupted
from graphormer_sepnorm.formatting import four_digits, listed
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import LAST, METRICS, Kind, Metric, chosen_metric

# Molecules that a network sees while it is fine-tuned (each once an epoch), and the most epochs.
_SHOWN: dict[Kind, tuple[int, int]] = {"regression": (120_000, 20), "binary": (24_000, 40)}
# Labels are skewed above this; molecules, sampled at random, on which the kernel is fitted.
_SKEWED, _MOST, _FEWEST = 1.0, 2000, 20


def epochs_of_table(molecules: int, kind: Kind) -> int:
    """Return how many epochs a network is fine-tuned for on so many molecules by default.

    As many as show it 120,000 molecules, 12 to 20; of a classification 24,000, 12 to 40: classes
    are soon memorised, numbers are not, and large tables take time. By errors out of fold alone,
    see docs/experiments/small-tables.md.
    """
    return min(_SHOWN[kind][1], max(12, round(_SHOWN[kind][0] / molecules)))


def monitored_metric(
    task: Task, validation_targets: np.ndarray, chosen: str | None = None, patience: int = 0
) -> Metric:
    """Return what decides which checkpoint is the best.

    If nothing is chosen, the main metric, unless it is a mean of errors of several targets, or one
    that no target's labels define (its nan would be beaten by nothing, and the first epoch would
    stay the best): then the loss, which is of standardized values or of probabilities.

    Args:
        task: What is predicted.
        validation_targets: Labels of the validation split, ``[n, T]``; nan = missing.
        chosen: Name of a metric, or ``loss``, or ``last``.
        patience: See `checkpoint_callbacks`.

    Raises:
        ConfigError: What is chosen does not exist, or is not defined for these targets, or cannot
            stop early.
    """
    loss = METRICS["loss"]
    metric = task.main if chosen is None else chosen_metric(chosen, task.kind)
    if metric is LAST and patience:
        raise ConfigError(
            "--metric last takes the end of training, whatever it is, and nothing can say when to "
            "stop early: leave out --early_stopping, or choose a metric or loss"
        )
    if metric in (loss, LAST):
        return metric
    undefined = not any(map(metric.is_defined, validation_targets.T))
    if chosen is None:
        return loss if undefined or (metric.in_unit and len(task.targets) > 1) else metric
    if not task.has_mean(metric):
        units = listed(sorted({unit or "none" for unit in task.units}))
        raise ConfigError(
            f"--metric {chosen}: the targets have several units ({units}), in which it has no "
            "mean: choose one without a unit, or loss"
        )
    if undefined:
        raise ConfigError(
            f"--metric {chosen} is undefined on the validation split: no target has "
            f"{metric.lacking} there; choose another one, or loss"
        )
    return metric


def selection(config: FitConfig, data: MoleculeData) -> tuple[Metric, Metric]:
    """Return what decides on the best checkpoint, and what is shown of a validation.

    Raises:
        ConfigError: The metric that is asked for is undefined, on the fold of some member perhaps.
    """
    task, patience = data.splits.task, config.early_stopping
    validation = data.store.targets[data.numbers.validated]
    off = config.trainer.limit_val_batches == 0
    if off or not len(validation):
        where = "--trainer.limit_val_batches 0 leaves" if off else f"{data.splits.name} has"
        for name, given in (("metric", config.metric), ("early_stopping", patience)):
            if given and given != LAST.name:
                what = f"--{name} {given} goes by the validation split, and {where} none"
                raise ConfigError(f"{what}: leave it out, and the end of training is taken")
        return LAST, task.main
    selected = monitored_metric(task, validation, config.metric, patience)
    for member, fold in enumerate(data.numbers.of_members if config.metric is not None else ()):
        try:
            monitored_metric(task, data.store.targets[fold], config.metric, patience)
        except ConfigError as error:
            which = f"member {member}, which validates on a fold of its own"
            raise ConfigError(f"{which}: {error}, or --ensemble_by seeds") from None
    return selected, task.main if selected.kind is None else selected  # the loss is drawn anyway


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
    from scipy.stats import skew  # slow to load

    known = labels[~np.isnan(labels)]
    if len(known) < _FEWEST or len(set(known.tolist())) < 3:
        return False
    found, of_logarithms = (skew(of, nan_policy="omit") for of in (labels, logarithms))
    return bool(found > max(_SKEWED, abs(of_logarithms)))


@contextmanager
def explaining() -> Iterator[None]:
    """Turn what Lightning reports of a mistake in its options into one line, a ConfigError."""
    try:
        yield
    except Exception as error:
        *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
        of_lightning = str(innermost.f_globals.get("__name__", "")).startswith("lightning.")
        # By its name: Lightning is not loaded for it.
        misconfigured = type(error).__name__ == "MisconfigurationException"
        if not (misconfigured or (of_lightning and isinstance(error, ValueError))):
            raise
        raise ConfigError(" ".join(str(error).split())) from error


@contextmanager
def interruptible(trainer: Any, what_was_saved: Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C into Interrupted, with what `what_was_saved` says.

    Lightning lets its callbacks save the state, then exits with status 1. Outside of its loops,
    and without a trainer (None), there is a KeyboardInterrupt.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, SystemExit) and not getattr(trainer, "interrupted", False):
            raise
        raise Interrupted(what_was_saved()) from None
