"""Names of the columns that stand beside predictions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.beside import Asked, Beside


def test_the_name_of_a_target_is_no_pattern() -> None:
    sketch = SimpleNamespace(smiles=("C",), labels=np.zeros((1, 1)))
    confidence: Any = SimpleNamespace(neighbours=sketch, tokens=None, highest_level=0.9)
    task = Task("regression", ("pK_{a}",), ("",), "mae")
    names = Beside(Asked(neighbours=2), confidence, task).text_columns
    assert names == (
        "in_domain",
        *("nearest_1", "similarity_1", "nearest_pK_{a}_1"),
        *("nearest_2", "similarity_2", "nearest_pK_{a}_2"),
    )
