"""Predictions: rows stay where they are, spelling and company of a molecule do not matter."""

import copy
import math
import pickle

import numpy as np
import pandas
import pyarrow
import pytest
import torch
from rdkit import Chem
from reference.checkpoints import make_checkpoint
from reference.models import EVERYTHING
from reference.molecules import spellings
from torch_geometric.data import Data

from graphormer_sepnorm.errors import CheckpointError, ConfigError, DataError
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.inference.checkpoint import KEY
from graphormer_sepnorm.inference.predictor import Predictor

CAFFEINE = "CN1C=NC2=C1C(=O)N(C(=O)N2C)C"
IBUPROFEN = "CC(C)Cc1ccc(cc1)C(C)C(=O)O"


@pytest.fixture(scope="module", params=[{}, EVERYTHING], ids=["graphormer", "everything"])
def predictor(request):
    return Predictor(make_checkpoint(**request.param), device="cpu")


def test_copies_and_pickles_predict_the_same(predictor):
    """As processes that are spawned take it, and joblib; and no random number is drawn."""
    before = torch.random.get_rng_state()
    values = predictor.predict([CAFFEINE, "CCO"]).values
    for again in (copy.deepcopy(predictor), pickle.loads(pickle.dumps(predictor))):
        np.testing.assert_array_equal(again.predict([CAFFEINE, "CCO"]).values, values)
    checkpoint = make_checkpoint()
    torch.random.set_rng_state(before)
    Predictor(checkpoint, device="cpu")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_rows_keep_their_places_and_bad_ones_say_why(predictor):
    predictions = predictor.predict(["CCO", "not a molecule", "", CAFFEINE, "C1CC", "[Na+].[Cl-]"])
    assert predictions.smiles[3] == CAFFEINE
    bad = [False, True, True, False, True, True]
    assert [bool(error) for error in predictions.errors] == bad
    assert np.isnan(predictions.values[:, 0]).tolist() == bad
    assert "unclosed ring" in predictions.errors[4]
    assert predictions.errors[5] == (
        "not understood by this model: Cl, Na did not occur in its training data"
    )


@pytest.mark.parametrize(
    "form",
    [
        *(np.array, pandas.Series, iter, pyarrow.array),
        lambda smiles: pandas.DataFrame({"any": smiles}),
        lambda smiles: [[one] for one in smiles],
        lambda smiles: [Chem.MolFromSmiles(one) for one in smiles],
    ],
)
def test_smiles_come_in_any_list(form, predictor):
    smiles = ["CCO", "CCN", "Oc1ccccc1"]
    expected = predictor.predict(smiles)
    found = predictor.predict(form(smiles))
    assert found.smiles == expected.smiles
    np.testing.assert_array_equal(found.values, expected.values)
    embedded = predictor.embed(form(smiles))
    np.testing.assert_array_equal(embedded.values, predictor.embed(smiles).values)


@pytest.mark.parametrize(
    "given", [pandas.DataFrame({"C": ["CCO"], "N": ["CCN"]}), np.array("CCO"), {"C": 1}, None, 3]
)
def test_what_is_no_list_of_smiles_is_refused(given, predictor):
    for ask in (predictor.predict, predictor.embed, predictor.explain):
        with pytest.raises(DataError, match=type(given).__name__):
            ask(given)


def test_values_depend_on_neither_company_nor_batch_size_nor_spelling(predictor):
    smiles = ["CCO", CAFFEINE, IBUPROFEN, "C", "C" * 60, "O=C=O"]
    together = predictor.predict(smiles).values
    alone = np.concatenate([predictor.predict(text).values for text in smiles])
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(predictor.predict(smiles, batch_size=2).values, together, rtol=1e-5)
    assert np.std(together) > 1e-3
    assert all(len(column) == 0 for column in predictor.predict([]).table.values())
    for text in (CAFFEINE, IBUPROFEN, "C1CC2CCC1CC2", "c1ccc2ccccc2c1"):
        given = spellings(text, 8)
        assert len(set(given)) > 1
        values = predictor.predict(given).values
        np.testing.assert_allclose(values, values[0].repeat(8)[:, None], rtol=1e-4, atol=1e-5)


