"""The inputs of estimators: X, y and weights as scikit-learn's users have them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.inference.batching import given_smiles
from graphormer_sepnorm.tables.columns import parse_class_name


class ParameterError(ConfigError, ValueError):
    """A parameter of an estimator has a value that cannot be."""


class InputError(DataError, ValueError):
    """X, y or the weights are not what an estimator can take."""


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Raise errors as exceptions that scikit-learn knows.

    Options are parameters here, without the sections of the command line.
    """
    try:
        yield
    except (ConfigError, DataError) as error:
        known = ParameterError if isinstance(error, ConfigError) else InputError
        raise known(re.sub(r"--(model|data|trainer)\.|--(?=\w)", "", str(error))) from error


def unusable(rows: Sequence[tuple[int, str]]) -> DataError:
    """Return the error that says which rows of X cannot be used, and why the first cannot."""
    row, reason = rows[0]
    more = f"; {len(rows) - 1:,} more cannot be used either" if len(rows) > 1 else ""
    return DataError(f"X[{row}]: {reason}{more}: correct or remove them")


def smiles_of(X: Any) -> list[str]:
    """Return the SMILES of X, also of RDKit molecules."""
    with explained():
        texts = list(given_smiles(X))
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"X[{row}] is {text!r}, of type {type(text).__name__}: give SMILES")
    return texts


def numbers_of(values: Any, name: str) -> np.ndarray:
    """Return finite float64 numbers; nan = missing, also where pandas has another value for it."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "mMc":
            raise TypeError("dates, times and complex numbers are none")
        if array.dtype.kind == "O" and hasattr(values, "to_numpy"):
            array = values.to_numpy(dtype=object, na_value=np.nan)
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} does not hold numbers ({error})") from error
    if len(large := np.argwhere(np.abs(array) > np.finfo(np.float32).max)):
        place = ", ".join(map(str, large[0]))
        raise InputError(f"{name}[{place}] is infinite or too large for 32 bits: scale it")
    return array


def labels_of(y: Any, classes: bool = False) -> np.ndarray:
    """Return labels as float64 ``[n, targets]``, nan = missing; of classes with their own type."""
    try:
        labels = np.asarray(y) if classes else numbers_of(y, "y")
        if classes and labels.dtype.kind in "US" and not hasattr(y, "dtype"):
            # numpy makes text of all of a list that holds some, of a missing label too.
            given = np.asarray(y, dtype=object)
            labels = labels if all(isinstance(label, str) for label in given.flat) else given
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"y is not of classes ({error})") from error
    if labels.ndim not in (1, 2) or not labels.size:
        raise InputError(
            f"y is of shape {labels.shape}: give a label for each molecule, or one column for each "
            "target"
        )
    return labels.reshape(len(labels), -1)


def classes_of(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes of labels ``[n]``, sorted, and the index of each label's class."""
    try:
        check_classification_targets(y)
        return np.unique(y, return_inverse=True)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"y is not of classes ({error}): every molecule needs one, all of the same type"
        ) from error


def class_names(classes: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of classes, as in tables (1.0 is the class 1), all different."""
    names = tuple(parse_class_name(one) or str(one) for one in classes)
    # 01 and 1 are one class to a table.
    return names if len(set(names)) == len(names) else tuple(map(str, classes))


def names_of(y: Any) -> tuple[str, ...]:
    """Return the names of targets: their columns in pandas, or y, or y_0, y_1, ..."""
    shape = np.shape(y)
    names = getattr(y, "columns", [getattr(y, "name", None)])
    if None not in names and len(set(names)) == len(names):
        return tuple(map(str, names))
    count = shape[1] if len(shape) == 2 else 1
    return tuple(f"y_{target}" for target in range(count)) if count > 1 else ("y",)


def weights_of(weights: Any, molecules: int) -> np.ndarray:
    """Return weights as float64 ``[molecules]``; one number is that of all."""
    array = numbers_of(weights, "sample_weight")
    array = np.full(molecules, array) if array.ndim == 0 else array.reshape(-1)
    if len(array) != molecules or not (array >= 0).all():
        raise InputError(
            f"sample_weight has {len(array)} values for {molecules} molecules: give one number for "
            "each, 0 or more"
        )
    return array
