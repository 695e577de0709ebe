"""What stands beside predictions: names of its columns, and what is in them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from graphormer_sepnorm.inference.beside import LEVEL, Asked, Beside
from rdkit import Chem
from reference.confidence import fingerprints

from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.predictions import Predictions
from graphormer_sepnorm.uncertainty.conformal import Intervals
from graphormer_sepnorm.uncertainty.domain import Domain, Neighbors
from graphormer_sepnorm.uncertainty.uncertainty import Inputs, Uncertainty


def texts_of(beside: Beside, values: list[list[float]], smiles: str = "CCO") -> Any:
    nothing = ("",) * len(values)
    predictions = Predictions((), np.array(values), nothing, nothing)
    molecules = [Chem.MolFromSmiles(smiles)] * len(values)
    return beside.added(predictions, Inputs(predictions.values), molecules).texts


def test_the_name_of_a_target_is_no_pattern() -> None:
    sketch = SimpleNamespace(smiles=("C",), labels=np.zeros((1, 1)))
    confidence: Any = SimpleNamespace(
        neighbours=sketch, tokens=None, highest_level=0.9, expects_errors=False
    )
    task = Task("regression", ("pK_{a}",), ("",), "mae")
    names = Beside(Asked(neighbours=2), confidence, task).text_columns
    assert names == (
        "in_domain",
        *("nearest_1", "similarity_1", "nearest_pK_{a}_1"),
        *("nearest_2", "similarity_2", "nearest_pK_{a}_2"),
    )


def test_as_many_neighbours_are_named_as_there_are() -> None:
    smiles = ["CCO", "CCCO", "CCCCO", "CCN", "CCCN", "c1ccccc1"]
    labels = np.array([[1.5], [np.nan], [3], [4], [5], [6]])
    sketch = Neighbors.of(fingerprints(smiles), np.arange(6), smiles, labels)
    confidence = Uncertainty((None,), Domain(0.0, 0.0, 0), sketch)
    task = Task("regression", ("a",), ("",), "mae")
    beside = Beside(Asked(neighbours=7), confidence, task)
    (row,) = texts_of(beside, [[0.0]])
    named = dict(zip(beside.text_columns, row, strict=True))
    assert named["in_domain"] == ""  # there is no border
    nearest = [named[f"nearest_{number}"] for number in range(1, 8)]
    assert nearest[0] == "CCO"
    assert sorted(nearest) == ["", *sorted(smiles)]
    shown = dict(zip(smiles, ("1.5", "", "3", "4", "5", "6"), strict=True)) | {"": ""}
    for number, text in enumerate(nearest, start=1):
        assert named[f"nearest_a_{number}"] == shown[text]
    assert (named["similarity_1"], named["similarity_7"]) == ("1.000", "")


@pytest.mark.parametrize(("labels", "level"), [(8, None), (9, LEVEL)])
def test_intervals_come_unasked_where_there_are_labels_enough(labels: int, level: Any) -> None:
    one = Intervals.fit(np.ones(labels), np.empty((labels, 0)), np.zeros(labels), 1.0)
    task = Task("regression", ("a",), ("",), "mae")
    assert Asked.by_default(Uncertainty((one,)), task).interval == level
