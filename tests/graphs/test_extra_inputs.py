"""How numbers beside a graph are standardised, and what is said where they are missing."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from reference.molecules import molecule

from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs, standardisation
from graphormer_sepnorm.graphs.packed_graphs import packed_blocks
from graphormer_sepnorm.graphs.resident import BatchShape, ResidentGraphs
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary


def literal(column: list[float]) -> tuple[float, float]:
    """Mean and deviation of the values there are, those beyond six deviations taken as six."""
    known = [value for value in column if not math.isnan(value)]
    for _ in range(2):
        mean = sum(known) / len(known)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in known) / len(known))
        known = [min(max(value, mean - 6 * deviation), mean + 6 * deviation) for value in known]
    return mean, deviation


def test_standardisation_restated() -> None:
    values = np.random.default_rng(0).normal([300.0, -4e-9, 5e12], [10, 1e-9, 1e12], (200, 3))
    values[::7, 0] = np.nan
    values[3, 1] = 1.0  # a billion deviations away: without it the others would all be the mean
    values = values.astype(np.float32)
    mean, factor = standardisation(values)
    for place, column in enumerate(values.astype(np.float64).T):
        wanted, deviation = literal(column.tolist())
        assert mean[place] == pytest.approx(wanted, rel=1e-9)
        assert 1 / factor[place] == pytest.approx(deviation, rel=1e-9)


def test_what_says_nothing_is_left_out() -> None:
    columns = np.array([[np.nan, 7.4, 1 / 3, 1], [np.nan, np.nan, 1 / 3 + 1e-9, 2]], np.float64)
    mean, factor = standardisation(columns)
    assert factor.tolist() == [0, 0, 0, 2]
    assert mean.tolist() == pytest.approx([0, 7.4, 1 / 3, 1.5])


def test_missing_numbers_are_named() -> None:
    inputs = ExtraInputs(("MolWt", "TPSA"), ("pH", "T", "c"))
    values = np.array([[1, 2, 7, 298, 1], [np.nan, 2, np.nan, 310, 1], [np.nan, 3, 8, 298, 1]])
    assert inputs.remarks(values[0]) == []
    assert inputs.remarks(values[1]) == ["training means in place of pH, 1 of 2 descriptors"]
    _, factors = standardisation(values)
    assert inputs.in_report(values, factors) == [
        "missing, the training mean stands for it: pH of 1, descriptors of 2 molecules",
        "one value throughout the training split: c",
    ]
    assert inputs.in_report(values[:1], np.ones(5)) == []


def test_numbers_go_with_their_graphs(tmp_path: Path) -> None:
    """Through packing, the disk, and both ways of making a batch."""
    (packed,) = packed_blocks(map(molecule, ("CC", "CCCC", "CCO")))
    values = np.array([[1, np.nan], [2, 20], [3, 30]], np.float32)
    bounds = values[::-1]
    given = replace(packed, extra=values, bounds=bounds).take([2, 0, 1])
    stores = [
        GraphStore.open_or_build(tmp_path / "store", {}, lambda: [given], 3) for _ in range(2)
    ]
    vocabulary = GraphVocabulary.fit(stores[0], [0, 1, 2])
    for store in stores:
        np.testing.assert_array_equal(store.extra, values[[2, 0, 1]])
        shape = BatchShape.of(store.num_atoms(np.array([2, 1])))
        resident = ResidentGraphs(store, vocabulary, "cpu").batch(torch.tensor([2, 1]), shape)
        for batch in (Collator(store, vocabulary)([2, 1]), resident):
            np.testing.assert_array_equal(batch.extra, values[[1, 0]])
            np.testing.assert_array_equal(batch.bounds, bounds[[1, 0]])
