"""What the Python interface does not do yet."""

from __future__ import annotations

import numpy as np
import pytest
from rdkit import Chem

from graphormer_sepnorm import GraphormerEmbedding, Predictor


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor.load("esol", "cpu")


@pytest.mark.xfail(strict=True, reason="estimators have no on_invalid", raises=TypeError)
def test_a_row_that_cannot_be_read_is_nan_where_that_is_asked_for():
    model = GraphormerEmbedding("esol", device="cpu", on_invalid="nan").fit(["CCO"])
    found = model.transform(["CCO", "no molecule", "CCN"])
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False]


@pytest.mark.xfail(strict=True, reason="predictions of RDKit molecules are refused")
def test_molecules_of_rdkit_are_predicted(predictor):
    smiles = ["CCO", "c1ccccc1O"]
    found = predictor.predict([Chem.MolFromSmiles(one) for one in smiles])
    assert not any(found.errors)
    np.testing.assert_allclose(found.values, predictor.predict(smiles).values, rtol=1e-5)


@pytest.mark.xfail(strict=True, reason="estimators refuse RDKit molecules")
def test_estimators_take_molecules_of_rdkit():
    model = GraphormerEmbedding("esol", device="cpu").fit(["CCO"])
    found = model.transform([Chem.MolFromSmiles("CCO")])
    np.testing.assert_allclose(found, model.transform(["CCO"]), rtol=1e-5)


@pytest.mark.xfail(strict=True, reason="no Predictions.to_pandas", raises=AttributeError)
def test_predictions_become_a_data_frame_with_the_columns_of_the_table(predictor):
    frame = predictor.predict(["CCO", "no molecule"]).to_pandas()
    assert {"smiles", "pred_logSolubility", "warning", "error"} <= {*frame.columns}
    assert frame["smiles"].tolist() == ["CCO", "no molecule"]
    assert np.isnan(frame["pred_logSolubility"][1])


@pytest.mark.xfail(strict=True, reason="reprs say nothing of the model, or everything")
@pytest.mark.parametrize("what", ["predictor", "predictions"])
def test_what_is_shown_of_an_object_is_short_and_says_what_it_is(what, predictor):
    shown = repr(predictor if what == "predictor" else predictor.predict(["CCO"] * 50))
    assert "logSolubility" in shown
    assert len(shown) < 500


@pytest.mark.xfail(strict=True, reason="an explanation does not draw itself")
def test_an_explanation_draws_itself(predictor):
    (one,) = predictor.explain(["CCO"]).molecules
    assert "<svg" in one._repr_svg_()
