"""One network: its length, its trainer, and the result of its best checkpoint."""

from __future__ import annotations

import dataclasses
import logging
import math
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import Logger

from graphormer_sepnorm.config import FitConfig, TrainerConfig
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError, Interrupted
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import KEY, read_checkpoint
from graphormer_sepnorm.metrics import LAST, METRICS, Kind, Metric, chosen_metric
from graphormer_sepnorm.model.graphormer import count_parameters
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.averaging import AveragedWeights
from graphormer_sepnorm.training.callbacks import (
    LogTraining,
    MetricsFile,
    RunRecord,
    Throughput,
    TrainingProgress,
    print_data_and_model,
)
from graphormer_sepnorm.training.checkpoints import (
    DurableCheckpointIO,
    StopBetweenSteps,
    StopWhenDiverged,
    ValidateAtTheEnd,
    checkpoint_callbacks,
)
from graphormer_sepnorm.training.cuda_graphs import CapturedTraining
from graphormer_sepnorm.training.module import GraphormerModule

log = logging.getLogger(__name__)

# Molecules that a network sees while it is fine-tuned, each as often as there are epochs.
_SHOWN: dict[Kind, int] = {"regression": 120_000, "binary": 24_000}


def epochs_of_table(molecules: int, kind: Kind) -> int:
    """Return how many epochs a network is fine-tuned for on so many molecules by default.

    As many as show it 120,000 molecules, of a classification 24,000, but 12 to 40: classes are soon
    memorised, numbers are not, and large tables take time. By validation errors alone, see
    docs/small-tables.md.
    """
    return min(40, max(12, round(_SHOWN[kind] / molecules)))


def settled_epochs(trainer: Any, data: Any) -> int | None:
    """Return the epochs that the options of a trainer give, or else those of the table."""
    open_ended = trainer.max_epochs is None and trainer.max_steps == -1
    if open_ended and data.splits.groups is not None:
        return epochs_of_table(data.numbers.trained_on, data.splits.task.kind)
    return trainer.max_epochs


def monitored_metric(
    task: Task, validation_targets: np.ndarray, chosen: str | None = None, patience: int = 0
) -> Metric:
    """Return what decides which checkpoint is the best.

    If nothing is chosen, the main metric, unless it is a mean of errors of several targets, or one
    that no target's labels define (its nan would be beaten by nothing, and the first epoch would
    stay the best): then the loss, which is of standardized values or of probabilities.

    Args:
        task: What is predicted.
        validation_targets: Labels of the validation split, ``[n, T]``; nan = missing.
        chosen: Name of a metric, or ``loss``, or ``last``.
        patience: See `checkpoint_callbacks`.

    Raises:
        ConfigError: What is chosen does not exist, or is not defined for these targets, or cannot
            stop early.
    """
    loss = METRICS["loss"]
    metric = task.main if chosen is None else chosen_metric(chosen, task.kind)
    if metric is LAST and patience:
        raise ConfigError(
            "--metric last takes the end of training, whatever it is, and nothing can say when to "
            "stop early: leave out --early_stopping, or choose a metric or loss"
        )
    if metric in (loss, LAST):
        return metric
    undefined = not any(map(metric.is_defined, validation_targets.T))
    if chosen is None:
        return loss if undefined or (metric.in_unit and len(task.targets) > 1) else metric
    if not task.has_mean(metric):
        units = listed(sorted({unit or "none" for unit in task.units}))
        raise ConfigError(
            f"--metric {chosen}: the targets have several units ({units}), in which it has no "
            "mean: choose one without a unit, or loss"
        )
    if undefined:
        raise ConfigError(
            f"--metric {chosen} is undefined on the validation split: no target has "
            f"{metric.lacking} there; choose another one, or loss"
        )
    return metric


@contextmanager
def explaining() -> Iterator[None]:
    """Turn what Lightning reports of a mistake in its options into one line, a ConfigError."""
    try:
        yield
    except (MisconfigurationException, ValueError) as error:
        *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
        of_lightning = str(innermost.f_globals.get("__name__", "")).startswith("lightning.")
        if not (isinstance(error, MisconfigurationException) or of_lightning):
            raise
        raise ConfigError(" ".join(str(error).split())) from error


@contextmanager
def interruptible(trainer: Trainer, what_was_saved: Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C into Interrupted, with what `what_was_saved` says.

    Lightning lets its callbacks save the state, then exits with status 1. Outside of its loops
    there is a KeyboardInterrupt.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, SystemExit) and not trainer.interrupted:
            raise
        raise Interrupted(what_was_saved()) from None


