"""A network blended with trees: what it predicts, how it is weighed, what a checkpoint keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rdkit import Chem
from reference.checkpoints import make_checkpoint
from reference.damage import replaced
from reference.trees import COLUMNS, boosted_trees

from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.inference import stream
from graphormer_sepnorm.inference.blend import Blend, choose_weight
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.inference.tree_contents import BLEND

SMILES = ["CCO", "CCN", "c1ccccc1O", "CC(C)CO", "CNC", "OCCO"]
TWO = {"targets": ("a", "b")}


def blended(weight: float, kind: Any = "regression", without: int | None = None) -> dict[str, Any]:
    """A checkpoint of two targets."""
    trees, _ = boosted_trees(kind, targets=2, without=without)
    blend = Blend.of_trees(trees, weight)
    return make_checkpoint(kind=kind, **TWO) | {BLEND: blend.to_plain()}


@pytest.mark.parametrize("kind", ["regression", "binary"])
def test_values_are_the_weighted_mean(kind: Any) -> None:
    torch.manual_seed(0)
    checkpoint = blended(0.3, kind)
    alone = {name: value for name, value in checkpoint.items() if name != BLEND}
    network = Predictor(alone, "cpu").predict(SMILES).values
    features = COLUMNS.of_molecules([Chem.MolFromSmiles(text) for text in SMILES])
    trees = boosted_trees(kind, targets=2)[0].predict(features)
    found = Predictor(checkpoint, "cpu").predict(["", *SMILES, "C1CC", "CCCl"])
    assert np.abs(network - trees).min() > 1e-3
    np.testing.assert_allclose(found.values[1:7], 0.3 * network + 0.7 * trees, rtol=1e-9)
    assert [bool(error) for error in found.errors] == [True, *[False] * 6, True, True]
    # A molecule is what it is, in whatever company.
    one = Predictor(checkpoint, "cpu").predict(SMILES[3]).values
    np.testing.assert_allclose(one[0], found.values[4], rtol=1e-5)


def test_a_target_without_trees_is_the_networks() -> None:
    torch.manual_seed(0)
    checkpoint = blended(0.0, without=1)
    alone = {name: value for name, value in checkpoint.items() if name != BLEND}
    network, both = (Predictor(one, "cpu").predict(SMILES).values for one in (alone, checkpoint))
    np.testing.assert_array_equal(both[:, 1], network[:, 1])
    assert (both[:, 0] != network[:, 0]).all()


def test_without_weight_no_descriptor_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = Predictor(blended(1.0), "cpu")
    monkeypatch.setattr("graphormer_sepnorm.chem.tree_features._raw", None)
    assert not any(predictor.predict(SMILES).errors)


def test_processes_and_a_file_give_the_same_values(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(stream, "CHUNK_ROWS", 2)
    torch.manual_seed(0)
    torch.save(blended(0.4), model := tmp_path / "a.ckpt")
    (tmp_path / "in.csv").write_text("\n".join(["smiles", *SMILES]))
    for jobs in (1, 2):
        where = ["-o", str(tmp_path / f"{jobs}.csv"), "--jobs", str(jobs), "--quiet"]
        assert predict([str(model), "-i", str(tmp_path / "in.csv"), *where]) == 0
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()
    written = np.loadtxt(tmp_path / "1.csv", delimiter=",", skiprows=1, usecols=(1, 2))
    values = Predictor.load(model, "cpu").predict(SMILES).values
    np.testing.assert_allclose(written, values, rtol=1e-5)
    found = Blend.from_plain(read_checkpoint(model)[BLEND]).trees_of_smiles(SMILES)
    features = COLUMNS.of_molecules([Chem.MolFromSmiles(text) for text in SMILES])
    np.testing.assert_array_equal(found, boosted_trees(targets=2)[0].predict(features))


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("weights",), [0.5], "blend.weights is of 1 targets, task.targets of 2"),
        (("weights",), [0.5, 1.5], r"blend.weights\[1\] is 1.5, expected a number from 0 to 1"),
        (("trees", "logistic"), True, "blend.trees are not for regression targets"),
        (("trees", "value"), [1.0], "blend.trees.value is of type list, expected a row of float64"),
        (("trees", "left"), torch.zeros(3, 3), "expected a row of int32"),
        (("trees", "roots"), torch.zeros(1, dtype=torch.int32), "has 1 roots, not one a tree"),
        (("trees", "columns", "medians"), [1.0], "has 1 medians of its descriptors"),
        (("trees", "columns", "environments"), [1, 1], "increasing whole numbers"),
        (("trees", "columns", "descriptors"), ["MolWt", "Fluff"], "has no descriptor Fluff"),
        (("trees", "columns", "environments"), [1, 2, 3, 4, 5, 6, 2048], "not below 2048"),
    ],
)
def test_a_damaged_blend_is_one_line(place: tuple, value: Any, said: str, tmp_path: Path) -> None:
    torch.save(replaced(blended(0.5), (BLEND, *place), value), path := tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match=said) as caught:
        Predictor.load(path, "cpu")
    assert str(path) in str(caught.value)


def labelled(kind: Any, rows: int = 100) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels ``[n, 1]``, and two predictions that are wrong independently, the first less so."""
    random = np.random.default_rng(0)
    labels = random.normal(size=(rows, 1))
    network, trees = (labels + random.normal(size=(rows, 1)) * noise for noise in (1.0, 1.2))
    if kind == "binary":
        return (labels > 0).astype(float), *(1 / (1 + np.exp(-x)) for x in (network, trees))
    return labels, network, trees


