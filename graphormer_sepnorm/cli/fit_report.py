"""What ``fit`` and its evaluation print: of the data beforehand, of the result afterwards."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Trainer

from graphormer_sepnorm.cli.confidence import said
from graphormer_sepnorm.cli.outcome import Outcome, Tested, prediction_columns, without_new_elements
from graphormer_sepnorm.cli.simple_models import evaluate, final_predictions
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.new_elements import in_words, new_elements
from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.datasets.user_table.report import DataReport
from graphormer_sepnorm.datasets.user_table.report_text import report_text
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.files import write_columns, write_json
from graphormer_sepnorm.formatting import aligned, four_digits, listed
from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs
from graphormer_sepnorm.metrics import LAST, Metric, metrics_of
from graphormer_sepnorm.process import command
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.module import GraphormerModule

_ANOTHER_TABLE = (
    "This is not the table and split that the model was trained on: it was split anew, and "
    "molecules that the model has learned from may be among these. To evaluate all rows of a "
    "table: predict.py MODEL -i FILE --evaluate COLUMN."
)


def report_data(
    report: DataReport, data: MoleculeDataModule, run: RunDirectory, fine_tuned: bool
) -> None:
    """Print the report on a user's table and keep it in the run directory.

    Beside it go the split of every row and the rows that cannot be used, with reasons.
    """
    known = data.fit_vocabulary().atoms.seen[0]
    found = {split: new_elements(data, split, known) for split in SPLITS[1:]}
    lines = [
        in_words(molecules, split, len(data.indices(split)), fine_tuned)
        for split, molecules in found.items()
        if molecules
    ]
    lines += data.missing_inputs()
    report = dataclasses.replace(report, warnings=(*lines, *report.warnings))
    print(f"\n{report_text(report)}", flush=True)
    write_json(run.data_report_file, report.to_plain())
    report.write_splits(run.splits_file)
    run.invalid_rows_file.unlink(missing_ok=True)  # of an earlier attempt
    if report.invalid or report.cells:
        report.write_invalid(run.invalid_rows_file)
        what = " and ".join(["rows"] * bool(report.invalid) + ["labels"] * bool(report.cells))
        print(f"{what} that are left out, with reasons: {run.invalid_rows_file}", flush=True)
    print()


def report_evaluation(
    trainer: Trainer,
    module: GraphormerModule,
    data: MoleculeDataModule,
    split: str,
    checkpoint: str,
    file: Path | None,
) -> None:
    """Evaluate a checkpoint file on ``validation`` or ``test`` and print its metrics.

    If a `file` is given, what is predicted of each molecule goes there.

    Raises:
        ConfigError: It cannot be written.
    """
    run = trainer.validate if split == "validation" else trainer.test
    values = run(module, datamodule=data, ckpt_path=checkpoint, verbose=False, weights_only=True)[0]
    if not trainer.is_global_zero:
        return
    print(f"checkpoint  {checkpoint}")
    print(f"{split:<10}  {len(data.indices(split)):,} molecules of {data.splits.name}")
    predictions = module.evaluated(split)
    blended, note = final_predictions(module, data, split, checkpoint, predictions)
    rows = {name: _digits(value) for name, value in values.items()}
    if blended is not None:
        predictions = blended
        own = evaluate(data, module.task, split, blended)
        own = {f"{split}_{name}": value for name, value in own.items()}
        rows |= {
            name: f"{_digits(value)}  (network alone {rows[name]})" for name, value in own.items()
        }
        values = {**values, **own}
    print(aligned([*rows.items()]))
    if split == "validation" and module.facts.get("member_folds"):
        note += " " * bool(note) + (
            "Of the networks each was trained on most of these molecules: of those that it has not "
            "seen, what it says is in summary.json of the run (best_validation_...)."
        )
    main = values[f"{split}_{module.task.metric}"]
    found, line = without_new_elements(module, data, split, predictions, main)
    own = data.splits.fingerprint == module.facts.get("dataset_fingerprint")
    other = data.table_options is not None and not own
    for text in (note, line, _ANOTHER_TABLE * other):
        if text:
            print(text)
    if file is not None:
        with _explained(file):
            write_columns(file, prediction_columns(data, split, predictions, found))
        print(f"{'predicted':<10}  {file}")


def predictions_file(name: str | None, trainer: Trainer, split: str) -> Path | None:
    """Return the file of ``--predictions``, in a folder that is there now; None if none is wanted.

    Raises:
        ConfigError: There cannot be such a file, or only a part of the split is evaluated.
    """
    if name is None:
        return None
    limit = "limit_val_batches" if split == "validation" else "limit_test_batches"
    part = getattr(trainer, limit)
    if isinstance(part, int) or part < 1:
        raise ConfigError(f"--predictions is for a whole split: leave --trainer.{limit} out")
    file = Path(name).expanduser()
    if not file.name or file.is_dir():
        raise ConfigError(f"--predictions {name}: it is a folder, name a file")
    with _explained(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    return file


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"--predictions: cannot write {file} ({error.strerror})") from error


def _digits(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.6g}"


def report_fit(outcome: Outcome, module: GraphormerModule) -> None:
    """Print what came out of a run, as far as it was made."""
    network, tested, simple = outcome.network, outcome.tested, outcome.simple
    task, main = module.task, module.task.main
    summary, unit = tested.summary, task.unit_of(main)
    rows = [(one.name, main.shown(one.test[main.name], unit)) for one in simple.baselines]
    name = f"Graphormer, {summary['norm']}"
    if members := summary.get("members"):
        rows += _of_members(members, main, unit)
        name += f", mean of the {len(members)}"
    rows.append((name, main.shown(network.summary[f"test_{main.name}"], unit)))
    if "network" in summary and simple.blended is not None:
        rows.append((simple.blended.label, main.shown(summary[f"test_{main.name}"], unit)))
    others = [one for one in task.metrics if f"test_{one.name}" in summary]
    rows.append(("", _in_a_line(summary, [one for one in others if one is not main], task.unit_of)))
    if task.tells_targets_apart:
        rows += [
            (f"  {name}", _in_a_line(summary, metrics_of(task.kind), lambda _, of=unit: of, name))
            for name, unit in zip(task.targets, task.units, strict=True)
        ]
    print(f"\ntest {main.label}")
    print(aligned([(f"  {label}", value) for label, value in rows]))
    compared = simple.said(main, unit)
    lines = ((simple.left_out, "  "), (compared, "  "), (tested.new_elements, "\n"))
    for line, before in lines:
        if line:
            print(f"{before}{line}")
    if outcome.measured is not None:
        print(f"\n{said(outcome.measured, task, tested.run)}")
    epochs = "1 epoch" if summary["epochs"] == 1 else f"{summary['epochs']} epochs"
    best = _best_validation(network, main)
    if "network" in summary and network.held is None:
        best += " (of the network)"
    print(
        f"\n{best}; {epochs}, "
        f"{summary['steps']:,} steps, {summary['parameters']:,} parameters, "
        f"{summary['seconds']:.0f} s, {summary['graphs_per_second']:.0f} graphs/s"
    )
    print(f"checkpoint  {summary['checkpoint']}")
    if module.facts["featuriser"] is not None:
        needed = ExtraInputs.of_facts(module.facts).columns
        given = f"-i TABLE   (with {listed(needed)})" if needed else '"CCO"'
        print(f"try         {command('predict')} {shlex.quote(str(tested.run.path))} {given}")


def _of_members(
    members: list[dict[str, Any]], main: Metric, unit: str
) -> Iterator[tuple[str, str]]:
    """The test metric of each member of an ensemble, and their mean with its standard deviation."""
    # What is undefined stands as null in the summary of a member.
    values = [
        math.nan if (one := member[f"test_{main.name}"]) is None else one for member in members
    ]
    for member, value in zip(members, values, strict=True):
        yield f"seed {member['seed']}", main.shown(value, unit)
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    shown = f"{main.shown(mean)} ± {main.shown(deviation, unit)}"
    yield f"one network of the {len(members)}", shown


def _best_validation(tested: Tested, main: Metric) -> str:
    value, selected = tested.summary[f"best_validation_{main.name}"], tested.selected
    if tested.held is not None:
        return f"{main.label} out of fold, each molecule by one network, {main.shown(value)}"
    if selected.kind is not None and selected is not main:
        chosen = tested.summary[f"best_validation_{selected.name}"]
        return (
            f"best validation {selected.label} {four_digits(chosen)}, with it "
            f"{main.label} {main.shown(value)}"
        )
    if selected is LAST:
        return f"validation {main.label} {main.shown(value)} at the end"
    if math.isnan(value):
        loss = tested.validation.get("validation_loss", math.nan)
        return f"validation {main.label} undefined, best validation loss {four_digits(loss)}"
    return f"best validation {main.label} {four_digits(value)}"


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
