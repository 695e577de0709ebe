"""Tiny data sets and trainers for the training tests."""

from collections.abc import Callable
from pathlib import Path

import pytest
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from tiny_graphs import path_graphs

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.training.module import GraphormerModule

REGRESSION = Task("regression", ("size",), ("bonds",), "mae")
TINY_MODEL = {
    **{"layers": 2, "width": 16, "heads": 2, "ffn_width": 16, "max_path_length": 3},
    **{"learning_rate": 3e-3, "warmup_steps": 2},
}


@pytest.fixture
def splits() -> DatasetSplits:
    """Training, validation and test sets of sizes that no batch size divides."""
    parts = path_graphs(37, 1), path_graphs(13, 2), path_graphs(11, 3)
    return DatasetSplits("paths", *parts, REGRESSION, "paths-1", "paths")


@pytest.fixture
def make_data(tmp_path: Path, splits: DatasetSplits) -> Callable[..., MoleculeDataModule]:
    """Make a data module of `splits` (or others), batch size 8."""

    def make(own: DatasetSplits | None = None, **options: object) -> MoleculeDataModule:
        defaults = {"root": str(tmp_path / "root"), "batch_size": 8, "max_path_length": 3}
        return MoleculeDataModule.from_splits(own or splits, **{**defaults, **options})

    return make


@pytest.fixture
def make_module() -> Callable[..., GraphormerModule]:
    """Make a tiny module."""
    return lambda **options: GraphormerModule(**{**TINY_MODEL, **options})


@pytest.fixture
def make_trainer(tmp_path: Path) -> Callable[..., Trainer]:
    """Make a trainer that writes and shows nothing unless it is told to."""

    def make(**options: object) -> Trainer:
        defaults = {"accelerator": "cpu", "logger": False, "num_sanity_val_steps": 0}
        defaults |= {"enable_progress_bar": False, "enable_model_summary": False}
        defaults |= {"default_root_dir": tmp_path, "max_epochs": 2}
        saving = any(isinstance(one, ModelCheckpoint) for one in options.get("callbacks", []))
        return Trainer(**{**defaults, "enable_checkpointing": saving, **options})

    return make


@pytest.fixture
def train(make_module: Callable, make_data: Callable, make_trainer: Callable) -> Callable:
    """Train a tiny module, to the end or until Ctrl-C; return it, its data and the trainer.

    Called with callbacks, `model` options, `data` (a module, or options of one), the checkpoint to
    `resume` from, and options of the trainer.
    """

    def run(
        *callbacks: Callback,
        model: dict | None = None,
        data: MoleculeDataModule | dict | None = None,
        resume: Path | None = None,
        **options: object,
    ) -> tuple[GraphormerModule, MoleculeDataModule, Trainer]:
        module = make_module(**(model or {}))
        own = data if isinstance(data, MoleculeDataModule) else make_data(**(data or {}))
        trainer = make_trainer(callbacks=list(callbacks), **options)
        try:
            trainer.fit(module, own, ckpt_path=resume, weights_only=True)
        except SystemExit:
            assert trainer.interrupted
        return module, own, trainer

    return run


class Losses(Callback):
    """Records the loss of every training step."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: dict, *arguments: object
    ) -> None:
        self.values.append(float(outputs["loss"]))


@pytest.fixture
def losses() -> type[Losses]:
    """The callback that records training losses."""
    return Losses