def make_trainer(options: TrainerConfig, **own: Any) -> Trainer:
    """Return Lightning's trainer for some options; those in `own` win."""
    given = {name: getattr(options, name) for name in TrainerConfig.names()}
    given = {name: value for name, value in given.items() if value is not None}
    given["accelerator"] = _accelerator(options.accelerator, str(options.devices))
    ours = {
        "enable_model_summary": False,  # our table says more
        "num_sanity_val_steps": 0,  # two validation batches before training only cost time
        "use_distributed_sampler": False,  # the batch sampler is our own
    }
    return Trainer(**{**given, **ours, **own})


def make_evaluator(options: TrainerConfig, **own: Any) -> Trainer:
    """Return a trainer that only evaluates, and keeps nothing."""
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return make_trainer(options, **quiet, **own)


def _accelerator(given: str, devices: str) -> str:
    """Lightning would take Apple's GPU by itself, which has no float64."""
    there = CUDAAccelerator.is_available()
    if devices == "-1" and (given == "cpu" or not there):
        raise ConfigError("--trainer.devices -1 means all GPUs: on a CPU give how many processes")
    if given == "auto":
        return "cuda" if there else "cpu"
    return "cuda" if given == "gpu" else given


def selection(config: FitConfig, data: MoleculeDataModule) -> tuple[Metric, Metric]:
    """Return what decides on the best checkpoint, and what is shown of a validation.

    Raises:
        ConfigError: The metric that is asked for is undefined, on the fold of some member perhaps.
    """
    task, patience = data.splits.task, config.early_stopping
    validation = data.store.targets[data.numbers.validated]
    if not len(validation):
        for name, given in (("metric", config.metric), ("early_stopping", patience)):
            if given and given != LAST.name:
                what = f"--{name} {given} goes by the validation split, and {data.splits.name} has"
                raise ConfigError(f"{what} none: leave it out, and the end of training is taken")
        return LAST, task.main
    selected = monitored_metric(task, validation, config.metric, patience)
    for member, fold in enumerate(data.numbers.of_members if config.metric is not None else ()):
        try:
            monitored_metric(task, data.store.targets[fold], config.metric, patience)
        except ConfigError as error:
            which = f"member {member}, which validates on a fold of its own"
            raise ConfigError(f"{which}: {error}, or --ensemble_by seeds") from None
    return selected, task.main if selected.kind is None else selected  # the loss is drawn anyway


def training_trainer(
    config: FitConfig,
    run: RunDirectory,
    selected: Metric,
    shown: Metric,
    resumed_step: int | None,
    more: list[Callback],
    *,
    validated: bool = True,
    alone: bool = False,
) -> Trainer:
    """Return the trainer of a run.

    Args:
        config: Of the training.
        run: Its directory.
        selected: What decides on the best checkpoint.
        shown: What is shown of a validation.
        resumed_step: Of the checkpoint that it continues from; None: it begins.
        more: Callbacks in addition to ours.
        validated: Whether there are molecules to validate on.
        alone: Whether it is no command that trains: one process, also inside a job of a batch
            system that could start more, and no picture is drawn.
    """
    metrics_file = MetricsFile(run.path)
    captured = config.engine != "eager"
    if resumed_step is None:  # there may be something of an earlier attempt
        metrics_file.keep(0)
        if rank_zero_only.rank == 0:
            shutil.rmtree(run.tensorboard, ignore_errors=True)
    # BatchNorm's statistics for the last weights, as validations do it.
    measuring = LambdaCallback(on_train_end=lambda _, module: module.measure_batch_norm())
    callbacks = [
        *more,
        # First what belongs to a step, then what checkpoints keep of it; what may fail and what
        # gives the signals back comes after what saves.
        *([AveragedWeights(config.ema_decay)] if config.ema_decay else []),
        *([] if validated else [measuring]),
        *([CapturedTraining(config.engine == "compiled")] if captured else []),
        LogTraining(metrics_file),
        StopWhenDiverged(),
        ValidateAtTheEnd(),
        Throughput(),
        *checkpoint_callbacks(
            run.path, selected.name, config.early_stopping, config.checkpoint_minutes
        ),
        *([] if alone else [LambdaCallback(on_fit_start=print_data_and_model)]),
        RunRecord(run, [Path(sys.argv[0]).name, *sys.argv[1:]]),
        StopBetweenSteps(),
        *([TrainingProgress(shown.name)] if config.trainer.enable_progress_bar else []),
    ]
    # The file first, so that Lightning's log directory is the run directory.
    loggers = [metrics_file, *_logger(config.logger, run, resumed_step or 0)]
    for logger in loggers:
        logger.log_hyperparams(config.to_plain())
    return make_trainer(
        config.trainer,
        default_root_dir=run.path,
        callbacks=callbacks,
        plugins=[DurableCheckpointIO(), *([LightningEnvironment()] if alone else [])],
        logger=loggers,
        enable_progress_bar=False,  # ours is of the whole training
        **({} if validated else {"limit_val_batches": 0}),
    )


