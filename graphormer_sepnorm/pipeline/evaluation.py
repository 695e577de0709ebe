"""Evaluating a checkpoint on the validation or the test split."""

from __future__ import annotations

import errno
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.datasets.catalog import DATASETS, PRETRAINING, TABLE
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import CheckpointError, ConfigError
from graphormer_sepnorm.files import cannot_be_written, write_columns
from graphormer_sepnorm.formatting import aligned, four_digits, in_a_line
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import BLEND, CONFIDENCE, KEY, read_checkpoint
from graphormer_sepnorm.pipeline.decisions import explaining, interruptible
from graphormer_sepnorm.pipeline.predicted import on_split
from graphormer_sepnorm.pipeline.report import prediction_columns
from graphormer_sepnorm.pipeline.resume import stored_model
from graphormer_sepnorm.runs.directory import find_checkpoint
from graphormer_sepnorm.tables.columns import is_word_for
from graphormer_sepnorm.training.fit import make_evaluator
from graphormer_sepnorm.training.module import GraphormerModule

_ANOTHER_TABLE = (
    "This is not the table and split that the model was trained on: it was split again, and "
    "molecules that the model has learned from may be among these. To evaluate all rows of a "
    "table: predict.py MODEL -i FILE --evaluate COLUMN."
)
_MEMBERS = (
    "Each network of the ensemble was trained on most of these molecules: metrics out of fold are "
    "in summary.json of the run (best_validation_...)."
)


def data_options(model: str, named: bool) -> dict[str, Any]:
    """Return the options that load what a checkpoint was trained on, as ``data.table``.

    Args:
        model: File, run directory or bundled name.
        named: Whether other data are named.

    Raises:
        ConfigError: The data have no name by which they can be loaded, and no others are named.
        CheckpointError: It cannot be used.
    """
    facts = read_checkpoint(find_checkpoint(model))[KEY]
    for name in Task.from_plain(facts["task"]).ones:
        # An estimator's classes are in alphabetical order: of active and inactive it is inactive.
        if name and not is_word_for(name, 1):
            raise CheckpointError(
                f"class 1 of the model is {in_a_line(name)}, which is not 1 in the labels of a "
                "data set: predict.py --evaluate takes its words"
            )
    table = facts.get("data_options")
    if table is not None:
        return {f"data.{name}": value for name, value in table.items()} | {"data.dataset": TABLE}
    if facts["dataset"] in (*DATASETS, PRETRAINING):
        return {"data.dataset": facts["dataset"]}
    if named:
        return {}
    raise ConfigError(
        f"the checkpoint was trained on {facts['dataset']}, which is not among "
        f"{', '.join(DATASETS)}: name what to evaluate it on, with --data.table FILE or "
        "--data.dataset NAME"
    )


def evaluate_checkpoint(config: FitConfig, model: str, split: str, predictions: str | None) -> str:
    """Evaluate a checkpoint; return its metrics as text.

    Args:
        config: Data and trainer; the network is the checkpoint's.
        model: File, run directory or bundled name.
        split: ``validation`` or ``test``.
        predictions: File that gets the prediction of each molecule.

    Returns:
        Nothing in all processes but the first.

    Raises:
        GraphormerError: Checkpoint, data and options do not fit each other.
    """
    file = find_checkpoint(model)
    checkpoint = read_checkpoint(file)
    if checkpoint[KEY].get("without_networks"):
        raise ConfigError(
            f"{model} is a model without networks: predict.py {model} -i TABLE --evaluate COLUMN "
            "evaluates it"
        )
    module = GraphormerModule(stored_model(checkpoint), seed=config.seed_everything)
    data = MoleculeDataModule(
        config.data,
        seed=config.seed_everything,
        max_path_length=checkpoint[KEY]["model"]["max_path_length"],
    )
    limit = "limit_val_batches" if split == "validation" else "limit_test_batches"
    if predictions is not None:
        for name, whole in (("fast_dev_run", ("False", "0")), (limit, ("None", "1.0"))):
            if str(getattr(config.trainer, name)) not in whole:
                raise ConfigError(f"--predictions is for a whole split: leave --trainer.{name} out")
        _keep(predictions)  # before anything is evaluated
    with explaining():
        trainer = make_evaluator(config.trainer)
        run = trainer.validate if split == "validation" else trainer.test
        options: dict[str, Any] = {"verbose": False, "weights_only": True}
        with interruptible(trainer, lambda: "interrupted"):
            [values] = run(module, datamodule=data, ckpt_path=str(file), **options)
            if not trainer.is_global_zero:
                return ""
            rows = {name: _digits(value) for name, value in values.items()}
            of_network = module.evaluated(split)
            final, note = _final_predictions(module, data, split, checkpoint, of_network)
    if (final != of_network).any():
        found = module.task.evaluate_learned(data.labels(data.indices(split)), final)
        for metric, value in found.items():
            name = f"{split}_{metric}"
            rows[name] = f"{_digits(value)}  (network alone {rows[name]})"
    of_members = split == "validation" and module.facts.get("member_folds")
    same = data.splits.fingerprint == module.facts.get("dataset_fingerprint")
    another = data.table_options is not None and not same
    if predictions is not None:
        _keep(predictions, prediction_columns(data, data.indices(split), final))
    text = [
        f"checkpoint  {file}",
        f"{split:<10}  {len(data.indices(split)):,} molecules of {data.splits.name}",
        aligned([*rows.items()]),
        note,
        _MEMBERS if of_members else "",
        _ANOTHER_TABLE if another else "",
        "" if predictions is None else f"{'predicted':<10}  {predictions}",
    ]
    return "\n".join(filter(None, text))


def _keep(predictions: str, columns: Mapping[str, list[Any]] | None = None) -> None:
    """Write the file of predictions; without them see that its place is one for a file."""
    file = Path(predictions).expanduser()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if columns is not None:
            write_columns(file, columns)
    except OSError as error:
        raise ConfigError(f"--predictions: {cannot_be_written(file, error)}") from error


def _final_predictions(
    module: GraphormerModule,
    data: MoleculeDataModule,
    split: str,
    checkpoint: Mapping[str, Any],
    predictions: np.ndarray,
) -> tuple[np.ndarray, str]:
    """Blend and calibrate the predictions ``[n, T]`` of a network where that can be; and a note."""
    from graphormer_sepnorm.baselines.blend import Blend
    from graphormer_sepnorm.uncertainty.uncertainty import Uncertainty

    smiles, values = data.splits.smiles, predictions
    if {BLEND, CONFIDENCE} & checkpoint.keys() and len(values) != len(data.indices(split)):
        return values, "these are of the network alone: what comes after it takes the whole split"
    if BLEND in checkpoint:
        if smiles is None:
            return values, "these are of the network alone: a blend takes SMILES"
        blend = Blend.from_plain(checkpoint[BLEND])
        others = blend.others(*blend.pair_of(smiles[split], data.own_columns(split)))
        # Of classes the log-odds of each network are blended.
        stacked = blend.stacking is not None
        networks = on_split(module, data, split, values).networks if stacked else values[None]
        values, _ = blend.combined(networks, others)
    if CONFIDENCE in checkpoint:
        own = Uncertainty.from_plain(checkpoint[CONFIDENCE], module.task.kind)
        values = own.calibrated(values)
    return values, ""


def _digits(value: float) -> str:
    text = four_digits(value) if sys.stdout.isatty() else f"{value:.6g}"
    return "undefined" if math.isnan(value) else text
