"""All that a model knows of its errors, together: fitted, kept in a file, asked."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference.checkpoints import make_checkpoint
from reference.confidence import TRAINED, confidence, fingerprints, of_three_classes, sketch_of

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.files import typed
from graphormer_sepnorm.inference.checkpoint import CONFIDENCE, KEY
from graphormer_sepnorm.inference.model_card import describe
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.uncertainty.calibration import Calibration, tempered
from graphormer_sepnorm.uncertainty.domain import TokenDistance
from graphormer_sepnorm.uncertainty.uncertainty import Inputs, Uncertainty

NEW = ["CCCO", "c1ccccc1CN", "OC1CCCC1", "C1CC"]


@pytest.mark.parametrize("kind", ["regression", "binary"])
def test_all_goes_through_a_file(kind: Any, tmp_path: Path) -> None:
    one = confidence(kind, targets=2, spread=True, apart=True, tokens=16)
    torch.save(one.to_plain(), tmp_path / "a")
    again = Uncertainty.from_plain(torch.load(tmp_path / "a", weights_only=True), kind)
    random = np.random.default_rng(1)
    inputs = Inputs(*random.random((3, 3, 2)), random.random(3), fingerprints(NEW[:3]))
    for asked in (
        lambda it: it.calibrated(inputs.values),
        lambda it: np.array(it.sets(inputs.values, 0.9)) == "0/1",
        lambda it: it.intervals(inputs.values, inputs.values, 0.8),
        lambda it: it.expected(inputs, it.nearest(inputs)),
        lambda it: it.nearest(inputs).similarity,
    ):
        np.testing.assert_allclose(asked(again), asked(one), rtol=1e-6)
    assert again.domain == one.domain
    assert again.neighbors.smiles == one.neighbors.smiles
    for name in ("numbers", "labels"):
        np.testing.assert_array_equal(getattr(again.neighbors, name), getattr(one.neighbors, name))
    assert again.tokens.usual == one.tokens.usual


def test_a_target_without_labels_has_none_and_gaps_are_left_out() -> None:
    random = np.random.default_rng(0)
    labels = random.random((60, 3))
    labels[:, 1], labels[10:, 2] = np.nan, np.nan
    inputs = Inputs(random.random((60, 3)))
    made = Uncertainty.fit("regression", labels, inputs, np.arange(60) % 5, np.ones(3), None)
    assert [one and one.labels for one in made.targets] == [60, None, 10]
    expected = made.expected(inputs, None)
    np.testing.assert_array_equal(np.isnan(expected[0]), [False, True, False])
    # Ten labels cannot tell what holds in 19 of 20 cases.
    for level, missing in ((0.8, [False, True, False]), (0.95, [False, True, True])):
        low, high = made.intervals(inputs.values, expected, level)
        np.testing.assert_array_equal(np.isnan(low[0]), missing)
        np.testing.assert_array_equal(np.isnan(high[0]), missing)
    assert made.highest_level == pytest.approx(60 / 61)
    # A target without trees has intervals.
    apart = random.random((60, 3))
    apart[:, 2] = np.nan
    inputs = Inputs(inputs.values, apart=apart)
    made = Uncertainty.fit("regression", labels, inputs, np.arange(60) % 5, np.ones(3), None)
    assert np.isfinite(made.expected(inputs, None)[:, 2]).all()


def test_bounds_of_each_target_go_through_a_file(tmp_path: Path) -> None:
    """The first has an upper limit of 0.5, the second none."""
    random = np.random.default_rng(0)
    labels = random.random((80, 2))
    values = labels + 0.05 * random.standard_normal((80, 2))
    bounds = np.full((80, 2, 2), np.nan)
    bounds[labels[:, 0] > 0.5, 0, 0] = 0.5
    labels[labels[:, 0] > 0.5, 0] = np.nan
    given = ("regression", labels, Inputs(values), np.arange(80) % 5, np.ones(2), None)
    made = Uncertainty.fit(*given, bounds=bounds, limits=[(None, 0.5), (None, None)])
    torch.save(made.to_plain(), tmp_path / "a")
    again = Uncertainty.from_plain(torch.load(tmp_path / "a", weights_only=True), "regression")
    new = np.array([[0.1, 0.1], [0.6, 0.6]])
    expected = again.expected(Inputs(new), None)
    low, high = again.intervals(new, expected, 0.9)
    np.testing.assert_array_equal(np.isinf(high), [[False, False], [True, False]])
    assert low[1, 0] <= 0.5
    np.testing.assert_array_equal(low, made.intervals(new, expected, 0.9)[0])
    known = again.known(new, expected)
    np.testing.assert_array_equal(np.isnan(known), [[False, False], [True, False]])


def test_classes_of_which_a_molecule_is_of_one_are_calibrated_together() -> None:
    """By a temperature alone, also where a class is said too often: they add up to 1."""
    said, labels = of_three_classes(900, 3.0, shift=1.5)
    given = (np.arange(900) % 5, np.ones(3), None)
    made = Uncertainty.fit("binary", labels, Inputs(said), *given, exclusive=True)
    assert made.temperature > 2
    assert [made.calibrated_by(target) for target in range(3)] == ["temperature"] * 3
    new, _ = of_three_classes(50, 3.0, seed=1, shift=1.5)
    values = made.calibrated(new)
    np.testing.assert_allclose(values, tempered(new, made.temperature))
    again = Uncertainty.from_plain(made.to_plain(), "binary")
    np.testing.assert_array_equal(again.calibrated(new), values)
    most = max(max(one.counts) for one in made.targets)  # of the class with more labels
    assert made.highest_level == pytest.approx(most / (most + 1))


def test_what_has_no_signal_does_not_count() -> None:
    """A molecule whose [CLS] is not finite is as if it were not there."""
    random = np.random.default_rng(0)
    labels, values = random.random((2, 60, 1))
    folds, distance = np.arange(60) % 5, random.random(60)
    there = np.arange(60) != 7

    def fitted(rows: np.ndarray, distance: np.ndarray) -> Any:
        inputs = Inputs(values[rows], distance=distance[rows])
        given = ("regression", labels[rows], inputs, folds[rows], np.ones(1), None)
        return Uncertainty.fit(*given, tokens=TokenDistance((), 1.0)).targets[0]

    everywhere = np.full(60, True)
    some, lacking = fitted(there, distance), np.where(there, distance, np.nan)
    np.testing.assert_array_equal(fitted(everywhere, lacking).scores, some.scores)
    assert fitted(everywhere, np.full(60, np.nan)) is None


def test_the_unit_of_a_target_does_not_matter() -> None:
    random = np.random.default_rng(0)
    spread = random.random((200, 1))
    labels = spread * random.standard_normal((200, 1))
    expected = []
    for unit in (1.0, 1000.0):
        inputs = Inputs(np.zeros((200, 1)), unit * spread)
        given = ("regression", unit * labels, inputs, np.arange(200) % 5, np.array([unit]), None)
        expected.append(Uncertainty.fit(*given).expected(inputs, None) / unit)
    np.testing.assert_allclose(expected[1], expected[0], rtol=1e-6)
    assert expected[0].max() > 2 * expected[0].min()


def test_targets_count_for_the_domain_by_their_deviation() -> None:
    """One is predicted badly far from training; of the other, in a small unit, nothing is known."""
    smiles = TRAINED * 2 + ["[Na+]"] * 25
    residuals = np.full((len(smiles), 2), 1000.0)
    residuals[:, 0] = np.where(np.array(smiles) == "[Na+]", 4.0, 0.1)
    inputs = Inputs(np.zeros(residuals.shape), fingerprints=fingerprints(smiles))
    folds, std = np.arange(len(smiles)) % 5, np.array([1.0, 1000.0])
    made = Uncertainty.fit("regression", residuals, inputs, folds, std, sketch_of(TRAINED))
    assert made.domain.border == 0.65
    mean = (residuals / std).mean(axis=1)
    assert made.domain.larger == pytest.approx(mean[-25:].mean() / mean.mean(), abs=0.01)


def test_the_error_of_a_neighbor_is_that_of_the_same_molecule_if_it_was_tried() -> None:
    labels = np.array([[1.0], [-2.0], [4.0]])
    inputs = Inputs(np.zeros((3, 1)), fingerprints=fingerprints(["CO", "CCO", "CCCO"]))
    sketch, own = sketch_of(["CCCO", "CN", "CO"]), np.array([2, 1, 0])
    given = ("regression", labels, inputs, np.arange(3), np.ones(1), sketch)
    made = Uncertainty.fit(*given, own, np.array([2, -1, 0]))
    np.testing.assert_array_equal(made.errors, [[4.0], [np.nan], [1.0]])


def test_errors_of_neighbors_make_an_interval_wide() -> None:
    """A model that is wrong about all anilines expects that of another one, but of no ether."""
    random = np.random.default_rng(0)
    aryl = [f"c1cc({a})ccc1{'C' * n}N" for n in range(6) for a in ("C", "CC", "O", "N", "OC")]
    alkyl = [f"{a}{'C' * n}O" for n in range(6) for a in ("CC", "CCC", "OCC", "NCC", "CC(C)")]
    smiles = 2 * (aryl + alkyl)
    wrong = np.array([["c1" in text] for text in smiles])
    residuals = np.where(wrong, 5.0, 0.1) * random.standard_normal((len(smiles), 1))
    inputs = Inputs(np.zeros((len(smiles), 1)), fingerprints=fingerprints(smiles))
    folds, places = np.tile(np.arange(len(smiles) // 2) % 5, 2), np.arange(len(smiles))
    given = ("regression", -residuals, inputs, folds, np.ones(1), sketch_of(smiles), folds, places)
    made = Uncertainty.fit(*given)
    new = fingerprints(["Cc1ccc(CN)c(C)c1", "CCCCOCO"])
    inputs = Inputs(np.zeros((2, 1)), fingerprints=new)
    few, many = made.nearest(inputs, 1), made.nearest(inputs, 60)
    expected = made.expected(inputs, few)
    assert expected[0, 0] > 5 * expected[1, 0]
    # Whatever number of neighbors is named.
    assert many.rows.shape[1] > few.rows.shape[1]
    np.testing.assert_array_equal(made.expected(inputs, many), expected)


def model(kind: Any = "regression", **options: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    return make_checkpoint(kind=kind) | {CONFIDENCE: confidence(kind, **options).to_plain()}


def network_of(checkpoint: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in checkpoint.items() if name != CONFIDENCE}


def test_real_values_come_with_intervals_similarity_and_domain() -> None:
    predictor = Predictor(model(), "cpu")
    of_target = ("pred", "low", "high", "expected_error")
    found = predictor.predict(NEW)
    assert found.columns == (*(f"{name}_property" for name in of_target), "similarity")
    assert [*found.cells] == ["in_domain"]
    middle = (found.low + found.high) / 2
    np.testing.assert_allclose(middle[:3], found.values[:3], rtol=1e-6)
    assert (found.high > found.low)[:3].all()
    assert all(np.isnan(found.table[name][3]) for name in found.columns)
    assert found.similarity[0] == 1  # it was trained on
    score = predictor.uncertainty.targets[0].score(0.9)
    half = (found.high - found.low)[:3] / 2
    np.testing.assert_allclose(found.expected_error[:3] * score, half, rtol=1e-6)
    assert found.cells["in_domain"][3] == ""
    wider = predictor.configure(interval=0.95).predict(NEW)
    assert (wider.low < found.low)[:3].all()
    without = Predictor(network_of(model()), "cpu")
    np.testing.assert_array_equal(without.predict(NEW).values, found.values)
    assert without.predict([]).columns == ("pred_property",)


def test_far_molecules_have_wide_intervals_and_say_so() -> None:
    """Errors that grow with the distance of [CLS], as the networks of the model see it."""
    checkpoint = model(tokens=16)
    network = Predictor(network_of(checkpoint))
    tokens = network.embed(TRAINED).values[None]
    measure, distance = TokenDistance.fit(tokens[:, 8:], tokens)
    inputs = Inputs(np.zeros((34, 1)), distance=distance, fingerprints=fingerprints(TRAINED))
    random = np.random.default_rng(0)
    labels = (distance**2 * random.uniform(0.9, 1.1, 34))[:, None]
    parts = [np.concatenate([part] * 4) for part in (labels, inputs.values, distance)]
    inputs = Inputs(parts[1], distance=parts[2], fingerprints=fingerprints(TRAINED * 4))
    sketch = sketch_of(TRAINED)
    folds = np.arange(4 * 34) % 5
    made = Uncertainty.fit(
        "regression", parts[0], inputs, folds, np.ones(1), sketch, tokens=measure
    )
    predictor = Predictor(checkpoint | {CONFIDENCE: made.to_plain()}, "cpu")
    assert predictor.predict([]).columns[-2:] == ("similarity", "distance")
    found = predictor.predict(TRAINED)
    np.testing.assert_allclose(found.distance, distance, rtol=1e-3)
    order = np.argsort(distance)
    width = (found.high - found.low)[order, 0]
    assert width[-5:].mean() > 5 * width[:5].mean()
    furthest = made.domain.furthest
    inside_of = found.cells["in_domain"]
    for far, warning, inside in zip(found.distance, found.warnings, inside_of, strict=True):
        assert (inside == "no") == (far > furthest)
        assert ("its [CLS] is" in warning) == (far > furthest)
    text = describe(make_checkpoint() | {CONFIDENCE: made.to_plain()})
    assert f"[CLS] beyond {furthest:g} times the usual distance" in text
    assert "fingerprints, [CLS] of 34 training molecules" in text


def test_classes_are_calibrated_and_come_with_sets_where_asked() -> None:
    checkpoint = model("binary")
    calibration = checkpoint[CONFIDENCE]["targets"][0]
    calibration["map"] |= {"a": 0.5, "b": 0.5}
    raw = Predictor(network_of(checkpoint), "cpu")
    plain = raw.predict(NEW).values[:3]
    predictor = Predictor(checkpoint, "cpu")
    assert predictor.predict([]).columns == ("pred_property", "similarity")
    values = predictor.predict(NEW).values[:3]
    odds = np.log(plain / (1 - plain)) / 2
    np.testing.assert_allclose(values, 1 / (1 + np.exp(-odds)), rtol=1e-6)
    predictor.configure(interval=0.9)
    assert [*predictor.predict([]).cells] == ["set_property", "in_domain"]
    one = typed(Calibration, calibration)
    sets = predictor.predict(NEW).cells["set_property"]
    for value, held in zip(values[:, 0], sets, strict=False):
        zero, first = one.sets(np.array([value]), 0.9)[0]
        assert held == {(1, 0): "0", (0, 1): "1", (1, 1): "0/1", (0, 0): "none"}[(zero, first)]


def test_neighbors_are_named_with_what_is_kept_of_them() -> None:
    checkpoint = model()
    predictor = Predictor(checkpoint, "cpu").configure(neighbors=2)
    sketch = checkpoint[CONFIDENCE]["neighbors"]
    label = sketch["labels"][TRAINED.index("CCCO"), 0]
    cells = [*predictor.predict("CCCO").cells.values()]
    assert cells[1:4] == [["CCCO"], ["1.000"], [f"{label:.6g}"]]
    del sketch["smiles"]
    checkpoint[KEY]["task"]["targets"] = ["row"]
    named = Predictor(checkpoint, "cpu").configure(neighbors=1).predict("CCCO").cells
    assert [*named][1:] == ["nearest_row_1", "similarity_1", "nearest_row_1_2"]
    del sketch["labels"]
    predictor = Predictor(checkpoint, "cpu").configure(neighbors=1)
    assert [*predictor.predict([]).cells] == ["in_domain", "nearest_row_1", "similarity_1"]
    nearest = predictor.predict("CCCO").cells["nearest_row_1"]
    assert nearest == [str(TRAINED.index("CCCO"))]


@pytest.mark.parametrize(
    ("checkpoint", "asked", "said"),
    [
        (model, {"interval": 0.99}, "interval 0.99: .* too few .* highest is 0.971"),
        (model, {"interval": 1.0}, "interval is 1"),
        (model, {"interval": "0.9"}, "interval is '0.9'"),
        (model, {"neighbors": 1.5}, "neighbors is 1.5"),
        (model, {"neighbors": 21}, "neighbors is 21"),
        (make_checkpoint, {"interval": 0.9}, "interval .*: the model does not know it"),
        (make_checkpoint, {"neighbors": 3}, "neighbors .*: the model does not know it"),
    ],
)
def test_what_cannot_be_had_is_an_error(checkpoint: Any, asked: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Predictor(checkpoint(), "cpu").configure(**asked)
