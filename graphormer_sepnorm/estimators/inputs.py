"""What estimators are given: X, y and weights as scikit-learn's users have them."""

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
    """Say what is wrong in the words of an estimator, by an exception that scikit-learn knows.

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
    if isinstance(X, str):
        raise InputError(f"X is {X!r}: give a list of SMILES, also of one")
    if X is None or isinstance(X, Mapping):
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
        InputError: There are none, or they are no numbers, or not finite (nan is a missing one).
    """
    labels = in_columns(_numbers(y, "y"))
    if np.isinf(labels).any():
        raise InputError("y holds an infinity: nan is a missing label")
    if len(large := np.flatnonzero((np.abs(labels) > np.finfo(np.float32).max).any(axis=1))):
        raise InputError(f"y[{large[0]}] is too large for a float of 32 bits: scale the labels")
    return labels


def class_labels(y: Any) -> np.ndarray:
    """Return labels of classes as an array in which they keep their kind.

    numpy would make text of all of a list that holds some, of a missing label too.

    Raises:
        InputError: They are rows of different lengths.
    """
    try:
        labels = np.asarray(y)
    except ValueError as error:
        raise InputError(f"y is not of classes ({error})") from error
    if hasattr(y, "dtype") or labels.dtype.kind not in "US":
        return labels
    kept = np.asarray(y, dtype=object)
    return labels if all(isinstance(label, str) for label in kept.flat) else kept


def in_columns(y: np.ndarray) -> np.ndarray:
    """Return labels of any kind as ``[n, targets]``.

    Raises:
        InputError: They are of another shape, or there are none.
    """
    if y.ndim not in (1, 2):
        raise InputError(
            f"y is of shape {y.shape}: give a label for each molecule, or one column for each "
            "target"
        )
    if not y.size:
        raise InputError("y holds no labels: give those of two molecules or more")
    return y.reshape(len(y), -1)


def classes_of(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes of labels ``[n]``, sorted, and the number of each label's class.

    Raises:
        InputError: They are no classes, or one is missing, or of a kind that cannot be compared.
    """
    try:
        check_classification_targets(y)
        return np.unique(y, return_inverse=True)
    except (TypeError, ValueError) as error:
        kinds: dict[str, int] = {}
        for row, label in enumerate(y.tolist()):
            kinds.setdefault(type(label).__name__, row)
        if len(kinds) == 1:
            raise InputError(f"y is not of classes ({error})") from error
        shown = ", ".join(f"{kind} (y[{row}])" for kind, row in kinds.items())
        raise InputError(
            f"y holds labels of several kinds, {shown}: every molecule needs a class, all of one "
            "kind, so leave out those without a label"
        ) from error


def class_names(classes: Sequence[Any]) -> tuple[str, ...]:
    """Return what classes are called, as tables call them (1.0 is the class 1), all different."""
    names = [parse_class_name(one) or str(one) for one in classes]
    if len(set(names)) == len(names):
        return tuple(names)
    return distinct(str(one).strip() for one in classes)  # 01 and 1 are one class to a table


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


def weights_of(weights: Any, molecules: int) -> np.ndarray:
    """Return weights as float64 ``[molecules]``; one number is that of all.

    Raises:
        InputError: They are no numbers, negative or not finite, or of another number.
    """
    array = _numbers(weights, "sample_weight")
    array = np.full(molecules, array) if array.ndim == 0 else array.reshape(-1)
    if len(array) != molecules:
        raise InputError(f"sample_weight has {len(array)} values for {molecules} molecules")
    if not (np.isfinite(array) & (array >= 0)).all():
        raise InputError("sample_weight must be finite, and 0 or more")
    return array


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of which none is there twice: another a is a_2."""
    found: list[str] = []
    for name in names:
        found.append(free_name(name, found) if name in found else name)
    return tuple(found)


def names_of(y: Any) -> tuple[str, ...]:
    """Return what the targets are called: as their columns in pandas, or y, or y_0, y_1, ..."""
    shape = np.shape(y)
    count = shape[1] if len(shape) == 2 else 1
    named = getattr(y, "columns", None)
    if named is not None:
        return distinct(map(str, named))
    if getattr(y, "name", None) is not None:
        return (str(y.name),)
    return tuple(f"y_{target}" for target in range(count)) if count > 1 else ("y",)
