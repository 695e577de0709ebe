"""Training that diverges stops at once, says where, and keeps what it met."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.training.checkpoints import LastCheckpoint, StopWhenDiverged


class Poison(Callback):
    """Makes the loss of one step infinite or nan."""

    def __init__(self, step: int, value: float) -> None:
        self.step = step
        self.value = value

    def on_train_batch_start(self, trainer: Trainer, module: Any, *_: Any) -> None:
        if trainer.global_step == self.step:
            torch.nn.init.constant_(module.model.readout.bias, self.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_step_rate_and_batch_are_told(value: float, tmp_path: Path, train: Callable) -> None:
    met: list[Any] = []
    rates: list[float] = []

    class Meet(Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, *_: Any) -> None:
            met.append(batch)
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    run = tmp_path / "my run"
    run.mkdir()
    last = LastCheckpoint(tmp_path / "last.ckpt", minutes=0)
    with pytest.raises(ConfigError) as caught:
        train(Poison(7, value), Meet(), StopWhenDiverged(run), last)
    record = json.loads((run / "diverged.json").read_text())
    assert (record["step"], record["epoch"], record["batch"]) == (8, 1, 2)
    assert record["learning_rate"] == rates[-1] != rates[-2]
    assert f"diverged at step 8 (epoch 2, learning rate {record['learning_rate']:.3g})" in str(
        caught.value
    )
    assert f"--resume '{run}' --model.learning_rate 0.0015" in str(caught.value)
    batch = met[-1]
    assert [molecule["number"] for molecule in record["molecules"]] == batch.graph_ids.tolist()
    targets = [molecule["targets"] for molecule in record["molecules"]]
    assert np.allclose(targets, batch.targets.numpy())
    assert sum(molecule["atoms"] for molecule in record["molecules"]) == len(batch.atom_rows)
    # Nothing that is not a number was saved: the newest checkpoint is from before.
    checkpoint = read_checkpoint(tmp_path / "last.ckpt")
    assert checkpoint["global_step"] == 7
    assert all(
        value.isfinite().all()
        for value in checkpoint["state_dict"].values()
        if value.is_floating_point()
    )


def test_molecules_of_a_step_are_those_of_all_its_batches(tmp_path: Path, train: Callable) -> None:
    met: list[int] = []

    class Meet(Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, *_: Any) -> None:
            met.extend(batch.graph_ids.tolist())

    with pytest.raises(ConfigError, match="diverged at step 2 "):
        train(
            Poison(1, float("nan")), Meet(), StopWhenDiverged(tmp_path), accumulate_grad_batches=2
        )
    molecules = json.loads((tmp_path / "diverged.json").read_text())["molecules"]
    assert len(met) == 8 + 8 + 7 + 7
    assert [one["number"] for one in molecules] == met[16:]


def test_nothing_is_saved_where_the_loss_is_looked_at_later(
    tmp_path: Path, train: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where 16 losses are looked at together."""
    watch = StopWhenDiverged(tmp_path)
    noticed = watch._look
    monkeypatch.setattr(watch, "_look", lambda *_: None)

    def look(trainer: Trainer, module: Any, checkpoint: dict[str, Any]) -> None:
        noticed(trainer, module)

    monkeypatch.setattr(watch, "on_save_checkpoint", look)
    last = LastCheckpoint(tmp_path / "last.ckpt", minutes=0)
    with pytest.raises(ConfigError, match="diverged at step 4 "):
        train(Poison(3, float("nan")), watch, last)
    assert read_checkpoint(tmp_path / "last.ckpt")["global_step"] == 3


class PoisonGradient(Callback):
    """Makes a gradient nan, of a loss that is a number."""

    def on_before_optimizer_step(self, trainer: Trainer, module: Any, *_: Any) -> None:
        if trainer.global_step == 6:
            module.model.readout.bias.grad.fill_(float("nan"))


def test_nothing_is_saved_after_a_gradient_that_is_nan(tmp_path: Path, train: Callable) -> None:
    last = LastCheckpoint(tmp_path / "last.ckpt", minutes=0)
    with pytest.raises(ConfigError, match=r"diverged at step 7 .* weights are nan"):
        train(PoisonGradient(), StopWhenDiverged(tmp_path), last)
    assert read_checkpoint(tmp_path / "last.ckpt")["global_step"] == 6
    assert json.loads((tmp_path / "diverged.json").read_text())["found"] == "weights are nan"


def test_divergence_of_the_training_itself(train: Callable) -> None:
    model = {"norm": "ln+ln", "learning_rate": 1e25, "warmup_steps": 0}
    with pytest.raises(
        ConfigError, match=r"diverged at step .* lower --model\.learning_rate or clip"
    ):
        train(StopWhenDiverged(), model=model, max_epochs=50)


def test_molecules_of_a_member_are_told_whatever_split_they_stand_in(
    tmp_path: Path, train: Callable
) -> None:
    chains = ["C" * (2 + n) for n in range(40)]
    table = tmp_path / "a.csv"
    table.write_text("\n".join(["smiles,y", *(f"{one},{len(one)}" for one in chains)]))
    options = {"split": "random", "member_folds": 3, "member_fold": 0, "batch_size": 64}
    data = MoleculeDataModule(table=str(table), root=str(tmp_path), max_path_length=3, **options)
    with pytest.raises(ConfigError, match="training diverged"):
        train(Poison(1, float("nan")), StopWhenDiverged(tmp_path), data=data)
    molecules = json.loads((tmp_path / "diverged.json").read_text())["molecules"]
    assert max(one["number"] for one in molecules) >= len(data.splits.train)
    assert all(len(one["smiles"]) == one["atoms"] == one["targets"][0] for one in molecules)


def test_a_member_of_an_ensemble_cannot_go_on_alone(tmp_path: Path, train: Callable) -> None:
    member = tmp_path / "run" / "members" / "seed0"
    member.mkdir(parents=True)
    with pytest.raises(ConfigError) as caught:
        train(Poison(2, float("nan")), StopWhenDiverged(member))
    assert str(caught.value).endswith("train another ensemble with --model.learning_rate 0.0015")
