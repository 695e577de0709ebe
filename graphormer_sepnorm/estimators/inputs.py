"""The inputs of estimators: X, y and weights as scikit-learn's users have them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from graphormer_sepnorm.chem.molecules import as_text
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.tables.columns import free_name, parse_class_name


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


def smiles_of(X: Any, on_invalid: str = "error") -> list[Any]:
    """Return the SMILES of X, also of RDKit molecules.

    Raises:
        InputError: It is not of one column, or holds something else, where that is to be an error.
        ParameterError: `on_invalid` is neither error nor nan.
    """
    if on_invalid not in ("error", "nan"):
        raise ParameterError(f"on_invalid is {on_invalid!r}: it must be error or nan")
    if X is None or isinstance(X, str | Mapping):
        raise InputError(f"X is of the type {type(X).__name__}: give a list of SMILES")
    if isinstance(X, Iterable) and not isinstance(X, Sized):
        X = list(X)
    given = np.asarray(X, dtype=object)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim != 1:
        raise InputError(f"X is of shape {given.shape}: give one SMILES for each row")
    texts = [as_text(one) for one in given]
    for row, text in enumerate(texts):
        if on_invalid == "error" and not isinstance(text, str):
            raise InputError(f"X[{row}] is {text!r}, of type {type(text).__name__}: give SMILES")
    return texts


def labels_of(y: Any) -> np.ndarray:
    """Return labels as float64 ``[n, targets]``.

    Raises:
        InputError: They are not numbers of 32 bits (nan is a missing one), or there are none.
    """
    labels = in_columns(_numbers(y, "y"))
    if len(large := np.flatnonzero((np.abs(labels) > np.finfo(np.float32).max).any(axis=1))):
        raise InputError(
            f"y[{large[0]}] is infinite or too large for a float of 32 bits: scale the labels; nan "
            "is a missing one"
        )
    return labels


def in_columns(y: np.ndarray) -> np.ndarray:
    """Return labels of any kind as ``[n, targets]``.

    Raises:
        InputError: They are of another shape, or there are none.
    """
    if y.ndim not in (1, 2) or not y.size:
        raise InputError(
            f"y is of shape {y.shape}: give a label for each molecule, or one column for each "
            "target"
        )
    return y.reshape(len(y), -1)


def class_labels(y: Any) -> np.ndarray:
    """Return labels of classes as an array ``[n, targets]`` in which they keep their type.

    Raises:
        InputError: They are rows of different lengths, or there are none.
    """
    try:
        labels = np.asarray(y)
    except ValueError as error:
        raise InputError(f"y is not of classes ({error})") from error
    if not hasattr(y, "dtype") and labels.dtype.kind in "US":
        # numpy makes text of all of a list that holds some, of a missing label too.
        kept = np.asarray(y, dtype=object)
        labels = labels if all(isinstance(label, str) for label in kept.flat) else kept
    return in_columns(labels)


def classes_of(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes of labels ``[n]``, sorted, and the index of each label's class.

    Raises:
        InputError: They are no classes, or one is missing, or of a type that cannot be compared.
    """
    try:
        check_classification_targets(y)
        return np.unique(y, return_inverse=True)
    except (TypeError, ValueError) as error:
        rows = {type(label).__name__: row for row, label in reversed([*enumerate(y.tolist())])}
        shown = ", ".join(f"{kind} (y[{row}])" for kind, row in rows.items())
        raise InputError(
            f"y is not of classes ({error}): every molecule needs one, all of the same type, and "
            f"these are {shown}"
        ) from error


def class_names(classes: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of classes, as in tables (1.0 is the class 1), all different."""
    names = [parse_class_name(one) or str(one) for one in classes]
    if len(set(names)) == len(names):
        return tuple(names)
    return _distinct(str(one).strip() for one in classes)  # 01 and 1 are one class to a table


def names_of(y: Any) -> tuple[str, ...]:
    """Return the names of targets: their columns in pandas, or y, or y_0, y_1, ..."""
    if getattr(y, "columns", None) is not None:
        return _distinct(map(str, y.columns))
    if getattr(y, "name", None) is not None:
        return (str(y.name),)
    shape = np.shape(y)
    count = shape[1] if len(shape) == 2 else 1
    return tuple(f"y_{target}" for target in range(count)) if count > 1 else ("y",)


def weights_of(weights: Any, molecules: int) -> np.ndarray:
    """Return weights as float64 ``[molecules]``; one number is that of all.

    Raises:
        InputError: They are not finite numbers, 0 or more, one for each molecule.
    """
    array = _numbers(weights, "sample_weight")
    array = np.full(molecules, array) if array.ndim == 0 else array.reshape(-1)
    if len(array) != molecules or not (np.isfinite(array) & (array >= 0)).all():
        raise InputError(
            f"sample_weight has {len(array)} values for {molecules} molecules: give one finite "
            "number for each, 0 or more"
        )
    return array


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(values)
        if array.dtype.kind in "mMc":
            raise TypeError("dates, times and complex numbers are none")
        if array.dtype.kind == "O" and hasattr(values, "to_numpy"):  # pandas has its own nan
            array = values.to_numpy(dtype=object, na_value=np.nan)
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} does not hold numbers ({error})") from error


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of which none is there twice: another a is a_2."""
    found: list[str] = []
    for name in names:
        found.append(free_name(name, found) if name in found else name)
    return tuple(found)
