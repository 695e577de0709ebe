"""A network blended with trees: what it predicts, how it is weighed, what a checkpoint keeps."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rdkit import Chem
from reference.checkpoints import make_checkpoint, replaced
from reference.trees import COLUMNS, boosted_trees

from graphormer_sepnorm.baselines.blend import Blend, Stacking, fit_stacking, fit_weight, log_odds
from graphormer_sepnorm.baselines.features import raw_features
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.inference.checkpoint import BLEND, joined
from graphormer_sepnorm.inference.predictor import Predictor

SMILES = ["CCO", "CCN", "c1ccccc1O", "CC(C)CO", "CNC", "OCCO"]
TWO = {"targets": ("a", "b")}


def blended(weight: float, kind: Any = "regression", without=None, stacking=None) -> dict[str, Any]:
    """A checkpoint of two targets."""
    trees, _ = boosted_trees(kind, targets=2, without=without)
    blend = Blend.of_trees(trees, weight, stacking=stacking)
    return make_checkpoint(kind=kind, **TWO) | {BLEND: blend.to_plain()}


def alone_and_trees(checkpoint: dict[str, Any], kind: Any) -> tuple[np.ndarray, np.ndarray]:
    """What the network, and what its trees say of `SMILES`."""
    alone = {name: value for name, value in checkpoint.items() if name != BLEND}
    raw = raw_features([Chem.MolFromSmiles(text) for text in SMILES], COLUMNS.descriptors)
    trees = Blend.from_plain(checkpoint[BLEND]).trees.predict(COLUMNS.of(raw))
    return Predictor(alone, "cpu").predict(SMILES).values, trees


@pytest.mark.parametrize("kind", ["regression", "binary"])
def test_values_are_the_weighted_mean(kind: Any) -> None:
    torch.manual_seed(0)
    checkpoint = blended(0.3, kind)
    network, trees = alone_and_trees(checkpoint, kind)
    found = Predictor(checkpoint, "cpu").predict(["", *SMILES, "C1CC", "CCCl"])
    assert np.abs(network - trees).min() > 1e-3
    np.testing.assert_allclose(found.values[1:7], 0.3 * network + 0.7 * trees, rtol=1e-9)
    assert [bool(error) for error in found.errors] == [True, *[False] * 6, True, True]
    # A molecule is what it is, in whatever company.
    one = Predictor(checkpoint, "cpu").predict(SMILES[3]).values
    np.testing.assert_allclose(one[0], found.values[4], rtol=1e-5)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_of_classes_log_odds_are_weighed(weight: float) -> None:
    torch.manual_seed(0)
    stacking = Stacking(1.4, np.array([0.5, -0.7]))
    checkpoint = blended(weight, "binary", without=1, stacking=stacking)
    network, trees = alone_and_trees(checkpoint, "binary")
    found = Predictor(checkpoint, "cpu").predict(SMILES).values
    p, q = network[:, 0], trees[:, 0]
    ratio = ((p / (1 - p)) ** weight * (q / (1 - q)) ** (1 - weight)) ** 1.4 * np.exp(0.5)
    np.testing.assert_allclose(found[:, 0], ratio / (1 + ratio), rtol=1e-6)
    # Of a target without trees nothing is known that the network does not say.
    np.testing.assert_array_equal(found[:, 1], network[:, 1])


@pytest.mark.parametrize("stacking", [None, Stacking(1.4, np.array([0.5, -0.7]))])
def test_members_of_an_ensemble_stand_beside_the_same_trees(stacking: Stacking | None) -> None:
    trees, _ = boosted_trees("binary", targets=2, without=1)
    plain = Blend.of_trees(trees, 0.3, stacking=stacking).to_plain()
    members = {f"member {number}": make_checkpoint(kind="binary", **TWO) for number in range(3)}
    each = [
        Predictor(one | {BLEND: plain}, "cpu").predict(SMILES).values for one in members.values()
    ]
    networks = np.stack([Predictor(one, "cpu").predict(SMILES).values for one in members.values()])
    found = Predictor(joined(members) | {BLEND: plain}, "cpu").predict(SMILES)
    np.testing.assert_allclose(found.spread, np.std(each, axis=0, ddof=1), rtol=1e-6)
    if stacking is None:
        np.testing.assert_allclose(found.values, np.mean(each, axis=0), rtol=1e-6)
        return
    # The mean of their log-odds, and so of the blend's; of the second target it is theirs.
    odds = [np.log(one[:, 0] / (1 - one[:, 0])) for one in each]
    np.testing.assert_allclose(found.values[:, 0], 1 / (1 + np.exp(-np.mean(odds, axis=0))))
    np.testing.assert_allclose(found.values[:, 1], networks[:, :, 1].mean(axis=0))


def test_classes_of_which_a_molecule_is_of_one_add_up_to_1() -> None:
    trees, _ = boosted_trees("binary", targets=3, without=2)
    stacking = Stacking(1.4, np.array([0.5, -0.7, 0.0]))
    blend = Blend.of_trees(trees, 0.3, exclusive=True, stacking=stacking)
    random = np.random.default_rng(0)
    networks, said = random.dirichlet(np.ones(3), (2, 9)), random.uniform(0.01, 0.9, (9, 3))
    values, spread = blend.combined(networks, said)
    np.testing.assert_allclose(values.sum(axis=1), 1)
    each = [blend.combined(one[None], said)[0] for one in networks]
    np.testing.assert_allclose(spread, np.std(each, axis=0, ddof=1))
    apart = dataclasses.replace(blend, exclusive=False).combined(networks, said)[0]
    np.testing.assert_allclose(values, apart / apart.sum(axis=1, keepdims=True))


def test_probabilities_of_0_and_1_say_no_more_than_numbers_can() -> None:
    blend = Blend.of_trees(boosted_trees("binary")[0], 0.5, stacking=Stacking(1.0, np.zeros(1)))
    network, trees = np.array([[0.0], [1.0], [0.0]]), np.array([[0.0], [1.0], [1.0]])
    values, spread = blend.combined(network[None], trees)
    np.testing.assert_allclose(values[:, 0], [1e-6, 1 - 1e-6, 0.5], rtol=1e-6)
    assert spread is None


def test_a_descriptor_that_this_rdkit_lacks_is_one_line(tmp_path: Path) -> None:
    place = (BLEND, "trees", "columns", "descriptors")
    torch.save(replaced(blended(0.5), place, ["MolWt", "Fluff"]), path := tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match="has no descriptor Fluff") as caught:
        Predictor.load(path, "cpu")
    assert str(path) in str(caught.value)


def labeled(rows: int = 100) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels ``[n, 1]``, and two predictions that are wrong independently, the first less so."""
    random = np.random.default_rng(0)
    labels = random.normal(size=(rows, 1))
    network, trees = (labels + random.normal(size=(rows, 1)) * noise for noise in (1.0, 1.2))
    return labels, network, trees


