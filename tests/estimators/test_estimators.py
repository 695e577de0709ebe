"""Estimators: what scikit-learn and its users may rely on, and what a prediction is made by."""

import copy
import io
import pickle
import pickletools
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
import yaml
from rdkit import Chem
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.utils.estimator_checks import (
    check_get_params_invariance,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    check_set_params,
)

from graphormer_sepnorm import (
    CheckpointError,
    GraphormerClassifier,
    GraphormerError,
    GraphormerRegressor,
    Predictor,
)
from graphormer_sepnorm.estimators.inputs import class_names, labels_of, names_of
from graphormer_sepnorm.inference.checkpoint import KEY
from graphormer_sepnorm.inference.evaluation import label_of
from graphormer_sepnorm.resources import config_path
from graphormer_sepnorm.training.module import GraphormerModule

SMILES = [
    *("CCO", "CCCO", "CCN", "CCCN", "c1ccccc1", "Oc1ccccc1", "Nc1ccccc1", "CC(=O)O", "CC(=O)N"),
    *("CCOC", "CCCCC", "C1CCCCC1", "OC1CCCCC1", "NCCO", "OCCO", "CC(C)C", "CC(C)O", "c1ccncc1"),
]
ATOMS = np.array([sum(letter in "CNOcno" for letter in text) for text in SMILES], dtype=float)
AROMATIC = np.array(["c" in text for text in SMILES])
SMALL = {
    **{"layers": 1, "width": 8, "heads": 2, "ffn_width": 8, "max_epochs": 1, "batch_size": 8},
    "device": "cpu",
}


def regressor(**options: Any) -> GraphormerRegressor:
    return GraphormerRegressor(**(SMALL | options))


def classifier(**options: Any) -> GraphormerClassifier:
    return GraphormerClassifier(**(SMALL | options))


@pytest.fixture(scope="module")
def fitted() -> GraphormerRegressor:
    return regressor().fit(SMILES, ATOMS)


def checkpoint_of(estimator: Any) -> dict[str, Any]:
    return torch.load(io.BytesIO(estimator.checkpoint_), weights_only=True)


def facts_of(estimator: Any) -> dict[str, Any]:
    """What the checkpoint of an estimator knows of its training."""
    return checkpoint_of(estimator)[KEY]


@pytest.mark.parametrize("kind", [GraphormerRegressor, GraphormerClassifier])
def test_scikit_learns_checks(kind: Any) -> None:
    for check in (
        *(check_no_attributes_set_in_init, check_get_params_invariance),
        *(check_parameters_default_constructible, check_set_params),
    ):
        check(kind.__name__, kind())
    assert is_regressor(kind()) == (kind is GraphormerRegressor)
    assert is_classifier(kind()) == (kind is GraphormerClassifier)


def test_a_clone_is_equal_and_not_fitted(fitted: GraphormerRegressor) -> None:
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()

    class Own(GraphormerRegressor):
        def __init__(self, epochs: int = 3) -> None:
            super().__init__(max_epochs=epochs)
            self.epochs = epochs

    assert clone(Own(2)).max_epochs == 2
    with pytest.raises(NotFittedError):
        copied.predict(SMILES)


@pytest.mark.parametrize(
    "given",
    [
        SMILES,
        np.array(SMILES, dtype=object)[:, None],
        pandas.Series(SMILES, index=range(7, 7 + len(SMILES))),
        [Chem.MolFromSmiles(text) for text in SMILES],
    ],
    ids=["list", "column", "series", "rdkit"],
)
def test_a_prediction_is_that_of_the_checkpoint(fitted, tmp_path: Path, given: Any) -> None:
    (tmp_path / "model.ckpt").write_bytes(fitted.checkpoint_)
    predictor = Predictor.load(tmp_path / "model.ckpt", "cpu")
    expected = predictor.predict(SMILES).values[:, 0]
    np.testing.assert_allclose(fitted.predict(given), expected, rtol=1e-5)
    assert predictor.task.targets == ("y",)
    assert fitted.n_features_in_ == fitted.n_outputs_ == 1
    assert np.isfinite(fitted.predict(["C" * 501])).all()  # of any size


def test_same_seed_same_network(fitted: GraphormerRegressor) -> None:
    """Also with numbers of numpy, as searches draw them, and in an estimator that was fitted."""
    options = {
        **{name: np.int64(value) for name, value in SMALL.items() if isinstance(value, int)},
        **{"norm": np.str_("sepnorm"), "options": {"model.path_rows": np.int64(64)}},
    }
    other = regressor(seed=np.int64(1)).fit(SMILES, ATOMS)
    assert not np.allclose(other.predict(SMILES), fitted.predict(SMILES))
    again = other.set_params(seed=0, **options).fit(SMILES, ATOMS)
    np.testing.assert_array_equal(again.predict(SMILES), fitted.predict(SMILES))