@pytest.mark.parametrize("kind", ["regression", "binary"])
def test_the_weight_has_the_smallest_loss(kind: Any) -> None:
    labels, network, trees = labelled(kind)
    weight = choose_weight(kind, labels, network, trees, np.ones(1))
    losses = {}
    for tenth in range(11):
        values = tenth / 10 * network + (1 - tenth / 10) * trees
        loss = (values - labels) ** 2
        if kind == "binary":
            loss = -labels * np.log(values) - (1 - labels) * np.log(1 - values)
        losses[tenth / 10] = loss.mean()
    best = min(losses, key=lambda one: losses[one])
    # 100 labels against as many as 200 that ask for the half.
    assert weight == round((100 * best + 200 * 0.5) / 300, 2) != 0.5
    assert choose_weight(kind, labels, labels, trees, np.ones(1)) == round(200 / 300, 2)
    assert choose_weight(kind, labels, network, labels, np.ones(1)) == round(100 / 300, 2)


def test_targets_count_by_their_deviation_and_only_where_there_are_trees() -> None:
    labels, network, trees = labelled("regression")
    own = choose_weight("regression", labels, network, trees, np.ones(1))
    # Of the second target, in other units, the trees are the better ones.
    both = [np.hstack([one, 1000 * two]) for one, two in ((labels, labels), (network, trees))]
    both.append(np.hstack([trees, 1000 * network]))
    assert choose_weight("regression", *both, np.array([1.0, 1000.0])) == 0.5
    both[2][:, 1] = np.nan
    assert choose_weight("regression", *both, np.array([1.0, 1000.0])) == own


@pytest.mark.parametrize("side", [0, 1])
def test_what_lies_beyond_a_bound_costs_nothing(side: int) -> None:
    labels, network, trees = labelled("regression")
    hidden = labels < -0.5 if side else labels > 0.5
    some = np.where(hidden, np.nan, labels)
    bounds = np.full((100, 2), np.nan)
    bounds[:, [side]] = np.where(hidden, -0.5 if side else 0.5, np.nan)
    weight = choose_weight("regression", some, network, trees, np.ones(1), bounds)
    losses = {}
    for tenth in range(11):
        values = tenth / 10 * network + (1 - tenth / 10) * trees
        errors = values - labels
        short = values + 0.5 if side else 0.5 - values  # of the bound
        losses[tenth / 10] = (np.where(hidden, np.maximum(short, 0), errors) ** 2).mean()
    best = min(losses, key=lambda one: losses[one])
    assert weight == round((100 * best + 200 * 0.5) / 300, 2)
    # Trees that differ only by staying before the bound: nothing but that asks for the network.
    near = np.where(hidden, bounds[:, [side]] + (1 if side else -1), network)
    assert choose_weight("regression", some, network, near, np.ones(1)) < 0.5
    assert choose_weight("regression", some, network, near, np.ones(1), bounds) > 0.5


def test_few_labels_change_little() -> None:
    labels, network, trees = labelled("regression", 2000)
    chosen = {}
    for rows in (2, 20, 200, 2000):
        some = labels.copy()
        some[rows:] = np.nan
        chosen[rows] = choose_weight("regression", some, labels, trees, np.ones(1))
    assert chosen == {2: 0.5, 20: 0.55, 200: 0.75, 2000: 0.95}
    nothing = np.full_like(trees, np.nan)
    assert choose_weight("regression", labels, labels, nothing, np.ones(1)) == 0.5
    assert choose_weight("regression", nothing, labels, trees, np.ones(1)) == 0.5
    network[3] = np.inf
    assert choose_weight("regression", labels, network, trees, np.ones(1)) == 0.5