def test_values_are_in_real_units_and_probabilities():
    checkpoint = make_checkpoint()
    standardized = make_checkpoint()
    standardized["state_dict"] = checkpoint["state_dict"]
    standardized[KEY].update(target_mean=[0.0], target_std=[1.0])
    real = Predictor(checkpoint, "cpu").predict(CAFFEINE).values
    plain = Predictor(standardized, "cpu").predict(CAFFEINE).values
    np.testing.assert_allclose(real, plain * 2 + 3, rtol=1e-9)

    binary = make_checkpoint(kind="binary")
    binary["state_dict"] = checkpoint["state_dict"]
    probability = Predictor(binary, "cpu").predict(CAFFEINE).values
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-plain)), rtol=1e-9)


@pytest.mark.parametrize("verb", ["predict", "embed", "explain"])
def test_a_model_of_graphs_without_smiles_says_so(verb):
    predictor = Predictor(make_checkpoint(featurizer=None), "cpu")
    with pytest.raises(CheckpointError, match="predict_graphs"):
        getattr(predictor, verb)(["CCO"])


def graphs_of(predictor, smiles):
    graphs = (predictor.reader.featurizer.featurize(Chem.MolFromSmiles(one)) for one in smiles)
    parts = ("atom_codes", "edge_index", "bond_codes")
    return [Data(*(torch.from_numpy(getattr(one, part)) for part in parts)) for one in graphs]


def test_graphs_are_predicted_as_their_molecules(predictor):
    smiles = ["CCO", CAFFEINE, "C", "[Si]C"]
    graphs = graphs_of(predictor, smiles)
    own = Predictor(make_checkpoint(featurizer=None), "cpu")
    own.networks, own.vocabulary = predictor.networks, predictor.vocabulary
    found = own.predict_graphs(graphs)
    expected = predictor.predict(smiles)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-5)
    assert [*map(bool, found.errors)] == [*map(bool, expected.errors)] == [False] * 3 + [True]
    assert found.to_pandas()["pred_property"].notna().tolist() == [True] * 3 + [False]
    assert own.predict_graphs([]).values.shape == (0, 1)
    own = Predictor.load("molhiv", "cpu")  # whose probabilities are calibrated
    found, expected = own.predict_graphs(graphs_of(own, smiles[:3])), own.predict(smiles[:3])
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-5)
    with pytest.raises(DataError, match="graph 0"):
        own.predict_graphs([Data(x=torch.rand(3, 1), edge_index=torch.zeros(2, 0))])


def test_a_batch_of_graphs_goes_through_the_network(predictor):
    smiles = ["CCO", CAFFEINE]
    batch = GraphBatch.from_data_list(
        graphs_of(predictor, smiles), predictor.vocabulary, predictor.model.config.max_path_length
    )
    with torch.inference_mode():
        values = predictor.model(batch).numpy() * 2 + 3
    np.testing.assert_allclose(values, predictor.predict(smiles).values, rtol=1e-5, atol=1e-5)
    own = GraphVocabulary.from_data_list(graphs_of(predictor, smiles))
    assert own.atoms.seen[0] == (5, 6, 7)  # C, N, O


def test_predictions_are_shown_and_become_a_data_frame(predictor):
    for shown in (repr(predictor), repr(predictor.predict(["CCO"] * 50))):
        assert "property" in shown
        assert len(shown) < 500
    frame = Predictor.load("esol", "cpu").predict(["CCO", "no molecule"]).to_pandas()
    assert {"smiles", "pred_logSolubility", "in_domain", "warning", "error"} <= {*frame.columns}
    assert frame["smiles"].tolist() == ["CCO", "no molecule"]
    assert np.isnan(frame["pred_logSolubility"][1])


