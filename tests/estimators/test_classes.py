"""GraphormerClassifier of more than two classes."""

from __future__ import annotations

import pickle

import numpy as np
import pandas
import pytest
import torch
from sklearn.metrics import accuracy_score

from graphormer_sepnorm import GraphormerClassifier, Predictor
from graphormer_sepnorm.estimators.inputs import class_names, names_of
from graphormer_sepnorm.inference.evaluation import label_of

SMILES = [f"{'C' * length}{end}" for length in range(1, 9) for end in ("O", "N", "c1ccccc1")]
NAMES = np.array(["alcohol", "amine", "arene"] * 8)


def test_probabilities_add_up_and_the_largest_is_predicted(tmp_path) -> None:
    model = GraphormerClassifier(
        layers=2, width=16, heads=2, ffn_width=16, max_epochs=25, learning_rate=0.01, device="cpu"
    ).fit(SMILES, NAMES)
    assert model.classes_.tolist() == ["alcohol", "amine", "arene"]
    probabilities = model.predict_proba(SMILES)
    assert probabilities.shape == (24, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    predicted = model.predict(SMILES)
    assert predicted.tolist() == model.classes_[probabilities.argmax(axis=1)].tolist()
    assert model.score(SMILES, NAMES) == accuracy_score(NAMES, predicted) > 0.8
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(SMILES), probabilities)
    # Its checkpoint is a model for predict.py.
    (tmp_path / "a.ckpt").write_bytes(model.checkpoint_)
    predictor = Predictor.load(tmp_path / "a.ckpt", "cpu")
    assert predictor.task.one_of == "y"
    assert predictor.task.classes == ("alcohol", "amine", "arene")
    found = predictor.predict(SMILES)
    np.testing.assert_allclose(found.values, probabilities, rtol=1e-6)
    assert [row[0] for row in found.texts] == predicted.tolist()


def test_without_an_order_of_words_classes_may_be_numbers() -> None:
    model = GraphormerClassifier(layers=1, width=8, heads=2, max_epochs=1, device="cpu")
    numbers = np.array([1, 3, 2] * 8)
    assert set(model.fit(SMILES, numbers).predict(SMILES)) <= {1, 2, 3}
    assert torch.tensor(model.predict_proba(SMILES[:2])).shape == (2, 3)


def test_classes_have_the_names_that_tables_give_them(tmp_path) -> None:
    """Numbers, as pandas makes them of a column with gaps, are 1 and 2 in predict.py, too."""
    model = GraphormerClassifier(layers=1, width=8, heads=2, max_epochs=1, device="cpu")
    model.fit(SMILES, np.array([1.0, 3.0, 2.0] * 8))
    assert model.classes_.tolist() == [1.0, 2.0, 3.0]
    (tmp_path / "a.ckpt").write_bytes(model.checkpoint_)
    task = Predictor.load(tmp_path / "a.ckpt", "cpu").task
    assert task.classes == ("1", "2", "3")
    assert [label_of(task, 0, cell) for cell in ("1", "1.0", 2, 3.0)] == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        ([1.0, 2.0, 3.0], ("1", "2", "3")),
        (["A", "a", "b"], ("A", "a", "b")),
        (["01", "1", "2"], ("01", "1", "2")),
        (["a", "a ", "b"], ("a", "a_2", "b")),
    ],
)
def test_no_two_classes_have_one_name(classes: list[object], names: tuple[str, ...]) -> None:
    assert class_names(classes) == names


def test_no_two_columns_have_one_name() -> None:
    columns = pandas.DataFrame(np.zeros((2, 4)), columns=["a", "a", "A", "a_2"])
    assert names_of(columns) == ("a", "a_2", "A", "a_2_2")


def test_a_class_that_a_table_takes_for_another_is_found_again(tmp_path) -> None:
    model = GraphormerClassifier(layers=1, width=8, heads=2, max_epochs=1, device="cpu")
    model.fit(SMILES, np.array(["01", "1", "2"] * 8))
    (tmp_path / "a.ckpt").write_bytes(model.checkpoint_)
    task = Predictor.load(tmp_path / "a.ckpt", "cpu").task
    assert task.targets == ("y_01", "y_1", "y_2")
    assert [label_of(task, 1, cell) for cell in ("01", "1 ", 1, 2.0)] == [0, 1, 1, 0]
    assert np.isnan(label_of(task, 1, None))
