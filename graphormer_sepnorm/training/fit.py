"""One network: its trainer, and the result of its best checkpoint."""

from __future__ import annotations

import logging
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import Logger

from graphormer_sepnorm.config import FitConfig, TrainerConfig
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.inference.checkpoint import KEY, read_checkpoint
from graphormer_sepnorm.metrics import Metric
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
from graphormer_sepnorm.training.described import Tested
from graphormer_sepnorm.training.module import GraphormerModule

log = logging.getLogger(__name__)


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
        *([] if validated and config.trainer.limit_val_batches != 0 else [measuring]),
        *([] if config.engine == "eager" else [CapturedTraining(config.engine == "compiled")]),
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
