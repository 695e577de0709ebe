"""The file test_predictions.csv of a run: what its best checkpoint says of each test molecule."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.runs.directory import RunDirectory


def write_test_predictions(
    run: RunDirectory,
    data: MoleculeDataModule,
    predictions: np.ndarray,
    new_elements: Mapping[int, str],
) -> None:
    """Write a row for each test molecule, in their order.

    ``number`` counts them from 0; of a user's table ``row`` is the row there, as in ``splits.csv``.
    ``smiles`` is there where the data have it. Behind them stand ``label_<target>``, empty where
    one is missing, and ``pred_<target>``: in the unit of the labels, or the probability of class 1.
    ``new_elements`` says which of a molecule's elements training lacks: mostly it is empty, and
    where it is not `predict.py` gives no value.

    Args:
        run: Its directory.
        data: That it was tested on.
        predictions: ``[test molecules, T]``.
        new_elements: By the number of the molecule; others have none.
    """
    splits = data.splits
    columns: dict[str, list] = {"number": list(range(len(predictions)))}
    if splits.report:
        columns["row"] = list(splits.report.splits["test"].rows)
    if splits.smiles:
        columns["smiles"] = splits.smiles["test"]
    labels = data.store.targets[data.indices("test")]
    for name, column in zip(splits.task.targets, labels.T, strict=True):
        columns[f"label_{name}"] = _cells(column)
    for name, column in zip(splits.task.targets, predictions.T, strict=True):
        columns[f"pred_{name}"] = _cells(column)
    columns["new_elements"] = [new_elements.get(number, "") for number in columns["number"]]
    run.write_test_predictions(columns)


def _cells(values: np.ndarray) -> list[str]:
    return ["" if math.isnan(value) else f"{value:.9g}" for value in values.tolist()]
