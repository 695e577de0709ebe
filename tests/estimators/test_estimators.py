"""Estimators: what scikit-learn and its users may rely on, and what stands behind a prediction."""

from __future__ import annotations

import copy
import io
import os
import pickle
import pickletools
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
import yaml
from rdkit import Chem
from reference.checkpoints import make_checkpoint
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import (
    check_get_params_invariance,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    check_set_params,
)

from graphormer_sepnorm import (
    CheckpointError,
    GraphormerClassifier,
    GraphormerEmbedding,
    GraphormerError,
    GraphormerRegressor,
    Predictor,
)
from graphormer_sepnorm.estimators import training
from graphormer_sepnorm.estimators.inputs import InputError, labels_of
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import KEY, read_checkpoint
from graphormer_sepnorm.inference.evaluation import label_of
from graphormer_sepnorm.resources import config_path
from graphormer_sepnorm.training.module import GraphormerModule

SMILES = [
    "CCO",
    "CCCO",
    "CCN",
    "CCCN",
    "c1ccccc1",
    "Oc1ccccc1",
    "Nc1ccccc1",
    "CC(=O)O",
    "CC(=O)N",
    "CCOC",
    "CCCCC",
    "C1CCCCC1",
    "OC1CCCCC1",
    "NCCO",
    "OCCO",
    "CC(C)C",
    "CC(C)O",
    "c1ccncc1",
]
ATOMS = np.array([sum(letter in "CNOcno" for letter in text) for text in SMILES], dtype=float)
AROMATIC = ["c" in text for text in SMILES]
ESTIMATORS = [GraphormerRegressor, GraphormerClassifier, GraphormerEmbedding]
SMALL = {
    **{"layers": 1, "width": 8, "heads": 2, "ffn_width": 8, "max_epochs": 2, "batch_size": 8},
    "device": "cpu",
}


def regressor(**options):
    return GraphormerRegressor(**(SMALL | options))


def classifier(**options):
    return GraphormerClassifier(**(SMALL | options))


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(SMILES, ATOMS)


def test_numbers_of_numpy_are_numbers() -> None:
    """As searches over `np.logspace` or over the draws of scipy give them."""
    options = {
        **{name: np.int64(value) for name, value in SMALL.items() if isinstance(value, int)},
        **{"learning_rate": np.float64(1e-3), "dropout": np.float32(0.25), "seed": np.int64(3)},
        **{"norm": np.str_("bn+bn"), "options": {"model.max_path_length": np.int64(3)}},
    }
    plain = regressor(
        **{"learning_rate": 1e-3, "dropout": 0.25, "seed": 3, "norm": "bn+bn"},
        options={"model.max_path_length": 3},
    )
    values = [one.fit(SMILES, ATOMS).predict(SMILES) for one in (plain, regressor(**options))]
    np.testing.assert_array_equal(*values)


@pytest.fixture(scope="module")
def facts_of(tmp_path_factory):
    """What the checkpoint of an estimator says of its training."""

    def facts(estimator):
        path = tmp_path_factory.mktemp("estimator") / "model.ckpt"
        path.write_bytes(estimator.checkpoint_)
        return read_checkpoint(path)[KEY]

    return facts


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("check", [check_no_attributes_set_in_init, check_get_params_invariance])
def test_scikit_learns_checks_of_instances(kind, check):
    check(kind.__name__, kind())


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_scikit_learns_checks_of_parameters(kind):
    check_parameters_default_constructible(kind.__name__, kind())
    check_set_params(kind.__name__, kind())


def test_kinds():
    assert is_regressor(regressor())
    assert is_classifier(classifier())


def test_a_clone_is_equal_and_not_fitted(fitted):
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copied.predict(SMILES)
    with pytest.raises(NotFittedError):
        GraphormerEmbedding().transform(SMILES)


def test_a_prediction_is_that_of_the_checkpoint(fitted, tmp_path):
    (tmp_path / "model.ckpt").write_bytes(fitted.checkpoint_)
    predictor = Predictor.load(tmp_path / "model.ckpt", "cpu")
    np.testing.assert_array_equal(fitted.predict(SMILES), predictor.predict(SMILES).values[:, 0])
    assert predictor.task.targets == ("y",)
    assert fitted.n_features_in_ == fitted.n_outputs_ == 1


def test_same_seed_same_network(fitted):
    again = regressor().fit(SMILES, ATOMS).predict(SMILES)
    np.testing.assert_array_equal(again, fitted.predict(SMILES))
    assert not np.allclose(regressor(seed=1).fit(SMILES, ATOMS).predict(SMILES), again)


