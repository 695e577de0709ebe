"""What ``fit`` and its evaluation print: of the data beforehand, of the result afterwards."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphormer_sepnorm.baselines.evaluation import NAMES
from graphormer_sepnorm.datasets.molecule_data import MoleculeData
from graphormer_sepnorm.datasets.user_table.report import report_text
from graphormer_sepnorm.files import write_json
from graphormer_sepnorm.formatting import aligned, decimals_of, four_digits, listed
from graphormer_sepnorm.graphs.extra_inputs import columns_of, in_report
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.predictor import LEVEL
from graphormer_sepnorm.metrics import LAST, metrics_of
from graphormer_sepnorm.pipeline.predicted import Outcome
from graphormer_sepnorm.process import command
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.described import Described
from graphormer_sepnorm.uncertainty.quality import in_words, summarized
from graphormer_sepnorm.uncertainty.uncertainty import Uncertainty


def report_data(data: MoleculeData, run: RunDirectory) -> str:
    """Store the report on a user's table in the run directory; return it as text.

    With it are stored the split of every row and the rows that cannot be used, with reasons.
    """
    report = data.splits.report
    assert report is not None
    missing = in_report(data.splits.extra_inputs, data.store.extra, data.extra_scaling()[1])
    report = dataclasses.replace(report, warnings=(*missing, *report.warnings))
    write_json(run.data_report_file, report.to_plain())
    report.write_splits(run.splits_file)
    run.invalid_rows_file.unlink(missing_ok=True)  # of an earlier attempt
    left_out = ""
    if report.invalid or report.cells:
        report.write_invalid(run.invalid_rows_file)
        what = " and ".join(["rows"] * bool(report.invalid) + ["labels"] * bool(report.cells))
        left_out = f"{what} that are left out, with reasons: {run.invalid_rows_file}\n"
    return f"\n{report_text(report)}\n{left_out}"


def report_fit(outcome: Outcome, module: Described) -> str:
    """Return the result of a run as text."""
    summary, task = outcome.summary, module.task
    main = task.main
    text = ["\nnothing is tested: there are no test molecules"]
    if f"test_{main.name}" in summary:
        rows = [(f"  {label}", value) for label, value in _test_rows(outcome, task)]
        text = [f"\ntest {task.of_all.label}", aligned(rows)]
    if outcome.blend is not None and "epochs" in summary:
        value = task.of_all.shown(outcome.blend.validation[task.of_all.name])
        text.append(f"  {task.of_all.label} of the blend on {outcome.evaluated_on}: {value}")
    if outcome.left_out:
        text.append(f"  {outcome.left_out}")
    if f"test_{main.name}" in summary and task.tells_targets_apart:
        text += _target_tables(outcome, task)
    if outcome.uncertainty is not None:
        file = outcome.run.uncertainty_file
        text.append(f"\n{_uncertainty(outcome, outcome.uncertainty, task)}\n{'':12}{file}")
    cost = f"{summary['seconds']:.0f} s"
    if "epochs" in summary:
        epochs = "1 epoch" if summary["epochs"] == 1 else f"{summary['epochs']} epochs"
        trained = f"{epochs}, {summary['steps']:,} steps, {summary['parameters']:,} parameters"
        cost = f"{trained}, {cost}, {summary['graphs_per_second']:.0f} graphs/s"
    of_network = " (of the network)" * ("network" in summary and not outcome.out_of_fold)
    text.append(f"\n{_best_validation(outcome, task)}{of_network}; {cost}")
    text.append(f"checkpoint  {summary['checkpoint']}")
    if module.facts["featurizer"] is not None:
        needed = columns_of(module.facts)
        given = f"-i TABLE   (with {listed(needed)})" if needed else '"CCO"'
        run = shlex.quote(str(outcome.run.path))
        text.append(f"try         {command('predict')} {run} {given}")
    return "\n".join(text)


def _test_rows(outcome: Outcome, task: Task) -> list[tuple[str, str]]:
    """The table of test metrics: baselines, members, network, blend, further metrics."""
    summary, main, unit = outcome.summary, task.of_all, task.unit_of(task.main)
    own = f"test_{main.name}"
    rows = [(one.name, main.shown(one.test[main.name], unit)) for one in outcome.baselines]
    name = f"Graphormer, {summary.get('norm')}"
    if members := summary.get("members"):
        # An undefined metric is null in the summary of a member.
        values = [math.nan if one[own] is None else one[own] for one in members]
        rows += [
            (f"seed {member['seed']}", main.shown(value, unit))
            for member, value in zip(members, values, strict=True)
        ]
        mean = float(np.mean(values))
        deviation = main.shown(float(np.std(values, ddof=1)), unit, decimals_of(mean))
        rows.append((f"one network of the {len(members)}", f"{main.shown(mean)} ± {deviation}"))
        name += f", mean of the {len(members)}"
    if own in outcome.network.summary:
        rows.append((name, main.shown(outcome.network.summary[own], unit)))
    if outcome.blend is not None and outcome.test is not None:
        label = f"blend, {outcome.blend.shares('Graphormer')}"
        rows.append((label, main.shown(summary[own], unit)))
    others = [one for one in task.metrics if f"test_{one.name}" in summary and task.has_mean(one)]
    values = [
        f"{one.label} {one.shown(summary[f'test_{one.name}'], unit)}"
        for one in others
        if one is not main
    ]
    return [*rows, ("", ", ".join(values))]


def _target_tables(outcome: Outcome, task: Task) -> list[str]:
    """Of each of several targets the main metric of each model, and all metrics of the result."""
    short = {name: word for word, name in NAMES.items()}
    models = {short[one.name.partition(", with ")[0]]: one.test for one in outcome.baselines}
    of_network, own = (
        {name.removeprefix("test_"): value for name, value in summary.items()}
        for summary in (outcome.network.summary, outcome.summary)
    )
    if task.main.name in of_network:
        models["networks"] = of_network
    if outcome.blend is not None:
        models["blend"] = own
    tables = (
        (f"test {task.main.label}", [(model, task.main, of) for model, of in models.items()]),
        ("test", [(one.label, one, own) for one in metrics_of(task.kind)]),
    )
    shown = []
    for corner, columns in tables:
        rows = [[corner, *(label for label, *_ in columns)]]
        for title, target in zip(task.titles, task.targets, strict=True):
            values = [of.get(f"{metric.name}_{target}", math.nan) for _, metric, of in columns]
            rows.append([title, *("-" if math.isnan(one) else four_digits(one) for one in values)])
        shown.append("\n" + aligned(rows, numbers_from=1))
    return shown


def _best_validation(outcome: Outcome, task: Task) -> str:
    main, of_all = task.main, task.of_all
    tested, selected = outcome.network, outcome.selected
    if "epochs" not in outcome.summary and outcome.blend is not None:
        value = of_all.shown(outcome.blend.validation[of_all.name])
        return f"{of_all.label} on {outcome.evaluated_on} {value}"
    if f"best_validation_{main.name}" not in tested.summary:
        return "the end of training is taken: there are no validation molecules"
    found = tested.validation.get(f"validation_{of_all.name}", math.nan)
    value = of_all.shown(tested.summary.get(f"best_validation_{of_all.name}", found))
    if outcome.out_of_fold:
        return f"{of_all.label} out of fold, each molecule by one network, {value}"
    if selected is LAST:
        return f"validation {of_all.label} {value} at the end"
    if selected is of_all:
        return f"best validation {of_all.label} {value}"
    name = "loss" if selected.kind is None else selected.name
    chosen = four_digits(tested.validation.get(f"validation_{name}", math.nan))
    return f"best validation {selected.label} {chosen}, with it {of_all.label} {value}"


def _uncertainty(outcome: Outcome, uncertainty: Uncertainty, task: Task) -> str:
    unit = task.units[0] if len(set(task.units)) == 1 else ""
    lines = []
    if words := in_words(summarized(outcome.quality.values()), unit):
        lines.append(f"uncertainty {words}")
    highest, domain = uncertainty.highest_level, uncertainty.domain
    if task.kind == "regression" and highest < LEVEL:
        there, needed = (round(level / (1 - level)) for level in (highest, LEVEL))
        lines.append(
            f"intervals   none: for {100 * LEVEL:g} % {needed} labels of unseen molecules are "
            f"needed, and there are {there}"
        )
    assert domain is not None
    count, total = int(outcome.outside.sum()), len(outcome.outside)
    words = f"{count:,} of {total:,} test molecules are outside: {domain.rule}"
    if not domain.rule:
        words = "none, so in_domain is left empty: the unseen molecules are too few, or too unlike"
    elif not total:
        words = f"outside are molecules with {domain.rule}"
    return "\n".join([*lines, f"domain      {words}"])


def prediction_columns(
    data: MoleculeData,
    indices: np.ndarray,
    predictions: np.ndarray,
    more: Mapping[str, np.ndarray] | None = None,
) -> dict[str, list[Any]]:
    """Return the columns of ``test_predictions.csv``: a row for each molecule, in their order.

    ``number`` counts them from 0; of a user's table ``row`` is the row there, as in ``splits.csv``,
    and its column of identifiers follows. ``smiles`` is there where the data have it. Then come
    ``label_<target>``, empty where one is missing, ``pred_<target>`` in the unit of the labels, or
    the probability of class 1, and `more` columns.

    Args:
        data: The molecules.
        indices: Their indices, int64 ``[n]``, of the graphs in the store.
        predictions: Values as they are learned, ``[n, T]``.
        more: Further columns, ``[n]``.
    """
    splits = data.splits
    columns: dict[str, list[Any]] = {"number": [*range(len(predictions))]}
    if splits.report:
        columns |= splits.report.rows_of(indices)
    if splits.smiles:
        columns["smiles"] = splits.smiles_of(indices)
    task = splits.task
    labels = task.in_units(data.store.targets[indices]).astype(np.float32)
    for what, values in (("label", labels), ("pred", task.in_units(predictions))):
        for name, column in zip(splits.task.targets, values.T, strict=True):
            columns[f"{what}_{name}"] = _cells(column)
    return columns | {name: _cells(column) for name, column in (more or {}).items()}


def _cells(values: np.ndarray) -> list[str]:
    # Labels are kept in float32: the fewest digits that mean the same are those of the table.
    numbers = map(float, map(str, values)) if values.dtype == np.float32 else values.tolist()
    return ["" if math.isnan(value) else f"{value:.9g}" for value in numbers]