def test_each_target_counts_alike_and_the_one_with_fewest_labels_says_how_much() -> None:
    labels, network, _ = labeled()
    noise = network - labels
    some = np.hstack([labels, labels])
    some[20:, 1] = np.nan
    both = np.hstack([labels, labels + 2 * noise]), np.hstack([labels + noise, labels])
    # The loss is (1 - w)² and w² of these.
    of_trees, of_network = (noise**2).mean(), 4 * (noise[:20] ** 2).mean()
    best = round(10 * of_trees / (of_trees + of_network)) / 10
    common = round((20 * best + 200 * 0.5) / 220, 2)
    assert common < 0.49
    # The network is right about the first target, the trees are about the second.
    expected = [round((100 + 200 * common) / 300, 2), round(200 * common / 220, 2)]
    assert fit_weight(some, *both, np.ones(2)).tolist() == expected


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("limit", [0.5, 9.0])  # beyond the latter there is nothing
def test_the_weight_has_the_smallest_loss_and_beyond_a_bound_nothing_costs(side, limit):
    labels, network, trees = labeled()
    hidden = labels < -limit if side else labels > limit
    some = np.where(hidden, np.nan, labels)
    bounds = np.full((100, 2), np.nan)
    bounds[:, [side]] = np.where(hidden, -limit if side else limit, np.nan)
    weight = fit_weight(some, network, trees, np.ones(1), bounds[:, None])
    losses = {}
    for tenth in range(11):
        values = tenth / 10 * network + (1 - tenth / 10) * trees
        errors = values - labels
        short = values + limit if side else limit - values  # of the bound
        losses[tenth / 10] = (np.where(hidden, np.maximum(short, 0), errors) ** 2).mean()
    best = min(losses, key=lambda one: losses[one])
    # 100 labels against as many as 200 that ask for the half.
    assert weight == round((100 * best + 200 * 0.5) / 300, 2) != 0.5
    if not hidden.any():
        return
    # Trees that differ only by staying before the bound: nothing but that asks for the network.
    near = np.where(hidden, bounds[:, [side]] + (1 if side else -1), network)
    assert fit_weight(some, network, near, np.ones(1)) < 0.5
    assert fit_weight(some, network, near, np.ones(1), bounds[:, None]) > 0.5


