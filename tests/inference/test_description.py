"""What a checkpoint says about itself, and the small file that is made of it."""

from __future__ import annotations

import hashlib
import re

import pytest
import torch
from reference.checkpoints import make_checkpoint
from reference.confidence import confidence
from reference.trees import boosted_trees

from graphormer_sepnorm.baselines.blend import Blend
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.inference.checkpoint import (
    BLEND,
    CONFIDENCE,
    KEY,
    find_checkpoint,
    model_weights,
    read_checkpoint,
    save_for_prediction,
)
from graphormer_sepnorm.inference.description import describe, model_card
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer, count_parameters


@pytest.fixture
def checkpoint():
    made = make_checkpoint()
    made[KEY].update(
        training_graphs=902,
        training_summary={
            "atoms": {"min": 1, "mean": 13.2, "max": 55},
            "targets": [{"labels": 902, "mean": -3.0, "std": 2.1, "min": -11.6, "max": 1.58}],
        },
        validation={"validation_loss": 0.3, "validation_mae": 0.6543},
        packages={"torch": "2.13.0"},
        data_options={"table": "/home/somebody/esol.csv"},
    )
    made.update(
        epoch=4, global_step=150, optimizer_states=[{"exp_avg": torch.ones(200_000)}], callbacks={}
    )
    return made


def test_description_holds_what_predicting_needs_to_know(checkpoint, tmp_path):
    torch.save(checkpoint, tmp_path / "model.ckpt")
    lines = describe(checkpoint, tmp_path / "model.ckpt").splitlines()
    text = "\n".join(lines)
    assert "property [mol/L]; 902 labels from -11.6 to 1.58, mean -3" in text
    assert "a test (fingerprint none), 902 molecules of 1 to 55 atoms\n" in text
    assert "epoch 5, step 150" in text
    assert "mae 0.6543" in text
    assert "by molecule-1" in text
    checkpoint[KEY]["training_summary"]["connected"] = True
    assert "1 to 55 atoms, each of one piece\n" in describe(checkpoint, tmp_path / "model.ckpt")
    model = Graphormer(GraphormerConfig(**checkpoint[KEY]["model"]))
    assert f"{count_parameters(model):,} parameters" in text
    assert all(line == line.rstrip() for line in lines)


def test_hundreds_of_targets_are_counted():
    path = find_checkpoint("graphormer-small")
    text = describe(read_checkpoint(path), path)
    assert re.search(r"predicts +1,062 targets: MaxAbsEStateIndex, ", text)
    assert text.count("predicts") == 1


def test_description_of_older_and_of_other_checkpoints():
    assert "predicts" in describe(make_checkpoint())  # without a summary
    assert "not possible" in describe(make_checkpoint(featuriser=None))
    assert "probability of class 1" in describe(make_checkpoint(kind="binary"))


def test_description_says_how_the_model_is_not_graphormer():
    flags = dict.fromkeys(("ring_bias", "bond_states", "degree_scaler", "bias_mixing"), True)
    options = {"encodings": "rings", "local_mpnn": "gine", "local_layers": 1}
    text = describe(make_checkpoint(**options, **flags, readout="both"))
    beyond = (
        "encodings rings, ring_bias, local_mpnn gine, local_layers 1, bond_states, "
        "degree_scaler, bias_mixing, readout both"
    )
    assert re.search(rf"^beyond it +{beyond}$", text, re.MULTILINE)
    assert "beyond it" not in describe(make_checkpoint())


@pytest.fixture
def manifold(checkpoint):
    """An ensemble that is blended with trees and knows its errors."""
    members = [model_weights(make_checkpoint()) for _ in range(2)]
    blend = Blend.of_trees(boosted_trees(targets=1)[0], 0.25).to_plain()
    blend["validation"] = {"mae": 0.125}
    parts = {"members": members, BLEND: blend, CONFIDENCE: confidence(spread=True).to_plain()}
    return checkpoint | parts