@pytest.mark.parametrize(
    "given",
    [
        tuple(SMILES),
        np.array(SMILES),
        np.array(SMILES, dtype=object)[:, None],
        pandas.Series(SMILES, index=range(7, 7 + len(SMILES))),
        pandas.DataFrame({"smiles": SMILES}),
    ],
    ids=["tuple", "array", "column", "series", "frame"],
)
def test_smiles_come_in_any_container(fitted, given):
    np.testing.assert_array_equal(fitted.predict(given), fitted.predict(SMILES))


def test_it_learns():
    labels = np.array(AROMATIC, dtype=float)
    options = {"max_epochs": 25, "learning_rate": 2e-2, "dropout": 0.0}
    assert regressor(**options).fit(SMILES, ATOMS).score(SMILES, ATOMS) > 0.8
    assert classifier(**options).fit(SMILES, labels).score(SMILES, labels) > 0.9


def test_all_molecules_are_trained_on_unless_some_validate(facts_of, fitted):
    assert facts_of(fitted)["training_graphs"] == len(SMILES)
    validated = facts_of(regressor(validation_fraction=0.25).fit(SMILES, ATOMS))
    assert validated["training_graphs"] == len(SMILES) - round(len(SMILES) / 4)
    assert "validation_loss" in validated["validation"]


def test_the_seed_draws_the_molecules_that_validate(facts_of):
    drawn = [
        facts_of(regressor(max_epochs=1, validation_fraction=0.25, seed=seed).fit(SMILES, ATOMS))
        for seed in (1, 2)
    ]
    assert len({one["dataset_fingerprint"] for one in drawn}) == 2


def test_another_fit_forgets_the_one_before():
    estimator = regressor(max_epochs=1).fit(SMILES, ATOMS)
    estimator.predict(SMILES)
    again = estimator.fit(SMILES, -10 * ATOMS).predict(SMILES)
    fresh = regressor(max_epochs=1).fit(SMILES, -10 * ATOMS).predict(SMILES)
    np.testing.assert_array_equal(again, fresh)


def test_the_best_epoch_is_kept(facts_of, monkeypatch):
    """Of a training in whose middle what was learned is destroyed."""
    losses = []

    def note_and_destroy(self):
        losses.append(float(self.trainer.callback_metrics["validation_loss"]))
        if self.current_epoch == 2:
            self.model.readout.bias.data.fill_(1e3)

    monkeypatch.setattr(GraphormerModule, "on_train_epoch_end", note_and_destroy, raising=False)
    best = regressor(max_epochs=6, validation_fraction=0.5).fit(SMILES, ATOMS)
    assert len(losses) == 6
    assert min(losses) < losses[-1]
    assert facts_of(best)["validation"]["validation_loss"] == pytest.approx(min(losses))
    monkeypatch.undo()
    assert facts_of(regressor(max_epochs=6).fit(SMILES, ATOMS))["validation"] == {}


def test_batch_norm_is_measured_for_the_last_weights():
    """Also without a validation, which measures otherwise."""
    estimator = regressor(norm="bn+bn", options={"model.precise_bn_graphs": 100}, max_epochs=1)
    network = estimator.fit(SMILES, ATOMS)._predictor().model
    tokens = []
    network.output_norm.graph_token_norm.register_forward_hook(
        lambda module, given, output: tokens.append(output)
    )
    estimator.predict(SMILES)
    normalised = torch.cat(tokens)
    np.testing.assert_allclose(normalised.mean(dim=0), 0, atol=1e-2)


def test_several_targets_and_missing_labels(facts_of):
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
    assert facts_of(regressor().fit(SMILES, labels.to_numpy()))["task"]["targets"] == ["y_0", "y_1"]
    one = regressor(max_epochs=1).fit(SMILES, pandas.Series(ATOMS, name="atoms"))
    assert facts_of(one)["task"]["targets"] == ["atoms"]