def test_what_is_new_to_the_model_is_said(predictor):
    ion, radical, plain = predictor.predict(["C[N+2]C", "[CH2]C", "CC"]).warnings
    assert "formal charge 2" in ion
    assert "radical electrons 1" in radical
    assert plain == ""
    cis, ring = predictor.predict(["C/C=C\\C", "C1CCCCC1"]).warnings
    assert cis == "not seen in training: bond stereo STEREOZ"
    assert ring == ""


@pytest.mark.parametrize("connected", [True, False])
def test_molecules_beyond_the_training_data_and_beyond_the_limit(connected):
    checkpoint = make_checkpoint()
    summary = {"atoms": {"min": 1, "mean": 5, "max": 9}, "targets": [], "connected": connected}
    checkpoint[KEY]["training_summary"] = summary
    smiles = ["C" * 9, "C" * 10, "CCO.CC", "C.C.C", "C" * 11]
    predictions = Predictor(checkpoint, "cpu").predict(smiles, max_atoms=10)
    large = "10 atoms; the largest molecule in training had 9"
    pieces = [f"{n} pieces; molecules in training had one" if connected else "" for n in (2, 3)]
    assert predictions.warnings == ("", large, *pieces, "")
    assert predictions.errors[4] == "too large: 11 atoms, the limit is 10 (--max_atoms)"
    assert np.isfinite(predictions.values[:, 0]).tolist() == [True] * 4 + [False]


def test_what_is_no_smiles_is_told_from_an_empty_cell(predictor):
    *numbers, none, nan, deuterium = predictor.predict([5, 0.5, None, math.nan, "[2H]C"]).errors
    assert ["int" in numbers[0], "float" in numbers[1]] == [True, True]
    assert none == nan == "the SMILES is empty"
    assert "H (written as an atom, as deuterium is) did not occur" in deuterium


def test_memory_of_a_batch_is_bounded(predictor, monkeypatch):
    seen = []
    values = Predictor._values

    def spy(self, graphs):
        seen.append([graph.num_atoms for graph in graphs])
        return values(self, graphs)

    monkeypatch.setattr(Predictor, "_values", spy)
    monkeypatch.setattr("graphormer_sepnorm.inference.batching._MAX_PAIRS", 2000)
    smiles = ["C" * n for n in (40, 3, 60, 3, 20, 3, 20, 3)]
    together = predictor.predict(smiles, batch_size=3).values
    assert sorted(size for batch in seen for size in batch) == [3, 3, 3, 3, 20, 20, 40, 60]
    assert all(len(batch) <= 3 for batch in seen)
    assert all(len(batch) == 1 or len(batch) * (max(batch) + 1) ** 2 <= 2000 for batch in seen)
    np.testing.assert_allclose(together, Predictor.predict(predictor, smiles).values, rtol=1e-5)


def test_a_value_that_is_not_finite_is_an_error():
    checkpoint = make_checkpoint()
    checkpoint[KEY]["target_std"] = [float("inf")]
    predictor = Predictor(checkpoint, "cpu")
    predictions = predictor.predict(["CCO", "C/C=C\\C"])
    assert predictions.errors == ("the model gives no finite value for it",) * 2
    assert predictions.warnings == ("", "")  # of values
    assert np.isnan(predictions.values).all()
    (explained,) = predictor.explain("CCO").molecules
    assert explained.error == predictions.errors[0]
    assert len(explained.contributions) == len(explained.fragments) == 0


@pytest.mark.parametrize("device", ["cuda:99", "gpu"])
def test_unknown_device_is_one_line(device):
    with pytest.raises(ConfigError, match=f"device '{device}'") as raised:
        Predictor(make_checkpoint(), device)
    assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError, match=r"Predictor\.load\('esol'\)"):
        Predictor("esol", device)  # type: ignore[arg-type]
