"""The facts of a checkpoint, and the small file that is made of it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference.checkpoints import make_checkpoint
from reference.confidence import confidence
from reference.trees import boosted_trees

from graphormer_sepnorm.baselines.blend import Blend
from graphormer_sepnorm.inference.checkpoint import (
    BLEND,
    CONFIDENCE,
    KEY,
    for_prediction,
    model_weights,
    read_checkpoint,
    write_checkpoint,
)
from graphormer_sepnorm.inference.model_card import describe
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer, count_parameters
from graphormer_sepnorm.runs.directory import find_checkpoint

FLAGS = {"encodings": "rings", "local_mpnn": "gine", "ring_bias": True, "bond_states": True}


@pytest.fixture
def checkpoint() -> dict[str, Any]:
    """An ensemble that is blended with trees and knows its errors, as a training leaves it."""
    made = make_checkpoint()
    made[KEY].update(
        training_graphs=902,
        training_summary={
            "atoms": {"min": 1, "mean": 13.2, "max": 55},
            "connected": True,
            "targets": [{"labels": 902, "mean": -3.0, "std": 2.1, "min": -11.6, "max": 1.58}],
        },
        validation={"validation_loss": 0.3, "validation_mae": 0.6543},
        packages={"torch": "2.13.0"},
        data_options={"table": "/home/somebody/esol.csv"},
        card={"purpose": "a test"},
    )
    blend = Blend.of_trees(boosted_trees(targets=1)[0], 0.25).to_plain()
    return made | {
        "members": [model_weights(make_checkpoint()) for _ in range(2)],
        BLEND: blend | {"validation": {"mae": 0.125}},
        CONFIDENCE: confidence(spread=True).to_plain(),
        "epoch": 4,
        "global_step": 150,
        "optimizer_states": [{"exp_avg": torch.ones(200_000)}],
    }


def test_it_holds_what_predicting_needs_to_know(checkpoint: dict[str, Any], tmp_path: Path) -> None:
    torch.save(checkpoint, file := tmp_path / "model.ckpt")
    text = describe(checkpoint, file)
    model = Graphormer(GraphormerConfig(**checkpoint[KEY]["model"]))
    for said in (
        "property [mol/L]; 902 labels from -11.6 to 1.58, mean -3",
        "a test (fingerprint none), 902 molecules of 1 to 55 atoms, each connected\n",
        *("epoch 5, step 150", "mae 0.6543", "featurizer    molecule-1"),
        f"{count_parameters(model):,} parameters",
        "ensemble      3 such networks; their mean is predicted",
        "0.25 the network + 0.75 gradient boosting: 8 trees",
        "of the blend  mae 0.1250",
        "intervals, by the errors on up to 34 unseen molecules",
        "fingerprints, SMILES, labels of 34 training molecules",
    ):
        assert said in text
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "predicts"),  # without a summary
        ({"featurizer": None}, "takes graphs, not SMILES"),
        ({"kind": "binary"}, "probability of class 1"),
        ({"readout": "both", "encodings": "rings"}, "encodings rings, readout both\n"),
        (FLAGS, "encodings rings, ring_bias, local_mpnn gine, bond_states\n"),
    ],
)
def test_other_checkpoints(options: dict[str, Any], said: str) -> None:
    text = describe(make_checkpoint(**options))
    assert said in text
    assert ("extensions" in text) is ("encodings" in options)
    assert not any(word in text for word in ("such networks", "boosting", "interval", "stored"))


def test_many_targets_are_counted() -> None:
    path = find_checkpoint("graphormer-small")
    text = describe(read_checkpoint(path), path)
    assert re.search(r"predicts +1,062 targets: MaxAbsEStateIndex, ", text)
    assert text.count("predicts") == 1


def test_file_for_prediction_is_small_and_predicts_the_same(checkpoint, tmp_path):
    torch.save(checkpoint, tmp_path / "whole.ckpt")
    checkpoint[KEY]["from_pretrained"] = "/home/somebody/backbone"
    write_checkpoint(for_prediction(checkpoint, {"model": "a test"}), tmp_path / "slim.ckpt")
    slim = read_checkpoint(tmp_path / "slim.ckpt")
    assert "optimizer_states" not in slim
    assert "somebody" not in str(slim[KEY])
    assert slim[KEY]["from_pretrained"] == "backbone"
    assert (tmp_path / "slim.ckpt").stat().st_size < (tmp_path / "whole.ckpt").stat().st_size / 2
    assert [path.name for path in tmp_path.glob("slim*")] == ["slim.ckpt"]
    both = (Predictor.load(tmp_path / f"{name}.ckpt", "cpu") for name in ("whole", "slim"))
    whole, again = (predictor.predict(["CCO", "c1ccccc1O"]) for predictor in both)
    assert len(whole.columns) == 6
    for one, other in zip(whole.table.values(), again.table.values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert "a test" in describe(slim).splitlines()[0]
