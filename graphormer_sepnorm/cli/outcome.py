"""What is done and printed when training or evaluation has ended."""

from __future__ import annotations

import dataclasses
import math
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphormer_sepnorm.cli.main import Interrupted
from graphormer_sepnorm.cli.predictions_file import write_test_predictions
from graphormer_sepnorm.cli.simple_models import blended_predictions, evaluate, simple_models
from graphormer_sepnorm.datasets.data_module import SPLITS, MoleculeDataModule
from graphormer_sepnorm.datasets.data_report import DataReport
from graphormer_sepnorm.datasets.new_elements import in_words, new_elements
from graphormer_sepnorm.files import write_json
from graphormer_sepnorm.inference.checkpoint import KEY, read_checkpoint
from graphormer_sepnorm.metrics import Metric, metrics_of
from graphormer_sepnorm.model.summary import count_parameters
from graphormer_sepnorm.process import command
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.callbacks.run_record import RunRecord
from graphormer_sepnorm.training.callbacks.throughput import Throughput
from graphormer_sepnorm.training.report import format_table

if TYPE_CHECKING:
    from graphormer_sepnorm.cli.lightning_cli import TrainCLI


def report_data(report: DataReport, data: MoleculeDataModule, run: RunDirectory) -> None:
    """Print the report on a user's table and keep it in the run directory.

    Beside it go the split of every row and the rows that cannot be used, with reasons.

    Args:
        report: What is known before there are graphs.
        data: The data set.
        run: Its directory.
    """
    vocabulary = data.fit_vocabulary()
    found = {split: new_elements(data, split, vocabulary) for split in SPLITS[1:]}
    lines = [
        in_words(molecules, split, len(data.indices(split)))
        for split, molecules in found.items()
        if molecules
    ]
    report = dataclasses.replace(report, warnings=(*lines, *report.warnings))
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(f"\n{report.text(unicode=unicode)}", flush=True)
    write_json(run.data_report_file, report.to_plain())
    report.write_splits(run.splits_file)
    if report.invalid:
        path = run.invalid_rows_file
        report.write_invalid(path)
        print(f"rows that are left out, with reasons: {path}", flush=True)
    print()


def report_evaluation(cli: TrainCLI, split: str, checkpoint: str) -> None:
    """Evaluate a checkpoint and print its metrics.

    Args:
        cli: The command.
        split: ``validation`` or ``test``.
        checkpoint: Checkpoint file.
    """
    run = cli.trainer.validate if split == "validation" else cli.trainer.test
    values = run(
        cli.model, datamodule=cli.datamodule, ckpt_path=checkpoint, verbose=False, weights_only=True
    )[0]
    if cli.trainer.is_global_zero:
        print(f"checkpoint  {checkpoint}")
        predictions = cli.model.evaluated(split)
        blended, note = blended_predictions(cli, split, checkpoint, predictions)
        shown = {name: _digits(value) for name, value in values.items()}
        if blended is not None:
            predictions = blended
            own = evaluate(cli.datamodule, cli.model.task, split, blended)
            own = {f"{split}_{name}": value for name, value in own.items()}
            shown |= {
                name: f"{_digits(value)}  (network alone {shown[name]})"
                for name, value in own.items()
            }
            values = {**values, **own}
        print(format_table(list(shown.items())))
        main = values[f"{split}_{cli.model.task.metric}"]
        _, line = _without_new_elements(cli, split, predictions, main)
        for text in (note, line):
            if text:
                print(text)


def _digits(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.6g}"


