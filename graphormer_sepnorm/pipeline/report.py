"""What ``fit`` and its evaluation print: of the data beforehand, of the result afterwards."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.new_elements import in_words, new_elements
from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.datasets.user_table.report import report_text
from graphormer_sepnorm.files import write_json
from graphormer_sepnorm.formatting import aligned, four_digits, listed
from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs
from graphormer_sepnorm.metrics import LAST, Metric, metrics_of
from graphormer_sepnorm.pipeline.calibrate import said
from graphormer_sepnorm.process import command
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.module import GraphormerModule

if TYPE_CHECKING:
    from graphormer_sepnorm.pipeline.fit import Outcome


def report_data(data: MoleculeDataModule, run: RunDirectory, fine_tuned: bool) -> str:
    """Keep the report on a user's table in the run directory; return it as text.

    Beside it go the split of every row and the rows that cannot be used, with reasons.
    """
    report = data.splits.report
    assert report is not None
    known = data.fit_vocabulary().atoms.seen[0]
    found = {split: new_elements(data, split, known) for split in SPLITS[1:]}
    lines = [
        in_words(molecules, split, len(data.indices(split)), fine_tuned)
        for split, molecules in found.items()
        if molecules
    ]
    lines += data.missing_inputs()
    report = dataclasses.replace(report, warnings=(*lines, *report.warnings))
    write_json(run.data_report_file, report.to_plain())
    report.write_splits(run.splits_file)
    run.invalid_rows_file.unlink(missing_ok=True)  # of an earlier attempt
    left_out = ""
    if report.invalid or report.cells:
        report.write_invalid(run.invalid_rows_file)
        what = " and ".join(["rows"] * bool(report.invalid) + ["labels"] * bool(report.cells))
        left_out = f"{what} that are left out, with reasons: {run.invalid_rows_file}\n"
    return f"\n{report_text(report)}\n{left_out}"


def report_fit(outcome: Outcome, module: GraphormerModule) -> str:
    """Return what came out of a run, as far as it was made, as text."""
    network, simple, summary = outcome.network, outcome.simple, outcome.summary
    task, main = module.task, module.task.main
    unit = task.unit_of(main)
    rows = [
        (one.name, main.shown(one.test[main.name], unit)) for one in simple.baselines if one.test
    ]
    name = f"Graphormer, {summary['norm']}"
    tested = f"test_{main.name}" in summary
    if members := summary.get("members"):
        rows += _of_members(members, main, unit) if tested else ()
        name += f", mean of the {len(members)}"
    if tested:
        rows.append((name, main.shown(network.summary[f"test_{main.name}"], unit)))
    if tested and "network" in summary and simple.blended is not None:
        rows.append((simple.blended.label, main.shown(summary[f"test_{main.name}"], unit)))
    others = [one for one in task.metrics if f"test_{one.name}" in summary]
    if tested:
        rows.append(
            ("", _in_a_line(summary, [one for one in others if one is not main], task.unit_of))
        )
    if tested and task.tells_targets_apart:
        rows += [
            (f"  {name}", _in_a_line(summary, metrics_of(task.kind), lambda _, of=unit: of, name))
            for name, unit in zip(task.targets, task.units, strict=True)
        ]
    text = ["\nnothing is tested: there are no test molecules"]
    if tested:
        text = [f"\ntest {main.label}", aligned([(f"  {label}", value) for label, value in rows])]
    compared = simple.said(main, unit)
    lines = ((simple.left_out, "  "), (compared, "  "), (outcome.new_elements, "\n"))
    text += [f"{before}{line}" for line, before in lines if line]
    if outcome.measured is not None:
        text.append(f"\n{said(outcome.measured, task, outcome.run)}")
    epochs = "1 epoch" if summary["epochs"] == 1 else f"{summary['epochs']} epochs"
    best = _best_validation(outcome, main)
    if "network" in summary and outcome.held is None:
        best += " (of the network)"
    text.append(
        f"\n{best}; {epochs}, "
        f"{summary['steps']:,} steps, {summary['parameters']:,} parameters, "
        f"{summary['seconds']:.0f} s, {summary['graphs_per_second']:.0f} graphs/s"
    )
    text.append(f"checkpoint  {summary['checkpoint']}")
    if module.facts["featuriser"] is not None:
        needed = ExtraInputs.of_facts(module.facts).columns
        given = f"-i TABLE   (with {listed(needed)})" if needed else '"CCO"'
        text.append(
            f"try         {command('predict')} {shlex.quote(str(outcome.run.path))} {given}"
        )
    return "\n".join(text)


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


def _best_validation(outcome: Outcome, main: Metric) -> str:
    tested, selected = outcome.network, outcome.selected
    if f"best_validation_{main.name}" not in tested.summary:
        return "the end of training is taken: there are no validation molecules"
    value = tested.summary[f"best_validation_{main.name}"]
    if outcome.held is not None:
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


def in_words_without_new_elements(
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

    ``number`` counts them from 0; of a user's table ``row`` is the row there, as in ``splits.csv``,
    and its column of identifiers follows.
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
        columns |= splits.report.ids(split)
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