def test_it_learns() -> None:
    options = {"max_epochs": 25, "learning_rate": 2e-2, "dropout": 0.0}
    assert regressor(**options).fit(SMILES, ATOMS).score(SMILES, ATOMS) > 0.8
    assert classifier(**options).fit(SMILES, AROMATIC).score(SMILES, AROMATIC) > 0.9


def test_all_molecules_are_trained_on_unless_some_validate(fitted) -> None:
    assert facts_of(fitted)["training_graphs"] == len(SMILES)
    found = [
        facts_of(regressor(validation_fraction=0.25, seed=seed).fit(SMILES, ATOMS))
        for seed in (1, 2)
    ]
    assert found[0]["training_graphs"] == len(SMILES) - round(len(SMILES) / 4)
    assert len({one["dataset_fingerprint"] for one in found}) == 2  # the seed samples them


def test_the_best_epoch_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a training in whose middle what was learned is destroyed."""
    losses = []

    def note_and_destroy(self: Any) -> None:
        losses.append(float(self.trainer.callback_metrics["validation_loss"]))
        if self.current_epoch == 2:
            self.model.readout.bias.data.fill_(1e3)

    monkeypatch.setattr(GraphormerModule, "on_train_epoch_end", note_and_destroy, raising=False)
    best = regressor(max_epochs=6, validation_fraction=0.5).fit(SMILES, ATOMS)
    assert len(losses) == 6
    assert min(losses) < losses[-1]
    assert facts_of(best)["validation"]["validation_loss"] == pytest.approx(min(losses))


def test_several_targets_and_missing_labels() -> None:
    labels = pandas.DataFrame({"atoms": ATOMS, "half": ATOMS / 2})
    labels.iloc[0, 1] = labels.iloc[3, 0] = np.nan
    labels.iloc[5] = np.nan  # a molecule of which nothing can be learned
    estimator = regressor().fit(SMILES, labels)
    assert estimator.predict(SMILES).shape == (len(SMILES), 2)
    assert estimator.n_outputs_ == 2
    facts = facts_of(estimator)
    assert facts["task"]["targets"] == ["atoms", "half"]
    assert facts["training_graphs"] == len(SMILES) - 1
    assert facts["target_mean"][0] == pytest.approx(labels["atoms"].mean())
    np.testing.assert_array_equal(labels_of(labels.convert_dtypes()), labels_of(labels))
    for given in (
        pandas.Series(ATOMS, dtype="category"),
        pandas.Series([*ATOMS[:-1], pandas.NA], dtype=object),
    ):
        np.testing.assert_array_equal(labels_of(given)[:-1, 0], ATOMS[:-1])
    for given, names in (
        (np.zeros((2, 2)), ("y_0", "y_1")),
        (pandas.Series([0, 1], name="atoms"), ("atoms",)),
        ([1, 2], ("y",)),
        (pandas.DataFrame(np.zeros((2, 2)), columns=["a", "a"]), ("y_0", "y_1")),
    ):
        assert names_of(given) == names


def test_weights_matter() -> None:
    def predicted(labels: Any, weights: Any, start: int = 0) -> np.ndarray:
        model = regressor(norm="shared-ln").fit(SMILES[start:], labels[start:], weights)
        return model.predict(SMILES)

    plain = predicted(ATOMS, None)
    np.testing.assert_allclose(predicted(ATOMS, 3), plain, rtol=1e-5)
    # Each is that of its molecule, also where one before it has no label.
    labels, weights = ATOMS.copy(), 1 + np.arange(len(SMILES))
    labels[0] = np.nan
    missing = predicted(labels, weights)
    np.testing.assert_array_equal(missing, predicted(ATOMS, weights[1:], start=1))
    assert not np.allclose(missing, plain, rtol=1e-5)


@pytest.mark.parametrize(
    ("classes", "named"),
    [
        (("inactive", "active"), ("active", "inactive")),
        ((False, True), (None, None)),
        (("no", "yes"), (None, "yes")),
    ],
)
def test_two_classes_of_any_kind(classes, named) -> None:
    labels = np.array(classes)[AROMATIC.astype(int)]
    estimator = classifier().fit(SMILES, labels)
    assert estimator.classes_.tolist() == sorted(classes)
    probability = estimator.predict_proba(SMILES)
    assert probability.shape == (len(SMILES), 2)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    expected = estimator.classes_[probability.argmax(axis=1)]
    np.testing.assert_array_equal(estimator.predict(SMILES), expected)
    assert estimator.predict(SMILES).dtype == labels.dtype
    # What the checkpoint gives a probability of: with some words it is not what a table's is.
    task = Predictor(checkpoint_of(estimator), "cpu").task
    assert (task.zeros, task.ones) == tuple((one,) if one else () for one in named)
    assert [label_of(task, 0, one) for one in estimator.classes_] == [0, 1]


@pytest.mark.parametrize(
    ("classes", "names", "cells"),
    [
        ([1.0, 2.0, 3.0], ("1", "2", "3"), ["1", "1.0", 1]),  # as pandas makes them
        (["01", "1", "2"], ("01", "1", "2"), ["01"]),
    ],
)
def test_of_several_classes_the_most_probable_is_predicted(classes, names, cells) -> None:
    labels = np.array([classes[n % 3] for n in range(len(SMILES))])
    model = classifier(max_epochs=2).fit(SMILES, labels)
    assert model.classes_.tolist() == classes
    probabilities = pickle.loads(pickle.dumps(model)).predict_proba(SMILES)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    assert model.predict(SMILES).tolist() == [classes[n] for n in probabilities.argmax(axis=1)]
    predictor = Predictor(checkpoint_of(model), "cpu")
    assert (predictor.task.one_of, predictor.task.classes) == ("y", names)
    np.testing.assert_allclose(predictor.predict(SMILES).values, probabilities, rtol=1e-6)
    assert {label_of(predictor.task, 0, cell) for cell in cells} == {1}
    assert class_names(["a", "a ", "b"]) == ("a", "a ", "b")


def test_several_binary_targets() -> None:
    labels = np.column_stack([AROMATIC, ATOMS > 4]).astype(float)
    labels[0, 1] = np.nan
    estimator = classifier().fit(SMILES, labels)
    probabilities = estimator.predict_proba(SMILES)
    np.testing.assert_array_equal(estimator.predict(SMILES), probabilities > 0.5)
    assert probabilities.shape == (18, 2)
    assert [one.tolist() for one in estimator.classes_] == [[0, 1], [0, 1]]


def test_trainings_in_threads_are_those_of_their_seeds() -> None:
    def train(seed: int) -> np.ndarray:
        return regressor(dropout=0.3, seed=seed).fit(SMILES, ATOMS).predict(SMILES)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(train, [0, 1]))
    for seed, values in enumerate(found):
        np.testing.assert_array_equal(values, train(seed))


def test_cross_validation_and_search() -> None:
    order = np.random.default_rng(0).permutation(len(SMILES))
    smiles, labels = [SMILES[n] for n in order], ATOMS[order]
    targets = np.column_stack([AROMATIC, ATOMS > 4]).astype(float)[order]
    scores = cross_val_score(classifier(), smiles, targets, cv=KFold(2), scoring="roc_auc")
    assert np.isfinite(scores).all()
    search = GridSearchCV(regressor(), {"norm": ["sepnorm", "bn+bn"]}, cv=KFold(2))
    search.fit(smiles, labels)
    assert search.best_params_["norm"] in ("sepnorm", "bn+bn")
    assert search.predict(smiles).shape == (len(SMILES),)


def test_a_pickle_holds_a_checkpoint_and_no_network(fitted: GraphormerRegressor) -> None:
    data = pickle.dumps(fitted)
    strings = {argument for _, argument, _ in pickletools.genops(data) if isinstance(argument, str)}
    assert not {text for text in strings if text.partition(".")[0] in ("torch", "lightning")}
    for copied in (pickle.loads(data), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(copied.predict(SMILES), fitted.predict(SMILES))
    with pytest.raises(ValueError, match="device 'tpu' cannot be used"):
        copied.set_params(device="tpu").predict(["CCO"])
    copied.checkpoint_ = fitted.checkpoint_[:-100]
    with pytest.raises(CheckpointError, match=r"^checkpoint_ cannot be used: it is damaged"):
        copied.predict(["CCO"])


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    regressor(validation_fraction=0.2).fit(SMILES, ATOMS).predict(SMILES)
    assert torch.equal(torch.rand(3), expected)
    assert len([*tmp_path.rglob("*")]) == 2
    assert capfd.readouterr() == ("", "")


def test_a_pretrained_network_is_fine_tuned(fitted, tmp_path: Path) -> None:
    (path := tmp_path / "model.ckpt").write_bytes(fitted.checkpoint_)
    options = {"from_pretrained": str(path), "max_epochs": 1, "device": "cpu"}
    estimator = GraphormerRegressor(**options, learning_rate=1e-9).fit(SMILES, -ATOMS)
    weights = [one._predictor().model.embedding.atom.weight for one in (fitted, estimator)]
    assert torch.allclose(*weights, atol=1e-5)
    with pytest.raises(GraphormerError, match="width is decided"):
        GraphormerRegressor(**options, width=8).fit(SMILES, ATOMS)
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        GraphormerRegressor(from_pretrained="nothing", max_epochs=1).fit(SMILES, ATOMS)
    # Bundled models know molecules in two ways, neither of which is known from a table.
    estimator = GraphormerRegressor(**options | {"from_pretrained": "zinc"})
    assert estimator.fit(SMILES, ATOMS).predict(["CCO"]).shape == (1,)


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    config = yaml.safe_load(config_path("table_regression").read_text())
    config["model"] |= {"layers": 1, "width": 16, "heads": 2, "ffn_width": 16, "optimizer": "muon"}
    config["trainer"]["max_epochs"] = 1
    config["data"]["standardize"] = ["fragment"]
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(config).replace("1.0e-06", "1e-6"))
    estimator = GraphormerRegressor(str(path), device="cpu").fit([*SMILES, "CCN.Cl"], [*ATOMS, 3])
    model = facts_of(estimator)["model"]
    assert (model["layers"], model["width"], model["norm"]) == (1, 16, "bn+ln")
    assert np.ptp(estimator.predict(["CCN", "CCN.Cl"])) < 1e-6
    for text, named in (("model: {layers: 1}", "max_epochs"), ("- model", "sections")):
        path.write_text(text)
        with pytest.raises(ValueError, match=named):
            GraphormerRegressor(str(path)).fit(SMILES, ATOMS)


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"learning_rate": -1.0}, "learning_rate is -1"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"recipe": "table_regresion"}, "'table_regression'"),
        ({"options": {"model.encoding": "rrwp"}}, "'encodings'"),
        ({"layers": 2, "options": {"model.layers": 1}}, r"model\.layers is given twice"),
        ({"options": {"data.units": ["M"]}}, r"data\.units is of files: leave it out"),
        ({"device": "cuda:99"}, "device 'cuda:99'"),
    ],
    ids=str,
)
def test_bad_parameters_are_one_line_at_fit(parameters: dict[str, Any], named: str) -> None:
    estimator = regressor(**parameters)
    with pytest.raises(ValueError, match=named) as caught:
        estimator.fit(SMILES, ATOMS)
    assert isinstance(caught.value, GraphormerError)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "X", "y", "weight", "named"),
    [
        (regressor, {"smiles": SMILES}, ATOMS, None, "of the type dict"),
        (regressor, ["CCO", "C1CC", "", "CC"], range(4), None, r"X\[1\]: 'C1CC' is not .*; 1 more"),
        (regressor, ["CCO", None, "CC"], range(3), None, r"X\[1\] is None, of type NoneType"),
        (regressor, [["CCO", "CC"]] * 4, range(4), None, r"shape \[4, 2\]"),
        (regressor, SMILES, ATOMS[1:], None, "X has 18 molecules, y labels of 17"),
        (regressor, SMILES, [*ATOMS[1:], np.inf], None, r"y\[17\] is infinite"),
        (regressor, SMILES, np.arange(18).astype("M8[D]"), None, "y does not hold numbers"),
        (regressor, SMILES[:1], ATOMS[:1], None, "1 are left to train on"),
        (regressor, SMILES, None, None, r"y is of shape \(\)"),
        (regressor, SMILES, ATOMS, -ATOMS, "sample_weight"),
        (regressor, SMILES, ATOMS, ATOMS[1:], "sample_weight has 17 values for 18 molecules"),
        (classifier, SMILES, [0] * 18, None, r"y is \[0\] throughout"),
        (classifier, SMILES, ATOMS + 0.5, None, "y is not of classes"),
        (classifier, SMILES, np.column_stack([ATOMS, ATOMS]), None, "each must hold 0, 1 or nan"),
        (classifier, SMILES, [*"ab" * 8, np.nan, np.nan], None, "y is not of classes"),
        (classifier, SMILES, ["a", None, *"ab" * 8], None, "y is not of classes"),
        (classifier, [], [], None, r"y is of shape \(0,\)"),
    ],
)
def test_bad_input_is_one_line(make: Any, X: Any, y: Any, weight: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        make().fit(X, y, weight)
    assert "\n" not in str(caught.value)


def test_rows_that_cannot_be_predicted(fitted: GraphormerRegressor) -> None:
    """Are errors; an element that training lacks is a warning."""
    with pytest.raises(ValueError, match=r"X\[1\]: 'C1CC' is not a valid molecule"):
        fitted.predict(["CCO", "C1CC"])
    with pytest.warns(UserWarning, match=r"1 of 2 molecules .* X\[1\]: .*Br did not occur"):
        assert np.isfinite(fitted.predict(["CCO", "CCBr"])).all()