def report_fit(cli: TrainCLI, run: RunDirectory) -> None:
    """Test the best checkpoint of a finished run; print the table and keep what came out.

    ``summary.json`` has the numbers, ``test_predictions.csv`` each molecule.

    Raises:
        Interrupted: During the baselines or before the blend; all else has been kept and printed.
    """
    trainer: Any = cli.trainer
    module = cli.model
    if trainer.fast_dev_run:
        return
    best = run.tested
    if best is None:
        print("no checkpoint was written: training took no step")
        return
    task = module.task
    main, selected = task.main, cli.selected_by
    epochs, steps = trainer.current_epoch, trainer.global_step
    checkpoint = read_checkpoint(best)
    validation = checkpoint[KEY]["validation"]
    best_values = {
        metric: validation.get(f"validation_{metric.name}", math.nan)
        for metric in (main, selected)
        if metric.kind is not None
    }
    # Not by `ckpt_path`: Lightning would set the callbacks back too, and with them metrics.csv and
    # the time that was measured.
    module.load_state_dict(checkpoint["state_dict"])
    values = trainer.test(module, datamodule=cli.datamodule, verbose=False)[0]
    if not trainer.is_global_zero:
        return
    throughput = next(call for call in trainer.callbacks if isinstance(call, Throughput))
    record = next(call for call in trainer.callbacks if isinstance(call, RunRecord))
    result = {
        "dataset": cli.datamodule.dataset,
        "norm": module.model.config.norm,
        "seed": module.hparams["seed"],
        "dataset_fingerprint": cli.datamodule.splits.fingerprint,
        **{name: float(value) for name, value in values.items()},
        **{f"best_validation_{metric.name}": value for metric, value in best_values.items()},
        "epochs": epochs,
        "steps": steps,
        "parameters": count_parameters(module.model),
        "seconds": record.seconds,
        "training_seconds": round(throughput.seconds, 1),
        "graphs_per_second": round(throughput.graphs_per_second * trainer.world_size, 1),
        "checkpoint": str(best),
    }
    predictions = module.evaluated("test")
    found, new_line = _without_new_elements(cli, "test", predictions, values[f"test_{main.name}"])
    # Of a part of the split (--trainer.limit_test_batches) there is no table.
    whole = len(predictions) == len(cli.datamodule.indices("test"))
    if whole:
        write_test_predictions(run, cli.datamodule, predictions, found)
    run.write_summary(result)
    cli.tested = True
    network = values
    simple = simple_models(cli, checkpoint, best, predictions if whole else None)
    if simple.blended is not None:
        result = simple.blended.in_summary(result)
        if simple.blended.predictions is not None:
            values = {name: result[name] for name in values if name in result}
            main_value = values[f"test_{main.name}"]
            predictions = simple.blended.predictions
            found, new_line = _without_new_elements(cli, "test", predictions, main_value)
            write_test_predictions(run, cli.datamodule, predictions, found)
    if simple.baselines:
        result["baselines"] = [one.to_plain() for one in simple.baselines]
    if simple.baselines or simple.blended is not None:
        run.write_summary(result)
    label, unit = f"Graphormer, {module.model.config.norm}", task.unit_of(main)
    rows = [(one.name, main.shown(one.test[main.name], unit)) for one in simple.baselines]
    rows.append((label, main.shown(network[f"test_{main.name}"], unit)))
    if simple.blended is not None and values is not network:
        rows.append((simple.blended.label, main.shown(values[f"test_{main.name}"], unit)))
    others = [one for one in metrics_of(task.kind) if f"test_{one.name}" in values]
    rows.append(("", _in_a_line(values, [one for one in others if one is not main], task.unit_of)))
    if len(task.targets) > 1:
        rows += [
            (f"  {name}", _in_a_line(values, metrics_of(task.kind), lambda _, of=unit: of, name))
            for name, unit in zip(task.targets, task.units, strict=True)
        ]
    print(f"\ntest {main.label}")
    print(format_table([(f"  {label}", value) for label, value in rows]))
    for line in (simple.left_out, simple.said(main, values[f"test_{main.name}"])):
        if line:
            print(f"  {line}")
    if new_line:
        print(f"\n{new_line}")
    best_line = f"best validation {main.label} {best_values[main]:.4f}"
    if selected in best_values and selected is not main:
        best_line = (
            f"best validation {selected.label} {best_values[selected]:.4f}, with it "
            f"{main.label} {main.shown(best_values[main])}"
        )
    elif math.isnan(best_values[main]):
        loss = validation.get("validation_loss", math.nan)
        best_line = f"validation {main.label} undefined, best validation loss {loss:.4f}"
    print(
        f"\n{best_line}; "
        f"{epochs} epochs, {steps:,} steps, {result['parameters']:,} parameters, "
        f"{result['seconds']:.0f} s, {result['graphs_per_second']:.0f} graphs/s"
    )
    print(f"checkpoint  {best}")
    if module.facts["featuriser"] is not None:
        print(f'try         {command("predict")} {shlex.quote(str(run.path))} "CCO"')
    if simple.interrupted:
        raise Interrupted(f"baselines interrupted; the run is whole: {run.path}")


def _in_a_line(
    values: Mapping[str, float],
    metrics: Iterable[Metric],
    unit_of: Callable[[Metric], str],
    target: str = "",
) -> str:
    """The test metrics of a target, or their means over all of them, as ``RMSE 0.5 eV, R2 0.7``."""
    end = f"_{target}" * bool(target)
    return ", ".join(
        f"{one.label} {one.shown(values[f'test_{one.name}{end}'], unit_of(one))}" for one in metrics
    )


def _without_new_elements(
    cli: TrainCLI, split: str, predictions: np.ndarray, value: float
) -> tuple[dict[int, str], str]:
    """Return which molecules of an evaluated split have elements that the model never saw.

    Args:
        cli: The command.
        split: ``validation`` or ``test``.
        predictions: Of the molecules that were evaluated.
        value: Its main metric.

    Returns:
        What `new_elements` finds, and a line that says it beside the metric without them; nothing
        where there are none.
    """
    module, data = cli.model, cli.datamodule
    found = new_elements(data, split, module.vocabulary)
    count = len(data.indices(split))
    if not found or len(predictions) != count:
        return found, ""
    known = [molecule for molecule in range(count) if molecule not in found]
    targets = np.asarray(data.store.targets[data.indices(split)], dtype=np.float64)
    task, main = module.task, module.task.main
    without = task.evaluate(targets[known], predictions[known], [main])[main.name]
    return found, (
        f"{in_words(found, split, count)}: {split} {main.label} with them "
        f"{main.shown(value, task.unit_of(main))}, without "
        f"{main.shown(without, task.unit_of(main))}"
    )