def test_few_labels_change_little() -> None:
    labels, network, trees = labeled(2000)
    chosen = {}
    for rows in (2, 20, 200, 2000):
        some = labels.copy()
        some[rows:] = np.nan
        chosen[rows] = fit_weight(some, labels, trees, np.ones(1))
    assert chosen == {2: 0.5, 20: 0.55, 200: 0.75, 2000: 0.95}
    nothing = np.full_like(trees, np.nan)
    assert fit_weight(labels, labels, nothing, np.ones(1)) == 0.5
    assert fit_weight(nothing, labels, trees, np.ones(1)) == 0.5
    network[3] = np.inf
    assert fit_weight(labels, network, trees, np.ones(1)) == 0.5


def classes(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels of two targets, of which some are missing, and probabilities that are not right."""
    random = np.random.default_rng(0)
    hidden = random.normal(size=(rows, 2))
    labels = (hidden + random.logistic(size=(rows, 2)) > 0.5).astype(float)
    labels[random.random((rows, 2)) < 0.2] = np.nan
    # The network is not sure enough and finds the class too frequent, the trees are too sure.
    network = 0.3 * (hidden + 0.6 * random.normal(size=(rows, 2))) + 1
    trees = 2.5 * (hidden + 1.2 * random.normal(size=(rows, 2)))
    network, trees = (1 / (1 + np.exp(-odds)) for odds in (network, trees))
    return labels, network, trees


def several(network: np.ndarray) -> np.ndarray:
    """Three networks with a mean of log-odds that is that of one."""
    odds = np.log(network / (1 - network))
    return 1 / (1 + np.exp(-odds + np.array([-1.0, 0.3, 0.7])[:, None, None]))


@pytest.mark.parametrize(("rows", "exclusive"), [(20, False), (300, False), (300, True)])
def test_the_weights_of_classes_are_the_likeliest(rows: int, exclusive: bool) -> None:
    """By the plain sum over labels, which no neighbor makes smaller."""
    labels, network, trees = classes(rows)
    weight, stacking = fit_stacking(labels, several(network), trees, exclusive)
    slope, constants = stacking.slope, stacking.constants

    def loss(weight: float, slope: float, constants: np.ndarray) -> float:
        found = 0.0
        for (row, target), label in np.ndenumerate(labels):
            if not np.isnan(label):
                p, q = network[row, target], trees[row, target]
                odds = weight * np.log(p / (1 - p)) + (1 - weight) * np.log(q / (1 - q))
                right = 1 / (1 + np.exp(-slope * odds - constants[target]))
                found -= np.log(right if label else 1 - right) / (2 if exclusive else 1)
        for slopes in (weight * slope, (1 - weight) * slope):
            found += (slopes - 0.5) ** 2 / (2 * 0.15**2)
        return float(found + (constants**2).sum() / (2 * 0.5**2))

    least = loss(weight, slope, constants)
    for change in (-0.02, 0.02):
        # The weight is rounded to hundredths.
        assert loss(weight + change, slope, constants) > least
        assert loss(weight, slope + change, constants) > least
        for target in range(2):
            assert loss(weight, slope, constants + change * np.eye(2)[target]) > least


def test_classes_with_nothing_to_choose_by_are_weighed_alike() -> None:
    labels, network, trees = classes(30)
    nothing, networks = np.full_like(labels, np.nan), network[None]
    for weight, stacking in (
        fit_stacking(labels, networks, nothing),
        fit_stacking(labels, np.where(labels == 1, np.nan, networks), trees),
        fit_stacking(labels[:0], networks[:, :0], trees[:0]),
    ):
        assert weight == 0.5
        assert stacking.slope == 1
        assert (stacking.constants == 0).all()
    # Trees of one target alone.
    trees[:, 1] = np.nan
    both = fit_stacking(labels, networks, trees)
    alone = fit_stacking(labels[:, :1], networks[:, :, :1], trees[:, :1])
    assert both[0] == alone[0]
    assert both[1].slope == pytest.approx(alone[1].slope, rel=1e-3)
    assert both[1].constants[1] == 0


def test_models_that_are_worse_than_chance_keep_their_order() -> None:
    labels, network, trees = classes(3000)
    weight, stacking = fit_stacking(1 - labels, network[None], trees)
    blend = Blend.of_trees(boosted_trees("binary", targets=2)[0], weight, stacking=stacking)
    assert stacking.slope == pytest.approx(0.02)
    found = blend.combined(network[None], trees)[0][:, 0]
    odds = weight * log_odds(network[:, 0]) + (1 - weight) * log_odds(trees[:, 0])
    np.testing.assert_array_equal(np.argsort(found), np.argsort(odds))
