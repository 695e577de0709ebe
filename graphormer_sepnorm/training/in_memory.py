"""Training without a run directory: a data set in, a checkpoint for prediction out."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.inference.checkpoint import read_checkpoint, save_for_prediction
from graphormer_sepnorm.training.callbacks.averaging import AveragedWeights
from graphormer_sepnorm.training.callbacks.divergence import StopWhenDiverged
from graphormer_sepnorm.training.module import GraphormerModule

# torch's random numbers and the filters of warnings are of the whole process: of two trainings in
# threads of one, each would draw from the other's.
_one_at_a_time = threading.Lock()


def _forget_threads() -> None:
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


# A child has none of the threads of its parent, one of which may have been training.
os.register_at_fork(after_in_child=_forget_threads)


def train_in_memory(
    module: GraphormerModule,
    splits: DatasetSplits,
    *,
    data_options: dict[str, Any],
    trainer_options: dict[str, Any],
    ema_decay: float,
    device: str,
    verbose: bool,
) -> bytes:
    """Train a network and return its checkpoint.

    Nothing is written but to a temporary folder, which is gone afterwards; nothing is said, and
    torch's random numbers go on as if nothing had been trained. Threads of a process train one
    after the other.

    Args:
        module: What is trained, new.
        splits: With a validation split, the epoch with the lowest loss on it is kept; if that is
            empty, the last one.
        data_options: Of `MoleculeDataModule`.
        trainer_options: Of Lightning's `Trainer`.
        ema_decay: Of the average of the weights that is kept; 0 keeps the weights.
        device: cpu, cuda or cuda:1 ...
        verbose: Show Lightning's progress bar.

    Returns:
        The file of `save_for_prediction`.

    Raises:
        GraphormerError: Training is impossible with these options or data.
    """
    validate = len(splits.validation) > 0
    kind, number = _checked(device)
    with (
        _one_at_a_time,
        tempfile.TemporaryDirectory(prefix="graphormer-") as folder,
        torch.random.fork_rng(devices=[number or 0] if kind == "cuda" else []),
        _quiet(),
    ):
        best = ModelCheckpoint(
            folder,
            "best",
            monitor="validation_loss",
            enable_version_counter=False,
            save_on_train_epoch_end=False,
        )
        trainer = Trainer(
            accelerator="gpu" if kind == "cuda" else kind,
            devices=1 if number is None else [number],
            callbacks=[
                *([AveragedWeights(ema_decay)] if ema_decay else []),
                _MeasuredAtTheEnd(),
                StopWhenDiverged(),
                *([best] if validate else []),
            ],
            limit_val_batches=1.0 if validate else 0,
            logger=False,
            enable_checkpointing=validate,
            enable_progress_bar=verbose,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            default_root_dir=folder,
            # One process, also inside a job of a batch system that could start more.
            plugins=[LightningEnvironment()],
            **trainer_options,
        )
        data = MoleculeDataModule.from_splits(
            splits,
            root=folder,
            seed=module.hparams["seed"],
            max_path_length=module.architecture.max_path_length,
            **data_options,
        )
        try:
            trainer.fit(module, data)
        except MisconfigurationException as error:  # as Lightning calls a mistake in its options
            raise ConfigError(" ".join(str(error).split())) from error
        except SystemExit:
            if not trainer.interrupted:
                raise
            raise KeyboardInterrupt from None  # which Lightning would let end the process
        kept = Path(best.best_model_path) if validate else Path(folder) / "last.ckpt"
        if not validate:
            trainer.save_checkpoint(kept)
        slim = Path(folder) / "model.ckpt"
        save_for_prediction(read_checkpoint(kept), slim)
        return slim.read_bytes()


def _checked(device: str) -> tuple[str, int | None]:
    """Return cpu or cuda, and which of the GPUs if that is said.

    Raises:
        ConfigError: It is none of these, or is not there.
    """
    kind, _, number = device.partition(":")
    if device != "cpu" and (kind != "cuda" or (number and not number.isdecimal())):
        raise ConfigError(f"device is {device!r}: it must be cpu, cuda or cuda:1 ...")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device is {device!r}, and torch finds {torch.cuda.device_count() or 'no'} GPU here: "
            "give cpu, or None for a GPU if there is one"
        )
    return kind, int(number) if number else None


class _MeasuredAtTheEnd(Callback):
    """Measures BatchNorm's statistics for the last weights, which no validation may have done."""

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        pl_module.measure_batch_norm()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide what Lightning says of devices, workers and other products, and give it back its voice.

    Warnings of this package are messages of its own loggers, and stay.
    """
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("pytorch", "fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        for category in (UserWarning, FutureWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", category=category, module=r"(lightning|torch)\b")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