def test_weights_matter():
    weights = np.ones(len(SMILES))
    options = {"max_epochs": 1, "norm": "shared-ln"}
    plain = regressor(**options).fit(SMILES, ATOMS).predict(SMILES)
    equal = regressor(**options).fit(SMILES, ATOMS, sample_weight=3).predict(SMILES)
    weights[:5] = 0
    other = regressor(**options).fit(SMILES, ATOMS, sample_weight=weights).predict(SMILES)
    np.testing.assert_allclose(equal, plain, rtol=1e-5)
    assert not np.allclose(other, plain, rtol=1e-5)
    # Each is that of its molecule, also where one before it has no label.
    labels, weights = ATOMS.copy(), 1 + np.arange(len(SMILES))
    labels[0] = np.nan
    missing = regressor(**options).fit(SMILES, labels, sample_weight=weights)
    without = regressor(**options).fit(SMILES[1:], ATOMS[1:], sample_weight=weights[1:])
    np.testing.assert_array_equal(missing.predict(SMILES), without.predict(SMILES))


@pytest.mark.parametrize(
    ("classes", "named"),
    [
        (("inactive", "active"), ("active", "inactive")),
        ((0, 1), (None, None)),
        ((False, True), (None, None)),
        (("no", "yes"), (None, "yes")),
        ((-1, 1), ("-1", "1")),
        (("active", "positive"), ("active", "positive")),
    ],
)
def test_classes_of_any_kind(classes, named):
    labels = np.array(classes)[np.array(AROMATIC, dtype=int)]
    estimator = classifier().fit(SMILES, labels)
    assert estimator.classes_.tolist() == sorted(classes)
    probability = estimator.predict_proba(SMILES)
    assert probability.shape == (len(SMILES), 2)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    expected = estimator.classes_[probability.argmax(axis=1)]
    np.testing.assert_array_equal(estimator.predict(SMILES), expected)
    assert estimator.predict(SMILES).dtype == labels.dtype
    # What the checkpoint gives a probability of: with some words it is not what a table's is.
    kept = torch.load(io.BytesIO(estimator.checkpoint_), weights_only=True)
    task = Task.from_plain(kept[KEY]["task"])
    assert (task.zeros, task.ones) == tuple((one,) if one else () for one in named)
    assert [label_of(task, 0, one) for one in estimator.classes_] == [0, 1]


def test_several_binary_targets():
    labels = np.column_stack([AROMATIC, ATOMS > 4]).astype(float)
    estimator = classifier().fit(SMILES, labels)
    assert estimator.predict_proba(SMILES).shape == estimator.predict(SMILES).shape == (18, 2)
    np.testing.assert_array_equal(estimator.predict(SMILES), estimator.predict_proba(SMILES) > 0.5)
    assert estimator.predict(SMILES).min() == 0
    assert [one.tolist() for one in estimator.classes_] == [[0, 1], [0, 1]]
    scores = cross_val_score(classifier(), SMILES, labels, cv=KFold(2), scoring="roc_auc")
    assert np.isfinite(scores).all()
    labels[0, 1] = np.nan
    classifier().fit(SMILES, labels)


def test_missing_labels_of_pandas_are_missing():
    columns = pandas.DataFrame({"a": ATOMS.astype(float), "b": ATOMS * 2.0})
    columns.loc[[0, 3], "b"] = np.nan
    fitted = regressor(max_epochs=1).fit(SMILES, columns)
    other = regressor(max_epochs=1).fit(SMILES, columns.convert_dtypes())
    np.testing.assert_array_equal(other.predict(SMILES), fitted.predict(SMILES))
    for labels in (
        pandas.Series(ATOMS, dtype="category"),
        pandas.Series(pandas.arrays.SparseArray(ATOMS)),
        pandas.Series(ATOMS, dtype="Int64"),
    ):
        np.testing.assert_array_equal(labels_of(labels)[:, 0], ATOMS)
    one = pandas.Series([pandas.NA, *ATOMS[1:].tolist()], dtype=object)
    assert np.isfinite(regressor(max_epochs=1).fit(iter(SMILES), one).predict(SMILES)).all()


