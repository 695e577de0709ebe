"""What ends a training early is one line if it is the user's to mend, and else what it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

from graphormer_sepnorm.errors import CheckpointError, ConfigError
from graphormer_sepnorm.training.fit import explaining, restorable


def test_what_is_no_mistake_of_the_user_stays_what_it_is() -> None:
    for error in (RuntimeError("a fault"), ValueError("a fault")):
        with pytest.raises(type(error)) as found, explaining():
            raise error
        assert found.value is error


def test_what_lightning_says_of_its_options_is_one_line() -> None:
    with pytest.raises(ConfigError, match="strategy") as found, explaining():
        Trainer(accelerator="cpu", strategy="foo")
    assert "\n" not in str(found.value)


def trained(folder: Path, model: BoringModel, **options: Any) -> Trainer:
    """Train for a step more, where that is not the last."""
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        default_root_dir=folder,
        max_steps=2 if options else 1,
    )
    trainer.fit(model, torch.utils.data.DataLoader(torch.ones(2, 32)), **options)
    return trainer


def test_a_state_that_cannot_be_put_back_names_its_checkpoint(tmp_path: Path) -> None:
    file = str(tmp_path / "a.ckpt")
    trained(tmp_path, BoringModel()).save_checkpoint(file)
    with restorable(file):
        trained(tmp_path, BoringModel(), ckpt_path=file, weights_only=False)
    checkpoint = torch.load(file, weights_only=False)
    checkpoint["optimizer_states"][0]["param_groups"] = []
    torch.save(checkpoint, file)
    said = r"a\.ckpt cannot be restored \(ValueError: .*\): it is damaged, or of another version"
    with pytest.raises(CheckpointError, match=said), restorable(file):
        trained(tmp_path, BoringModel(), ckpt_path=file, weights_only=False)


def test_a_fault_of_training_is_no_fault_of_its_checkpoint(tmp_path: Path) -> None:
    class Faulty(BoringModel):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise ValueError("a fault")

    with pytest.raises(ValueError, match=r"^a fault$"), restorable("a.ckpt"):
        trained(tmp_path, Faulty())
