"""The paper's numbers, as they are quoted beside ours."""

from __future__ import annotations

import math

import pytest

from graphormer_sepnorm.compare.paper import in_words, relative_percent


@pytest.mark.parametrize(
    ("dataset", "percent", "words"),
    [
        ("zinc", -24.6, "MAE 0.069 to 0.052"),
        ("zinc-subset", -12.2, "MAE 0.164 to 0.144"),
        ("ogbg-molhiv", 3.1, "ROC-AUC 73.36 % to 75.64 %, +2.28 points"),
        ("esol", math.nan, None),
    ],
)
def test_numbers_of_the_paper(dataset: str, percent: float, words: str | None) -> None:
    assert relative_percent(dataset) == pytest.approx(percent, nan_ok=True)
    assert in_words(dataset) == words