def test_trainings_in_threads_are_those_of_their_seeds():
    def train(seed):
        estimator = regressor(dropout=0.3, max_epochs=2, seed=seed)
        return estimator.fit(SMILES, ATOMS).predict(SMILES)

    seeds = [0, 1, 0]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(train, seeds))
    for seed, values in zip(seeds, found, strict=True):
        np.testing.assert_array_equal(values, train(seed))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_that_is_forked_while_a_thread_trains_does_not_wait_for_it():
    with training._one_at_a_time:
        child = os.fork()
        if child == 0:
            os._exit(0 if training._one_at_a_time.acquire(timeout=1) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_cross_validation_and_search():
    order = np.random.default_rng(0).permutation(len(SMILES))
    smiles, labels = [SMILES[n] for n in order], ATOMS[order]
    folds = KFold(2)
    assert np.isfinite(cross_val_score(regressor(), smiles, labels, cv=folds)).all()
    scores = cross_val_score(
        classifier(), smiles, np.array(AROMATIC)[order], cv=2, scoring="roc_auc"
    )
    assert np.isfinite(scores).all()
    search = GridSearchCV(regressor(max_epochs=1), {"norm": ["sepnorm", "bn+bn"]}, cv=folds)
    search.fit(smiles, labels)
    assert search.best_params_["norm"] in ("sepnorm", "bn+bn")
    assert search.predict(smiles).shape == (len(SMILES),)


def test_a_pickle_holds_a_checkpoint_and_no_network(fitted):
    data = pickle.dumps(fitted)
    strings = {argument for _, argument, _ in pickletools.genops(data) if isinstance(argument, str)}
    assert not {text for text in strings if text.partition(".")[0] in ("torch", "lightning")}
    for copied in (pickle.loads(data), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(copied.predict(SMILES), fitted.predict(SMILES))


def test_nothing_is_left_behind(tmp_path, monkeypatch, capfd):
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


def test_a_pretrained_network_is_begun_with(fitted, tmp_path):
    (tmp_path / "model.ckpt").write_bytes(fitted.checkpoint_)
    options = {"from_pretrained": str(tmp_path / "model.ckpt"), "max_epochs": 1, "device": "cpu"}
    estimator = GraphormerRegressor(**options, learning_rate=1e-9).fit(SMILES, -ATOMS)
    weights = [one._predictor().model.embedding.atom.weight for one in (fitted, estimator)]
    assert torch.allclose(*weights, atol=1e-5)
    with pytest.raises(GraphormerError, match=r"model\.width"):
        GraphormerRegressor(**options, width=8).fit(SMILES, ATOMS)
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        GraphormerRegressor(from_pretrained="nothing", max_epochs=1).fit(SMILES, ATOMS)


def test_a_pretrained_network_keeps_its_features():
    """Bundled models know molecules in two ways, neither of which is told from a table."""
    estimator = GraphormerRegressor(from_pretrained="zinc", max_epochs=1, device="cpu")
    assert estimator.fit(SMILES, ATOMS).predict(["CCO"]).shape == (1,)


def test_a_recipe_of_ones_own(tmp_path, facts_of):
    config = yaml.safe_load(config_path("table_regression").read_text())
    config["model"] |= {"layers": 1, "width": 16, "heads": 2, "ffn_width": 16, "optimizer": "muon"}
    config["trainer"]["max_epochs"] = 1
    config["ema_decay"] = 0.5
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(config).replace("1.0e-06", "1e-6"))
    model = facts_of(GraphormerRegressor(str(path), device="cpu").fit(SMILES, ATOMS))["model"]
    assert (model["layers"], model["width"], model["norm"]) == (1, 16, "bn+ln")
    for text, named in (
        ("model:\n  layers: 1\n", "max_epochs"),
        ("data: {descriptors: rdkit}", r"data\.descriptors"),
        ("data: {descriptor_columns: [pH]}", r"data\.descriptor_columns"),
        ("- model", "sections"),
        ("data: 5", "data:"),
        ("ema_decay: high", "ema_decay"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=named):
            GraphormerRegressor(str(path)).fit(SMILES, ATOMS)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"norm": "bn+xx"}, r"unknown norm 'bn\+xx'"),
        ({"width": 9}, "width 9 .* heads 2"),
        ({"layers": "three"}, "layers is 'three'"),
        ({"learning_rate": -1.0}, "learning_rate is -1"),
        ({"max_epochs": True}, "max_epochs is True"),
        ({"batch_size": 1}, "batch_size is 1"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"validation_fraction": 0.01}, "leaves 18 to train on and 0 to validate on"),
        ({"validation_fraction": 0.95}, "leaves 1 to train on and 17 to validate on"),
        ({"seed": None}, "seed is None"),
        ({"loss": "bce"}, "bce"),
        ({"recipe": "table_regresion"}, "'table_regression'"),
        ({"options": {"model.encoding": "rrwp"}}, "'encodings'"),
        ({"options": "rrwp"}, "options is 'rrwp'"),
        ({"layers": 2, "options": {"model.layers": 1}}, "given twice"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"device": "cpu:0"}, "device is 'cpu:0'"),
        ({"device": "cuda:99"}, "device is 'cuda:99'"),
    ],
    ids=str,
)
def test_bad_parameters_are_one_line_at_fit(parameters, said):
    estimator = regressor(**parameters)
    with pytest.raises(ValueError, match=said) as caught:
        estimator.fit(SMILES, ATOMS)
    assert isinstance(caught.value, GraphormerError)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        ("CCO", [1.0], "X is 'CCO': give a list of SMILES"),
        (["CCO", "C1CC", "", "CC"], range(4), r"X\[1\]: 'C1CC' is not .*; 1 more cannot be used"),
        (["CCO", None, "CC"], range(3), r"X\[1\] is None, of type NoneType: give SMILES"),
        ([["CCO", "CC"]] * 4, range(4), r"X is of shape \(4, 2\)"),
        (SMILES, ATOMS[1:], "X has 18 molecules, y labels of 17"),
        (SMILES, [*ATOMS[1:], np.inf], "y holds an infinity"),
        (SMILES, [*ATOMS[1:], 1e39], r"y\[17\] is too large for a float of 32 bits"),
        (SMILES, np.arange(18).astype("M8[D]"), "y does not hold numbers .dates, times"),
        (SMILES, ATOMS + 1j, "y does not hold numbers .dates, times and complex"),
        (None, ATOMS, "X is of the type NoneType: give a list of SMILES"),
        ({"smiles": SMILES}, ATOMS, "X is of the type dict: give a list"),
        (SMILES[:1], ATOMS[:1], "there is 1 molecule with a label: two are needed"),
        ([], [], "y holds no labels: give those of two molecules or more"),
        (SMILES, None, r"y is of shape \(\): give a label for each molecule"),
        (SMILES, ["x"] * 18, "y does not hold numbers"),
        (SMILES, [np.nan] * 18, "there is no molecule with a label"),
        (SMILES, np.column_stack([ATOMS, ATOMS * np.nan]), "no training label for y_1"),
    ],
    ids=range(17),
)
def test_bad_input_is_one_line(X, y, said):
    with pytest.raises(ValueError, match=said) as caught:
        regressor().fit(X, y)
    assert "\n" not in str(caught.value)