def test_description_of_what_stands_beside_a_network(manifold):
    alone, text = describe(make_checkpoint()), describe(manifold)
    for said in (
        "ensemble      3 such networks; their mean is predicted",
        "0.25 of the network, 0.75 of gradient boosting: 8 trees",
        "of the blend  mae 0.1250",
        "intervals, by the errors on up to 34 unseen molecules",
        "fingerprints, SMILES, labels of 34 training molecules",
    ):
        assert said in text
    assert not any(word in alone for word in ("such networks", "boosting", "interval", "keeps"))
    blend = Blend.of_trees(boosted_trees(targets=2, without=0)[0], 0.25).to_plain()
    text = describe(make_checkpoint(targets=("a", "b")) | {BLEND: blend})
    assert "1 of 2 targets by the network alone" in text


def test_probabilities_are_calibrated_where_a_map_changes_them():
    classes = confidence("binary").to_plain()
    (one,) = classes["targets"]
    said = describe(make_checkpoint(kind="binary") | {CONFIDENCE: classes})
    assert "probabilities as they come, by up to 34 labels" in said
    one["map"] |= {"a": 2.0, "b": 2.0}
    text = describe(make_checkpoint(kind="binary") | {CONFIDENCE: classes})
    assert "calibrated (temperature)" in text
    one["map"] |= {"a": 1.0, "b": 1.0}
    text = describe(make_checkpoint(kind="binary") | {CONFIDENCE: classes | {"temperature": 2.0}})
    assert "calibrated (temperature)" in text


def test_a_card_has_the_same_facts(checkpoint, tmp_path):
    checkpoint[KEY]["card"] = {"purpose": "a | b"}
    torch.save(checkpoint, file := tmp_path / "a.ckpt")
    heading, *rows = model_card(checkpoint, file).splitlines()
    assert heading == "# a"
    labels = [line.split("  ")[0] for line in describe(checkpoint, file).splitlines()]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows[3:]] == [*labels, "SHA-256"]
    assert "| purpose | a \\| b |" in rows
    assert rows[-1] == f"| SHA-256 | {hashlib.sha256(file.read_bytes()).hexdigest()} |"


def test_file_for_prediction_is_small_and_predicts_the_same(manifold, tmp_path):
    torch.save(manifold, tmp_path / "whole.ckpt")
    manifold[KEY]["from_pretrained"] = "/home/somebody/backbone"
    save_for_prediction(manifold, tmp_path / "slim.ckpt", card={"model": "a test"})
    slim = read_checkpoint(tmp_path / "slim.ckpt")
    assert "optimizer_states" not in slim
    assert "somebody" not in str(slim[KEY])
    assert slim[KEY]["from_pretrained"] == "backbone"
    assert (tmp_path / "slim.ckpt").stat().st_size < (tmp_path / "whole.ckpt").stat().st_size / 2
    assert [path.name for path in tmp_path.glob("slim*")] == ["slim.ckpt"]
    smiles = ["CCO", "c1ccccc1O"]
    both = (Predictor.load(tmp_path / f"{name}.ckpt", "cpu") for name in ("whole", "slim"))
    whole, again = (predictor.predict(smiles) for predictor in both)
    assert whole.numbers.shape == (2, 6)
    assert whole.numbers.tolist() == again.numbers.tolist()
    assert whole.texts == again.texts
    assert "a test" in describe(slim).splitlines()[0]


def test_bundled_models_go_by_name(monkeypatch, tmp_path, checkpoint):
    models = tmp_path / "package" / "data" / "models"
    models.mkdir(parents=True)
    save_for_prediction(checkpoint, models / "solubility.ckpt")
    monkeypatch.setattr("graphormer_sepnorm.resources._PACKAGE", tmp_path / "package")
    monkeypatch.chdir(tmp_path)
    assert find_checkpoint("solubility") == models / "solubility.ckpt"
    with pytest.raises(CheckpointError, match=r"did you mean 'solubility'\?.*come: solubility"):
        find_checkpoint("solubilty")
    (tmp_path / "solubility").write_bytes(b"what lies in the folder goes first")
    assert find_checkpoint("solubility").resolve() == tmp_path / "solubility"