def _logger(name: str, run: RunDirectory, step: int) -> list[Logger]:
    """The logger in addition to metrics.csv."""
    from lightning.pytorch import loggers

    try:
        if name == "tensorboard":
            # What it has from after the checkpoint is not shown.
            folder = run.path, "", run.tensorboard.name
            return [loggers.TensorBoardLogger(*folder, purge_step=step or None)]
        if name == "wandb":
            return [loggers.WandbLogger(save_dir=run.path, name=run.path.name)]
        if name == "mlflow":
            return [loggers.MLFlowLogger(run_name=run.path.name)]
    except ImportError as error:
        raise ConfigError(
            f"--logger {name} needs a package that is not installed: pip install {name}"
        ) from error
    return []


@dataclasses.dataclass
class Tested:
    """Result of the best checkpoint of a network, or an ensemble.

    Attributes:
        checkpoint: Its file.
        summary: As ``summary.json`` has it.
        validation: Metrics and loss of the checkpoint's validation.
        predictions: float64 ``[n, T]`` of the test split; None where only a part was tested.
    """

    checkpoint: Path
    summary: dict[str, Any]
    validation: dict[str, float]
    predictions: np.ndarray | None


def evaluate_best(
    trainer: Any,
    module: GraphormerModule,
    data: MoleculeDataModule,
    run: RunDirectory,
    selected: Metric,
) -> Tested | None:
    """Test the best checkpoint of a run; None of no checkpoint, and in all processes but one."""
    best = run.tested
    if trainer.fast_dev_run or best is None:
        if not trainer.fast_dev_run:
            print("no checkpoint was written: training took no step")
        return None
    epochs, steps = trainer.current_epoch, trainer.global_step
    checkpoint = read_checkpoint(best)
    validation = checkpoint[KEY]["validation"]
    # Not by `ckpt_path`: Lightning would set the callbacks back too, and with them metrics.csv and
    # the time that was measured.
    module.load_state_dict(checkpoint["state_dict"])
    values = tested(trainer, module, data)
    if not trainer.is_global_zero:
        return None
    throughput = next(call for call in trainer.callbacks if isinstance(call, Throughput))
    record = next(call for call in trainer.callbacks if isinstance(call, RunRecord))
    summary = {
        "dataset": data.dataset,
        "norm": module.model.config.norm,
        "seed": module.hparams["seed"],
        "dataset_fingerprint": data.splits.fingerprint,
        **values,
        **{
            f"best_validation_{metric.name}": validation.get(f"validation_{metric.name}", math.nan)
            for metric in (module.task.main, selected)
            if metric.kind is not None and len(data.numbers.validated)
        },
        "epochs": epochs,
        "steps": steps,
        "parameters": count_parameters(module.model),
        "seconds": record.seconds,
        "training_seconds": round(throughput.seconds, 1),
        "graphs_per_second": round(throughput.graphs_per_second * trainer.world_size, 1),
        "checkpoint": str(best),
    }
    return Tested(best, summary, validation, whole_test(module, data))


def tested(
    trainer: Trainer, module: GraphormerModule, data: MoleculeDataModule, **options: Any
) -> dict[str, float]:
    """Test a module; return the metrics, none where there are no test molecules."""
    if not len(data.indices("test")):
        return {}
    [values] = trainer.test(module, datamodule=data, verbose=False, **options)
    return {name: float(value) for name, value in values.items()}


def whole_test(module: GraphormerModule, data: MoleculeDataModule) -> np.ndarray | None:
    """Return what the test that has just ended predicted, float64 ``[n, T]``.

    None of a part of the split (--trainer.limit_test_batches), or without test molecules.
    """
    if not len(data.indices("test")):
        return None
    predictions = module.evaluated("test")
    return predictions if len(predictions) == len(data.indices("test")) else None