def test_bad_classes_and_weights():
    for labels, said in (
        ([0] * 18, r"y is \[0\] throughout: two classes are needed"),
        (ATOMS + 0.5, r"y is not of classes \(Unknown label type: continuous"),
        (np.column_stack([ATOMS, ATOMS]), "each must hold 0, 1 or nan"),
        ([*"ab" * 8, np.nan, np.nan], r"several kinds, str \(y\[0\]\), float \(y\[16\]\)"),
        ([True, "b"] * 9, r"several kinds, bool \(y\[0\]\), str \(y\[1\]\)"),
        ([["a"], ["a", "b"]] * 9, "y is not of classes"),
        (["a", None, *"ab" * 8], r"several kinds, str \(y\[0\]\), NoneType \(y\[1\]\)"),
        ([None, *"ab" * 8, "a"], r"several kinds, NoneType \(y\[0\]\), str \(y\[1\]\)"),
        (
            pandas.Series(["a", "b", np.nan, *"abc" * 5]),
            r"float \(y\[2\]\): every molecule needs a",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            classifier().fit(SMILES, labels)
    for labels, said in (
        ([], "y holds no labels"),
        (np.empty((0, 2)), "y holds no labels"),
        (1, r"y is of shape \(\): give"),
        (np.zeros((18, 2, 2)), r"y is of shape \(18, 2, 2\): give"),
    ):
        with pytest.raises(InputError, match=said):
            classifier().fit(SMILES[: np.size(labels)], labels)
    with pytest.raises(ValueError, match="sample_weight must be finite, and 0 or more"):
        regressor().fit(SMILES, ATOMS, sample_weight=-ATOMS)
    with pytest.raises(ValueError, match="sample_weight must be finite, and 0 or more"):
        regressor().fit(SMILES, ATOMS, sample_weight=np.where(AROMATIC, np.inf, 1))
    with pytest.raises(ValueError, match="weights of all training graphs are 0"):
        regressor().fit(SMILES, ATOMS, sample_weight=0 * ATOMS)
    with pytest.raises(InputError, match="sample_weight has 17 values for 18 molecules"):
        regressor().fit(SMILES, ATOMS, sample_weight=ATOMS[1:])


def test_a_row_that_cannot_be_predicted_is_named(fitted):
    with pytest.raises(ValueError, match=r"X\[1\]: 'C1CC' is not a valid molecule"):
        fitted.predict(["CCO", "C1CC"])


def test_a_molecule_of_any_size_is_predicted(fitted):
    assert np.isfinite(fitted.predict(["C" * 501])).all()


def test_a_device_that_is_changed_is_another_one(fitted):
    copied = pickle.loads(pickle.dumps(fitted))
    copied.predict(["CCO"])
    with pytest.raises(ValueError, match="device 'tpu' cannot be used"):
        copied.set_params(device="tpu").predict(["CCO"])


def test_an_element_that_training_lacks_is_a_warning(fitted):
    """Or a rare one would end a cross-validation."""
    with pytest.warns(UserWarning, match=r"1 of 2 molecules .* X\[1\]: .*Br did not occur"):
        values = fitted.predict(["CCO", "CCBr"])
    assert np.isfinite(values).all()


def test_embeddings_are_features():
    embedding = GraphormerEmbedding("esol", device="cpu")
    values = embedding.fit_transform(SMILES)
    np.testing.assert_array_equal(values, Predictor.load("esol", "cpu").embed(SMILES).values)
    assert embedding.get_feature_names_out()[[0, -1]].tolist() == ["cls_0", "cls_63"]
    frame = embedding.set_output(transform="pandas").transform(SMILES)
    assert frame.columns[0] == "cls_0"
    pipeline = make_pipeline(GraphormerEmbedding("esol", device="cpu"), Ridge(1e-3))
    assert pipeline.fit(SMILES, ATOMS).score(SMILES, ATOMS) > 0.9
    copied = pickle.loads(pickle.dumps(embedding))
    np.testing.assert_array_equal(copied.transform(SMILES), values)
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        GraphormerEmbedding("nothing").fit(SMILES)


def test_embedding_of_a_network_that_reads_atoms_warns(tmp_path):
    file = tmp_path / "model.ckpt"
    torch.save(make_checkpoint(readout="mean"), file)
    with pytest.warns(UserWarning, match=r"model\.ckpt: this model reads its .* not from \[CLS\]"):
        GraphormerEmbedding(file, device="cpu").fit(SMILES)


def test_a_fitted_embedding_needs_its_file_no_more(fitted, tmp_path):
    file = Path(tmp_path / "model.ckpt")
    file.write_bytes(fitted.checkpoint_)
    embedding = GraphormerEmbedding(file, device="cpu").fit(SMILES)
    file.unlink()
    assert pickle.loads(pickle.dumps(embedding)).transform(SMILES).shape == (len(SMILES), 8)


def test_rows_that_cannot_be_read_are_nan_where_that_is_asked_for():
    given = ["CCO", "no molecule", None, "CCN"]
    model = GraphormerEmbedding("esol", device="cpu", on_invalid="nan").fit(given)
    unread = [False, True, True, False]
    assert np.isnan(model.transform(given)).all(axis=1).tolist() == unread
    options = {"max_epochs": 1, "layers": 1, "width": 16, "heads": 2, "device": "cpu"}
    model = GraphormerRegressor(on_invalid="nan", **options).fit(given, [1.0, 2.0, 3.0, 4.0])
    assert np.isnan(model.predict(given)).tolist() == unread
    classifier = GraphormerClassifier(on_invalid="nan", **options).fit(given, [1, 0, 0, 0])
    assert [one is None for one in classifier.predict(given)] == unread
    with pytest.raises(ValueError, match="on_invalid"):
        GraphormerRegressor(on_invalid="skip", **options).fit(["CCO"] * 4, range(4))


def test_a_configuration_that_takes_the_parent_structure_does_so_at_prediction(tmp_path):
    path = tmp_path / "mine.yaml"
    config = {"data": {"standardise": ["fragment"]}, "trainer": {"max_epochs": 1}}
    path.write_text(yaml.safe_dump(config | {"model": {"layers": 1, "width": 16, "heads": 2}}))
    model = GraphormerRegressor(str(path), device="cpu").fit(["CCO", "CCN.Cl", "C"], [1, 2, 3])
    base, salt = model.predict(["CCN", "CCN.Cl"])
    assert base == salt


def test_molecules_of_rdkit_are_taken():
    model = GraphormerEmbedding("esol", device="cpu").fit(["CCO"])
    found = model.transform([Chem.MolFromSmiles("CCO")])
    np.testing.assert_allclose(found, model.transform(["CCO"]), rtol=1e-5)
