"""How numbers beside a graph are standardized, and what is said where they are missing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from reference.molecules import molecule

from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.graphs.extra_inputs import in_report, standardization
from graphormer_sepnorm.graphs.packed_graphs import packed_blocks
from graphormer_sepnorm.graphs.resident import BatchShape, ResidentGraphs
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary


@pytest.mark.parametrize(("number", "least"), [(50, 0.35), (100, 0.75), (1000, 0.97)])
@pytest.mark.parametrize("outlier", [20.0, 1e6, -3e38])
def test_an_outlier_leaves_the_others_as_far_apart_as_they_are(number, least, outlier):
    values = np.random.default_rng(0).normal(300, 10, (number, 2)).astype(np.float32)
    values[::7, 0] = np.nan
    values[3] = outlier
    others = np.arange(number) != 3
    mean, factor = standardization(values)
    scores = (values - mean) * factor
    # The outlier still counts as six deviations, which of 86 values is a quarter of the spread.
    spread = np.nanstd(scores[others], axis=0)
    assert ((spread > least) & (spread < 1.01)).all()
    assert (np.abs(np.nanmean(scores[others], axis=0)) < 9 / number + 0.02).all()
    assert (np.abs(scores[3]) > 6).all()


def test_a_rare_flag_keeps_a_factor() -> None:
    """Also where it is not quite constant, and where the rare values are enormous."""
    values = np.zeros((1000, 3))
    values[:2, 0] = 1
    values[:, 1] = 7 + np.random.default_rng(0).normal(0, 1e-9, 1000)
    values[:2, 1] = 8
    values[:2, 2] = 1e30, -1e30
    factor = standardization(values)[1]
    plain = 1 / values.std(axis=0)
    assert ((factor > plain) & (factor < 20 * plain)).all()


def test_what_says_nothing_is_left_out() -> None:
    columns = np.array([[np.nan, 7.4, 1 / 3, 1], [np.nan, np.nan, 1 / 3 + 1e-9, 2]], np.float64)
    mean, factor = standardization(columns)
    assert factor.tolist() == [0, 0, 0, 2]
    assert mean.tolist() == pytest.approx([0, 7.4, 1 / 3, 1.5])


def test_missing_numbers_are_named() -> None:
    names = ("pH", "T", "c")
    values = np.array([[7, 298, 1], [np.nan, 310, 1], [8, 298, 1]])
    _, factors = standardization(values)
    assert in_report(names, values, factors) == [
        "missing, the training mean stands for it: pH of 1 molecules",
        "one value throughout the training split: c",
    ]
    assert in_report(names, values[:1], np.ones(3)) == []


def test_numbers_go_with_their_graphs(tmp_path: Path) -> None:
    """Through packing, the disk, and both ways of making a batch."""
    (packed,) = packed_blocks(map(molecule, ("CC", "CCCC", "CCO")))
    values = np.array([[1, np.nan], [2, 20], [3, 30]], np.float32)
    bounds = values[::-1]
    ones = {"weights": np.float32([1, 2, 3]), "targets": np.float32([[4], [5], [6]])}
    given = replace(packed, extra=values, bounds=bounds, **ones).take([2, 0, 1])
    stores = [
        GraphStore.open_or_build(tmp_path / "store", {}, lambda: [given], 3) for _ in range(2)
    ]
    vocabulary = GraphVocabulary.fit(stores[0], [0, 1, 2])
    for store in stores:
        np.testing.assert_array_equal(store.extra, values[[2, 0, 1]])
        assert store.weights.tolist() == [3, 1, 2]
        assert store.targets.tolist() == [[6], [4], [5]]
        shape = BatchShape.of(store.num_atoms(np.array([2, 1])))
        resident = ResidentGraphs(store, vocabulary, "cpu").batch(torch.tensor([2, 1]), shape)
        for batch in (Collator(store, vocabulary)([2, 1]), resident):
            np.testing.assert_array_equal(batch.extra, values[[1, 0]])
            np.testing.assert_array_equal(batch.bounds, bounds[[1, 0]])
