"""What is made when training has ended: the test, the models beside it, how wrong all of it is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphormer_sepnorm.cli.confidence import Measured, measure
from graphormer_sepnorm.cli.held_out import HeldOut, networks_of, of_validation_split
from graphormer_sepnorm.cli.simple_models import (
    SimpleModels,
    evaluate,
    simple_models,
)
from graphormer_sepnorm.confidence.confidence import Told
from graphormer_sepnorm.confidence.quality import summarised
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.new_elements import in_words, new_elements
from graphormer_sepnorm.inference.checkpoint import (
    BLEND,
    CONFIDENCE,
    KEY,
    read_checkpoint,
    write_checkpoint,
)
from graphormer_sepnorm.metrics import Metric
from graphormer_sepnorm.model.summary import count_parameters
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.callbacks.run_record import RunRecord, Throughput
from graphormer_sepnorm.training.module import GraphormerModule


@dataclass(frozen=True)
class Tested:
    """What the best checkpoint of a run came to.

    Attributes:
        run: Its directory.
        summary: As ``summary.json`` keeps it.
        validation: Metrics and loss of the checkpoint's validation.
        selected: What decided on it.
        new_elements: A line on molecules with elements that training lacks; empty without any.
        predictions: float64 ``[n, T]`` of the test split, by all that the checkpoint holds; None
            where only a part was tested.
        held: Of an ensemble of folds, see `held_out.out_of_fold`.
    """

    run: RunDirectory
    summary: dict[str, Any]
    validation: dict[str, float]
    selected: Metric
    new_elements: str
    predictions: np.ndarray | None
    held: HeldOut | None = None


def evaluate_best(
    trainer: Any,
    module: GraphormerModule,
    data: MoleculeDataModule,
    run: RunDirectory,
    selected: Metric,
) -> Tested | None:
    """Test the best checkpoint of a trained run, see `keep_result`.

    `selected` is what decided on the checkpoint.

    Returns:
        None where there is nothing to test, and in every process but the first.
    """
    if trainer.fast_dev_run:
        return None
    best = run.tested
    if best is None:
        print("no checkpoint was written: training took no step")
        return None
    main = module.task.main
    epochs, steps = trainer.current_epoch, trainer.global_step
    checkpoint = read_checkpoint(best)
    validation = checkpoint[KEY]["validation"]
    # Not by `ckpt_path`: Lightning would set the callbacks back too, and with them metrics.csv and
    # the time that was measured.
    module.load_state_dict(checkpoint["state_dict"])
    values = trainer.test(module, datamodule=data, verbose=False)[0]
    if not trainer.is_global_zero:
        return None
    throughput = next(call for call in trainer.callbacks if isinstance(call, Throughput))
    record = next(call for call in trainer.callbacks if isinstance(call, RunRecord))
    summary = {
        "dataset": data.dataset,
        "norm": module.model.config.norm,
        "seed": module.hparams["seed"],
        "dataset_fingerprint": data.splits.fingerprint,
        **{name: float(value) for name, value in values.items()},
        **{
            f"best_validation_{metric.name}": validation.get(f"validation_{metric.name}", math.nan)
            for metric in (main, selected)
            if metric.kind is not None
        },
        "epochs": epochs,
        "steps": steps,
        "parameters": count_parameters(module.model),
        "seconds": record.seconds,
        "training_seconds": round(throughput.seconds, 1),
        "graphs_per_second": round(throughput.graphs_per_second * trainer.world_size, 1),
        "checkpoint": str(best),
    }
    return keep_result(module, data, run, summary, validation, selected)


def keep_result(
    module: GraphormerModule,
    data: MoleculeDataModule,
    run: RunDirectory,
    summary: dict[str, Any],
    validation: dict[str, float],
    selected: Metric,
    held: HeldOut | None = None,
) -> Tested:
    """Return what the test of a module, which has just ended, came to; see `Tested`.

    ``test_predictions.csv`` has each molecule. Those of the run's earlier end are taken away, and
    its summary.
    """
    for earlier in (run.summary_file, run.test_predictions_file):
        earlier.unlink(missing_ok=True)
    predictions = module.evaluated("test")
    # Of a part of the split (--trainer.limit_test_batches) there is no table.
    whole = predictions if len(predictions) == len(data.indices("test")) else None
    return _keep(Tested(run, summary, validation, selected, "", whole, held), module, data)


def _keep(
    tested: Tested,
    module: GraphormerModule,
    data: MoleculeDataModule,
    beside: Mapping[str, np.ndarray] | None = None,
) -> Tested:
    """Write each molecule, with what stands `beside` it."""
    line = ""
    if tested.predictions is not None:
        value = tested.summary[f"test_{module.task.metric}"]
        found, line = without_new_elements(module, data, "test", tested.predictions, value)
        columns = prediction_columns(data, "test", tested.predictions, found, beside)
        tested.run.write_test_predictions(columns)
    return dataclasses.replace(tested, new_elements=line)


def _with_simple_models(
    tested: Tested, simple: SimpleModels, module: GraphormerModule, data: MoleculeDataModule
) -> Tested:
    """Keep what simple models came to, and what the blend predicts in place of the network."""
    if not simple.baselines and simple.blended is None:
        return tested
    summary, predictions = tested.summary, tested.predictions
    if simple.blended is not None:
        summary, predictions = simple.blended.in_summary(summary), simple.blended.predictions
    if simple.baselines:
        summary = {**summary, "baselines": [one.to_plain() for one in simple.baselines]}
    result = dataclasses.replace(tested, summary=summary, predictions=predictions)
    return _keep(result, module, data)


def _with_confidence(
    tested: Tested,
    simple: SimpleModels,
    held: HeldOut,
    module: GraphormerModule,
    data: MoleculeDataModule,
    keep: str,
) -> tuple[Tested, Measured]:
    """Measure how wrong the model is, and keep what it predicts with that."""
    assert tested.predictions is not None
    told = Told(tested.predictions)
    if simple.blended is not None:
        held, told = simple.blended.held, simple.blended.told
    elif module.members:
        networks = networks_of(module, data, "test", tested.predictions)
        told = told._replace(spread=networks.std(axis=0, ddof=1))
    file = Path(tested.summary["checkpoint"])
    measured = measure(module, data, tested.run, file, held, told, keep)
    summary = {**tested.summary, "confidence": summarised(measured.quality.values())}
    if module.task.kind == "binary":  # calibrated now
        values = evaluate(data, module.task, "test", measured.predictions)
        summary |= {f"test_{name}": value for name, value in values.items()}
    result = dataclasses.replace(tested, summary=summary, predictions=measured.predictions)
    return _keep(result, module, data, measured.columns), measured


@dataclass(frozen=True)
class Outcome:
    """What a run came to, with what was made after its test.

    Attributes:
        network: By the network alone.
        tested: By all that the checkpoint holds.
        simple: The models beside it.
        measured: How wrong it is; None where that is not known.
        interrupted: What was stopped; empty: nothing, and the run is finished.
    """

    network: Tested
    tested: Tested
    simple: SimpleModels
    measured: Measured | None
    interrupted: str


def finish(
    tested: Tested,
    module: GraphormerModule,
    data: MoleculeDataModule,
    *,
    baselines: bool,
    blend: bool,
    keep: str,
) -> Outcome:
    """Make the simple models and the blend that are asked for, and measure how wrong the run is.

    Then write ``summary.json``: with it the run is finished. What the checkpoint is to `keep` of
    the molecules of training: see `measure`.
    """
    network, measured = tested, None
    file, held = Path(tested.summary["checkpoint"]), tested.held
    _forget_earlier_end(tested.run, file)
    known = data.splits.smiles is not None and data.splits.featuriser is not None
    sure = keep != "none" and known and tested.predictions is not None
    if held is None and (blend or (known and (baselines or sure))):
        held = of_validation_split(module, data)
    simple = simple_models(
        module, data, file, tested.predictions, held, baselines=baselines, blend=blend
    )
    tested = _with_simple_models(tested, simple, module, data)
    interrupted = "the baselines" if simple.interrupted else ""
    if sure and held is not None and not interrupted:
        try:
            tested, measured = _with_confidence(tested, simple, held, module, data, keep)
        except KeyboardInterrupt:
            interrupted = "the measuring of its errors"
    if not interrupted:
        tested.run.write_summary(tested.summary)
        _draw(tested, module, data)
    return Outcome(network, tested, simple, measured, interrupted)


def _forget_earlier_end(run: RunDirectory, file: Path) -> None:
    """Take away what an earlier end of its run has put beside a network, in the checkpoint too."""
    checkpoint = read_checkpoint(file)
    if beside := checkpoint.keys() & {BLEND, CONFIDENCE}:
        write_checkpoint({k: v for k, v in checkpoint.items() if k not in beside}, file)
    of_earlier_end = (
        run.confidence_file,
        run.confidence_figure,
        run.test_predictions_figure,
        run.geometry_file,
    )
    for made in of_earlier_end:
        made.unlink(missing_ok=True)


def _draw(tested: Tested, module: GraphormerModule, data: MoleculeDataModule) -> None:
    if tested.predictions is not None:
        from graphormer_sepnorm.compare.predictions_figure import draw_predictions

        file, labels = tested.run.test_predictions_figure, data.labels(data.indices("test"))
        draw_predictions(file, module.task, labels, tested.predictions)


def without_new_elements(
    module: GraphormerModule,
    data: MoleculeDataModule,
    split: str,
    predictions: np.ndarray,
    value: float,
) -> tuple[dict[int, str], str]:
    """Return which molecules of an evaluated split have elements that the model never saw.

    And a line that says it beside `value`, the main metric, without them; nothing where there are
    none.
    """
    summary = module.facts.get("training_summary") or {}
    known = summary.get("elements", module.vocabulary.atoms.seen[0])
    found = new_elements(data, split, known)
    numbers = data.indices(split)
    count = len(numbers)
    if not found or len(predictions) != count:
        return found, ""
    known = [molecule for molecule in range(count) if molecule not in found]
    targets = data.labels(numbers)
    task, main = module.task, module.task.main
    without = task.evaluate(targets[known], predictions[known], [main])[main.name]
    fine_tuned = bool(module.facts.get("from_pretrained"))
    return found, (
        f"{in_words(found, split, count, fine_tuned)}: {split} {main.label} with them "
        f"{main.shown(value, task.unit_of(main))}, without "
        f"{main.shown(without, task.unit_of(main))}"
    )


def prediction_columns(
    data: MoleculeDataModule,
    split: str,
    predictions: np.ndarray,
    new_elements: Mapping[int, str],
    beside: Mapping[str, np.ndarray] | None = None,
) -> dict[str, list]:
    """Return the columns of ``test_predictions.csv``: a row for each molecule, in their order.

    ``number`` counts them from 0; of a user's table ``row`` is the row there, as in ``splits.csv``.
    ``smiles`` is there where the data have it. Behind them stand ``label_<target>``, empty where
    one is missing, and ``pred_<target>``: in the unit of the labels, or the probability of class 1;
    then what comes with it: ``low_<target>`` and ``high_<target>``, ``similarity``.
    ``new_elements`` says which of a molecule's elements training lacks: mostly it is empty, and
    where it is not `predict.py` gives no value, or a warning.

    Args:
        data: What was evaluated.
        split: ``validation`` or ``test``.
        predictions: ``[molecules of the split, T]``.
        new_elements: By the number of the molecule; others have none.
        beside: Further columns, ``[molecules of the split]`` each.
    """
    splits = data.splits
    columns: dict[str, list] = {"number": list(range(len(predictions)))}
    if splits.report:
        columns["row"] = list(splits.report.splits[split].rows)
    if splits.smiles:
        columns["smiles"] = list(splits.smiles[split])
    labels = data.store.targets[data.indices(split)]
    for name, column in zip(splits.task.targets, labels.T, strict=True):
        columns[f"label_{name}"] = _cells(column)
    for name, column in zip(splits.task.targets, predictions.T, strict=True):
        columns[f"pred_{name}"] = _cells(column)
    columns |= {name: _cells(column) for name, column in (beside or {}).items()}
    columns["new_elements"] = [new_elements.get(number, "") for number in columns["number"]]
    return columns


def _cells(values: np.ndarray) -> list[str]:
    # Labels are kept in float32: the fewest digits that mean the same are those of the table.
    numbers = map(float, map(str, values)) if values.dtype == np.float32 else values.tolist()
    return ["" if math.isnan(value) else f"{value:.9g}" for value in numbers]
