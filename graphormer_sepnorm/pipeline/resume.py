"""Continuing a run in its own directory: ``train.py fit --resume RUN``."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphormer_sepnorm.config import CHANGEABLE, FitConfig, ModelConfig
from graphormer_sepnorm.errors import CheckpointError, ConfigError
from graphormer_sepnorm.inference.checkpoint import TRAINED_WEIGHTS, read_checkpoint
from graphormer_sepnorm.process import is_first_process
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.runs.locks import RunLock

log = logging.getLogger(__name__)

# Options of what follows the training, of an ensemble once for all members; and of where data lie.
_AFTERWARDS = ("baselines", "members", "keep", "data.root", "data.table")
# Of steps that are still to be taken, which these may add.
_LONGER = ("early_stopping", "trainer.max_epochs", "trainer.max_steps", "trainer.max_time")
_OF_STEPS = (
    *("checkpoint_minutes", "ema_decay", "engine", "logger", "trainer.gradient_clip_val"),
    *("trainer.gradient_clip_algorithm", *(f"model.{name}" for name in CHANGEABLE)),
)
_CHANGEABLE = (
    *(*_AFTERWARDS, *_LONGER, *_OF_STEPS),
    *("data.validation_table", "data.test_table", "data.molecules"),
    *("data.num_workers", "data.attention_blocks", "data.eval_batch_size"),
)


@dataclass(frozen=True)
class Resumed:
    """A run that is continued.

    Attributes:
        directory: Where it is.
        changed: Whether other options were given, which count from now on.
        effective: The options of the training that continues: a pre-trained network is part of the
            checkpoint by now.
        checkpoint: From which; None: it starts over, or its members go on.
        step: Optimizer steps already taken.
        message: What is printed about it.
    """

    directory: Path
    changed: bool
    effective: FitConfig
    checkpoint: Path | None
    step: int
    message: str


def stored_model(checkpoint: Mapping[str, Any]) -> ModelConfig:
    """Return the options of the network in a checkpoint."""
    stored = checkpoint.get("hyper_parameters", {})
    return ModelConfig(**{name: stored[name] for name in ModelConfig.names() if name in stored})


def resume(directory: Path, config: FitConfig, typed: Collection[str], place: RunLock) -> Resumed:
    """Take the directory of a run and its newest checkpoint that is whole.

    A run that was stopped before its first one starts over. `config` has its options, with those
    that were `typed` now.

    Raises:
        ConfigError: Another process is at work there, or an option cannot be changed any more.
        CheckpointError: Its checkpoints are damaged.
    """
    run = RunDirectory(directory)
    ensemble = run.members.is_dir() or config.ensemble > 1
    for name in sorted(typed):
        changeable = name in (_AFTERWARDS if ensemble else _CHANGEABLE)
        batch = name == "trainer.accumulate_grad_batches"
        if not changeable and (ensemble or batch or not name.startswith("trainer.")):
            what = "an ensemble" if ensemble else "a run"
            raise ConfigError(
                f"--resume and --{name}: {what} has it from its beginning, leave it out"
            )
        if run.finished and name in _OF_STEPS and not {*_LONGER} & {*typed}:
            raise ConfigError(
                f"{directory} is finished, and --{name} acts only on steps that are added: give "
                "--trainer.max_epochs too, or leave it out"
            )
    place.reopen(directory)
    damaged = []
    for file in (run.last, run.previous):
        if not file.is_file():
            continue
        try:
            checkpoint = read_checkpoint(file)
            step = int(checkpoint["global_step"])
        except (CheckpointError, KeyError) as error:
            damaged.append(str(error))
            continue
        if damaged:
            log.warning("%s; going on from %s, the one before it", damaged[0], file)
            if is_first_process():  # or the next one saved would make it the one before
                run.last.replace(run.last.with_name(f"damaged-{run.last.name}"))
        if TRAINED_WEIGHTS in checkpoint and not config.ema_decay:
            raise ConfigError(f"{file} holds averaged weights: give --ema_decay to go on with them")
        own = {n: getattr(config.model, n) for n in CHANGEABLE if f"model.{n}" in typed}
        model = dataclasses.replace(stored_model(checkpoint), **own)
        effective = dataclasses.replace(config, model=model)
        message = f"run    {directory}, continued from step {step:,}"
        return Resumed(directory, bool(typed), effective, file, step, message)
    if damaged and not run.members.is_dir():
        raise CheckpointError(
            f"{damaged[0]}, and there is no whole one before it: start the run over"
        )
    begun = "from the beginning: no training has left a checkpoint in it"
    how = "continued with its members" if run.members.is_dir() else begun
    return Resumed(directory, bool(typed), config, None, 0, f"run    {directory}, {how}")
