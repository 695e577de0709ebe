"""What predictions come with: the names of their columns, and what is in them."""

import numpy as np
import pytest
from rdkit import Chem
from reference.checkpoints import make_checkpoint
from reference.confidence import fingerprints

from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import CONFIDENCE
from graphormer_sepnorm.inference.predictions import estimate_uncertainty
from graphormer_sepnorm.inference.predictor import LEVEL, Predictor
from graphormer_sepnorm.uncertainty.conformal import Intervals
from graphormer_sepnorm.uncertainty.domain import Domain, Neighbors
from graphormer_sepnorm.uncertainty.uncertainty import Inputs, Uncertainty


def test_as_many_neighbors_are_named_as_there_are() -> None:
    smiles = ["CCO", "CCCO", "CCCCO", "CCN", "CCCN", "c1ccccc1"]
    labels = np.array([[1.5], [np.nan], [3], [4], [5], [6]])
    sketch = Neighbors.of(fingerprints(smiles), np.arange(6), smiles, labels)
    uncertainty = Uncertainty((None,), Domain(0.0, 0.0, 0), sketch)
    task = Task("regression", ("pK_{a}",), ("",), "mae")
    molecules, inputs = [Chem.MolFromSmiles("CCO")], Inputs(np.zeros((1, 1)))
    _, cells, _ = estimate_uncertainty(uncertainty, task, inputs, molecules, [""], None, 7)
    named = {name: cell for name, (cell,) in cells.items()}
    places = range(1, 7)  # and no seventh
    each = [(f"nearest_{n}", f"similarity_{n}", f"nearest_pK_{{a}}_{n}") for n in places]
    assert [*named] == ["in_domain", *(name for names in each for name in names)]
    assert named["in_domain"] == ""  # there is no border
    nearest = [named[f"nearest_{n}"] for n in places]
    assert nearest[0] == "CCO"
    assert sorted(nearest) == sorted(smiles)
    shown = dict(zip(smiles, ("1.5", "", "3", "4", "5", "6"), strict=True))
    assert [named[f"nearest_pK_{{a}}_{n}"] for n in places] == [shown[text] for text in nearest]
    assert named["similarity_1"] == "1.000"


@pytest.mark.parametrize(("labels", "level"), [(8, None), (9, LEVEL)])
def test_intervals_come_unasked_where_there_are_labels_enough(labels: int, level: object) -> None:
    one = Intervals.fit(np.ones(labels), np.empty((labels, 0)), np.zeros(labels), 1.0)
    checkpoint = make_checkpoint() | {CONFIDENCE: Uncertainty((one,)).to_plain()}
    assert Predictor(checkpoint, "cpu").interval == level
