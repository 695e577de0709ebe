"""The report of a comparison: Markdown, one self-contained HTML page, and figures.

Made from results.json and predictions.csv alone, so it can be made again at any time, and from
partial results too, which it marks. What it says stands in report.jinja.
"""

from __future__ import annotations

import base64
import html
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from graphormer_sepnorm.compare.predictions import Predictions, read_predictions
from graphormer_sepnorm.compare.report import (
    figures,
    geometry_figures,
    prediction_figures,
    tables,
    text,
)
from graphormer_sepnorm.compare.report.numbers import Metric, number
from graphormer_sepnorm.compare.results_file import RESULTS, Results
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing

_MOST_DRAWN = 3  # arms whose molecules are drawn: these are the largest pictures
_MARKUP = re.compile(r"([\\`*_\[\]<>|#~])")


def write_report(directory: Path) -> Results:
    """Write ``report.md``, ``report.html`` and ``figures/`` of a comparison.

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
    # Numbered, because the name of an arm may hold what a file's name cannot.
    molecules = {f"molecules_{n}": arm for n, arm in enumerate(names[1 : _MOST_DRAWN + 1], start=1)}
    pictures = {}
    (directory / "figures").mkdir(exist_ok=True)
    for name, picture in _drawings(results, predictions, molecules):
        if picture is not None:
            pictures[name] = directory / "figures" / f"{name}.png"
            figures.save(picture, pictures[name])
    for file, form in (("report.md", "markdown"), ("report.html", "html")):
        with replacing(directory / file) as partial:
            report = rendered(form, results, predictions, pictures, molecules)
            partial.write_text(report, encoding="utf-8")
    return results


def _drawings(
    results: Results, predictions: Predictions | None, molecules: dict[str, str]
) -> Iterator[tuple[str, Figure | bytes | None]]:
    """Draw what there is to draw, each under the name of its file."""
    for draw in (
        figures.paired_seeds,
        figures.learning_curves,
        geometry_figures.uniformity,
        geometry_figures.effective_rank,
        geometry_figures.singular_values,
        geometry_figures.cosine,
        geometry_figures.features,
        geometry_figures.probes,
    ):
        yield draw.__name__, draw(results)
    if predictions is None:
        return
    binary = (prediction_figures.roc_and_precision, prediction_figures.calibration)
    others = (prediction_figures.predicted_against_true, prediction_figures.residuals)
    for draw in binary if results.task.kind == "binary" else others:
        yield draw.__name__, draw(results, predictions)
    yield "error_by_size", prediction_figures.error_by_size(results, predictions)
    for name, arm in molecules.items():
        yield name, prediction_figures.largest_changes(results, predictions, arm)


def rendered(
    form: str,
    results: Results,
    predictions: Predictions | None = None,
    pictures: Mapping[str, Path] = MappingProxyType({}),
    molecules: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the text of a report.

    Args:
        form: ``markdown``, or ``html`` for a page that needs nothing else.
        results: What it is on.
        predictions: For the test molecules, if there are any.
        pictures: Files of the figures that were drawn, by name.
        molecules: Arms by the names of the figures that show which molecules they change most.
    """
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    templates.filters |= {
        "text": _in_html if form == "html" else _in_markdown,
        "number": number,
        "command": shlex.join,
        "yaml": lambda value: yaml.safe_dump(value, sort_keys=False).rstrip(),
        "base64": lambda path: base64.b64encode(path.read_bytes()).decode(),
    }
    content = {
        "results": results,
        "metric": Metric.of(results),
        "predictions": predictions,
        "pictures": pictures,
        "molecules": molecules,
        "most_drawn": _MOST_DRAWN,
        "arms": {arm.name: arm.options for arm in results.arms},
        "options": _with_values(results.configuration),
        "tables": tables,
        "text": text,
    }
    template = templates.get_template("page.html" if form == "html" else "report.jinja")
    report = template.render(content, form=f"{form}.jinja")
    return report if form == "html" else re.sub(r"\n{3,}", "\n\n", report).strip() + "\n"


def _in_markdown(words: str) -> str:
    """Text in which Markdown sees nothing but text; a table's row stays on its line."""
    return _MARKUP.sub(r"\\\1", " ".join(words.split()))


def _in_html(words: str) -> str:
    return html.escape(" ".join(words.split()))


def _with_values(options: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _with_values(value) if isinstance(value, dict) else value
        for name, value in options.items()
        if value is not None
    }
