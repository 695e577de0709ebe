"""The report of a comparison: Markdown, one self-contained HTML page, a LaTeX table and figures.

Made from results.json and predictions.csv alone, so it can be made again at any time, and from
partial results too, which it marks.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from matplotlib.figure import Figure

from graphormer_sepnorm.compare.factors import EXPLANATION
from graphormer_sepnorm.compare.predictions import Predictions, read_predictions
from graphormer_sepnorm.compare.report import figures, geometry_figures, prediction_figures
from graphormer_sepnorm.compare.report.blocks import (
    Block,
    Heading,
    Paragraph,
    Picture,
    Table,
    to_html,
    to_latex,
    to_markdown,
)
from graphormer_sepnorm.compare.report.tables import (
    areas_table,
    arms_table,
    cost_table,
    differences_table,
    factors_table,
    geometry_table,
    molecules_table,
    paper_table,
    precision_table,
    seeds_table,
)
from graphormer_sepnorm.compare.report.text import (
    answers,
    beaten_by,
    cautions,
    method,
    title_of,
    unfinished,
)
from graphormer_sepnorm.compare.results_file import RESULTS, Results
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing

FIGURES = "figures"
_ARMS_DRAWN = 3  # arms whose molecules are drawn: these are the largest pictures

# What draws a figure (its file has the same name), its title, and how to read it.
_Drawing = tuple[Callable[..., Figure | None], str, str]
_SEEDS: _Drawing = (
    figures.paired_seeds,
    "The test metric of each seed",
    "Left: a grey line joins the runs of one seed, a bar is the mean of an arm. Right: the "
    "difference of each seed to the baseline, beside it the mean with its t interval; an "
    "interval across the line at 0 leaves the effect unresolved.",
)
_CURVES: _Drawing = (
    figures.learning_curves,
    "Learning curves",
    "Mean over the finished runs of an arm, the band from the least to the greatest of them; "
    "thin lines are runs that are not finished, or went on for longer than another seed.",
)
_VALUES: tuple[_Drawing, ...] = (
    (
        prediction_figures.predicted_against_true,
        "Predicted against true values",
        "One point per test molecule; a perfect model has all of them on the line. The MAE above "
        "a panel is that of the seed-averaged predictions.",
    ),
    (
        prediction_figures.residuals,
        "Residuals against size and against the target",
        "The black line joins the means of ten equal groups. Against the size, away from 0 the "
        "model is biased for such molecules; against the true value some fall from left to right "
        "is expected of any model that errs, whose predictions spread less than the truth. "
        "Triangles at the edge are residuals beyond it.",
    ),
)
_CLASSES: tuple[_Drawing, ...] = (
    (
        prediction_figures.roc_and_precision,
        "ROC curve and precision against recall",
        "Higher is better in both. With few positives the left end of the right panel rests on a "
        "handful of molecules.",
    ),
    (
        prediction_figures.calibration,
        "Calibration",
        "Ten groups of equal size by predicted probability, with Wilson's 95 % interval of the "
        "share of positives: on the line a probability means what it says, below it is too high.",
    ),
)
_SIZES: _Drawing = (
    prediction_figures.error_by_size,
    "Error by size of the molecule",
    "Each place holds about a tenth of the test molecules, smallest on the left. Above: mean "
    "absolute error (of a probability: its distance from 0 or 1); below: its paired change "
    "from the baseline, negative where the arm helps. Bars are 95 % intervals over molecules, "
    "for these models.",
)
_GEOMETRY: tuple[_Drawing, ...] = (
    (
        geometry_figures.uniformity,
        "Uniformity per layer",
        "L_U of Chen et al. 2023, Eq. 4, of at most 2,000 embeddings: 0 is a cloud collapsed "
        "to one direction, the dotted floor one spread evenly over the sphere in this many "
        "channels; lower is more even.",
    ),
    (
        geometry_figures.effective_rank,
        "Effective rank per layer",
        "About how many directions the cloud fills once its mean is taken away (exp of the "
        "entropy of its singular values): 1 is a line, the width of the model the most.",
    ),
    (
        geometry_figures.singular_values,
        "Singular values at the output",
        "The largest 100 of the embeddings as they are, not centred: a flat curve uses all "
        "directions alike, a steep one only a few; the first value is mostly the mean.",
    ),
    (
        geometry_figures.cosine,
        "Cosine of [CLS] to the atoms of its molecule",
        "1: [CLS] points where its atoms point; 0: it is at right angles to them, so that it "
        "holds something of its own.",
    ),
    (
        geometry_figures.features,
        "Histograms of the first 50 features at the output",
        "One row per feature, first seed; dark where many embeddings lie. Narrow dark patches "
        "off centre are features that hardly vary between molecules.",
    ),
    (
        geometry_figures.probes,
        "What a linear probe reads from [CLS]",
        "R² on the test molecules of a ridge regression fitted to 2,000 training molecules, "
        "which the model was trained on too: 1 is all, 0 no more than "
        "the mean tells; values below \N{MINUS SIGN}0.2 are drawn there. If LayerNorm erases "
        "the length of [CLS], the number of atoms is harder to read behind it than behind "
        "BatchNorm.",
    ),
)


def write_report(directory: Path) -> Results:
    """Write ``report.md``, ``report.html``, ``report.tex`` and ``figures/`` of a comparison.

    Args:
        directory: Where its ``results.json`` lies, with ``predictions.csv`` if there is one.

    Returns:
        The results that it is on.

    Raises:
        DataError: There is no results.json, or it cannot be read or is of another version.
        OSError: The report cannot be written.
    """
    results = Results.read(directory)
    if results is None:
        raise DataError(f"{directory} has no {RESULTS} that can be read: compare the arms first")
    names = [arm.name for arm in results.arms]
    predictions = read_predictions(directory / "predictions.csv", results.task.targets, names)
    (directory / FIGURES).mkdir(exist_ok=True)
    blocks = [
        *_answer(results),
        *_numbers(results, predictions),
        *_pictures(directory, [_SEEDS], results),
        *_factors(results),
        Heading("Training and its cost"),
        *_pictures(directory, [_CURVES], results),
        cost_table(results),
        *_errors(results, predictions, directory),
        *_geometry(results, directory),
        *_repeating(results),
    ]
    for name, text in (
        ("report.md", to_markdown(blocks)),
        ("report.html", to_html(blocks, directory)),
        ("report.tex", to_latex(paper_table(results))),
    ):
        with replacing(directory / name) as partial:
            partial.write_text(text, encoding="utf-8")
    return results


def _answer(results: Results) -> Iterator[Block]:
    yield Heading(title_of(results), level=1)
    for text in unfinished(results):
        yield Paragraph(text, "warning")
    for text in answers(results):
        yield Paragraph(text, "answer")
    for text in (*beaten_by(results), *cautions(results)):
        yield Paragraph(text, "warning")


def _numbers(results: Results, predictions: Predictions | None) -> Iterator[Block]:
    yield Heading("Results")
    yield Paragraph(method(results))
    tables = [
        arms_table(results),
        differences_table(results),
        seeds_table(results),
        molecules_table(results),
        areas_table(results),
    ]
    if predictions is not None and results.task.kind == "binary":
        tables.append(precision_table(predictions))
    yield from (table for table in tables if table is not None)


def _factors(results: Results) -> Iterator[Block]:
    table = factors_table(results)
    if table is not None:
        yield Heading("Factor effects")
        yield Paragraph(EXPLANATION)
        yield table


def _errors(results: Results, predictions: Predictions | None, directory: Path) -> Iterator[Block]:
    yield Heading("Where the arms err")
    if predictions is None:
        yield Paragraph("There are no predictions to show: predictions.csv is missing or empty.")
        return
    text = (
        "From the predictions for the test molecules, averaged over the finished seeds of an arm; "
        "the error of such an average is at most the mean error of its runs, mostly less."
    )
    if predictions.target_name:
        text += (
            f" Of {len(results.task.targets)} targets the first one, "
            f"{predictions.target_name}, is shown."
        )
    without = [arm.name for arm in results.arms if arm.name not in predictions.arms]
    if len({len(results.arm(name).finished) for name in predictions.arms}) > 1:
        text += " The arms have not finished equally many, which alone makes their errors differ."
    if without:
        text += f" Without predictions, so not shown: {', '.join(without)}."
    yield Paragraph(text)
    drawings = _CLASSES if results.task.kind == "binary" else _VALUES
    yield from _pictures(directory, [*drawings, _SIZES], results, predictions)
    yield from _molecules(results, predictions, directory)


def _molecules(results: Results, predictions: Predictions, directory: Path) -> Iterator[Block]:
    if not any(predictions.smiles):
        yield Paragraph(
            "The molecules that change most are not drawn: this data set holds graphs without "
            "SMILES."
        )
        return
    others = [arm.name for arm in results.arms[1:]]
    for number, name in enumerate(others[:_ARMS_DRAWN], start=1):
        png = prediction_figures.largest_changes(results, predictions, name)
        if png is None:
            continue
        # Numbered, because the name of an arm may hold what a file's name cannot.
        path = f"{FIGURES}/molecules_{number}.png"
        figures.save(png, directory / path)
        yield Picture(
            path,
            f"The molecules whose error changes most from {results.baseline} to {name}",
            "In order of the change; each with its number in predictions.csv, the true value, and "
            "what both arms predict. Extremes are picked, so read them for what they have in "
            "common, not for how large they are.",
        )
    if len(others) > _ARMS_DRAWN:
        yield Paragraph(f"Molecules are drawn for the first {_ARMS_DRAWN} of these arms only.")


def _geometry(results: Results, directory: Path) -> Iterator[Block]:
    yield Heading("Geometry of [CLS]")
    table = geometry_table(results)
    if table is None:
        yield Paragraph("The embeddings of no finished run have been analysed.")
        return
    yield Paragraph(
        "Embeddings of [CLS] (the graph token) of the test molecules, 10,000 at most, and of a "
        "sample of their atoms, with the tested checkpoint of each run, after each layer and at "
        "the output (out); mean over the seeds, the band from the least to the greatest. With "
        "norms before the sublayers a layer leaves the residual stream, which no norm has touched; "
        "the output is what the last norm makes of it. The claim to be tested: a norm shared with "
        "the atoms squeezes [CLS] into a small area of the sphere, and LayerNorm erases its "
        "length, which carries what grows with the molecule."
    )
    yield table
    yield from _pictures(directory, _GEOMETRY, results)


def _pictures(
    directory: Path, drawings: tuple[_Drawing, ...] | list[_Drawing], *given: Any
) -> Iterator[Block]:
    """Draw what there is to draw."""
    for draw, title, reading in drawings:
        figure = draw(*given)
        if figure is not None:
            path = f"{FIGURES}/{draw.__name__}.png"
            figures.save(figure, directory / path)
            yield Picture(path, title, reading)


def _repeating(results: Results) -> Iterator[Block]:
    yield Heading("To repeat it")
    yield Paragraph(
        "One command that does all of this (it may have been put together in several steps):"
    )
    yield Paragraph(shlex.join(results.command), "code")
    if "arms.yaml" in results.command:
        yield Paragraph("with this arms.yaml:")
        arms = {arm.name: arm.options for arm in results.arms}
        yield Paragraph(yaml.safe_dump(arms, sort_keys=False).rstrip(), "code")
    sizes = [f"{part} {size:,}" for part, size in results.molecules.items() if size is not None]
    found = results.environment
    packages, machine = (found.get(name) or {} for name in ("packages", "machine"))
    yield Table(
        "Data, code and machine (those of the first finished run).",
        ["what", "value"],
        [
            ["data set", results.dataset],
            ["fingerprint of the data", results.dataset_fingerprint],
            ["molecules", ", ".join(sizes)],
            ["targets", ", ".join(results.task.targets)],
            ["seeds", ", ".join(map(str, results.seeds))],
            ["baseline", results.baseline],
            ["commit", str(found.get("commit") or "not known")],
            ["Python", str(found.get("python") or "not known")],
            ["packages", ", ".join(f"{name} {version}" for name, version in packages.items())],
            ["machine", ", ".join(f"{name}: {value}" for name, value in machine.items())],
        ],
        labels=2,
    )
    for name, values in results.environments_differ.items():
        texts = "; ".join(sorted(map(str, values)))
        yield Paragraph(f"Not all runs had the same {name}: {texts}", "warning")
    yield Paragraph(
        "All options of fit that have a value, defaults too, before those of an arm; each run also "
        "has its config.yaml, and run.json with its versions and machine. All numbers are in "
        "results.json."
    )
    shared = _with_values(results.configuration)
    yield Paragraph(yaml.safe_dump(shared, sort_keys=False).rstrip(), "code")


def _with_values(options: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _with_values(value) if isinstance(value, dict) else value
        for name, value in options.items()
        if value is not None
    }
