"""The verb results: keeps what run directories say, and makes a table of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphormer_sepnorm.cli.main import OneLineParser
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.files import write_text
from graphormer_sepnorm.resources import config_names
from graphormer_sepnorm.runs.records import Experiment, add_to_records
from graphormer_sepnorm.runs.results_table import configuration_file, render

DESCRIPTION = """\
Make the table of a project's results from run directories.

Runs whose configurations are equal but for the seed are one experiment. Each is kept as a small
record in the folder, so that the run directories may go; the table beside the folder (its name with
.md) is made from all records. Without directories it is made again.
"""


def results(arguments: list[str]) -> int:
    """Run ``train.py results`` with the words after the verb; return the exit status.

    Raises:
        GraphormerError: There is no run, or one is damaged or of another version; nothing has been
            written.
    """
    parser = OneLineParser(prog="train.py results", description=DESCRIPTION)
    what = "of a run, of a comparison, or of several: all runs in it are taken"
    parser.add_argument("directories", metavar="DIR", nargs="*", help=what)
    what = "folder of the records; default: results, with the table results.md beside it"
    parser.add_argument("-o", "--output", metavar="FOLDER", default="results", help=what)
    options = parser.parse_args(arguments)
    from graphormer_sepnorm.cli.known_warnings import silence_known_noise

    silence_known_noise()
    folder = Path(options.output).expanduser()
    if folder.name in ("", ".."):  # the table has the folder's name
        folder = folder.resolve()
    found = _read([Path(name).expanduser() for name in options.directories])
    experiments = add_to_records(folder, found)
    if not experiments:
        raise DataError(f"there are no records in {folder}: give directories of runs")
    table = folder.with_name(f"{folder.name}.md")
    write_text(table, render(experiments, folder.name, _files(experiments)))
    print(f"results  {table}: {_count(experiments)}; read now: {_count(found)}")
    return 0


def _read(directories: list[Path]) -> list[Experiment]:
    if not directories:
        return []
    from graphormer_sepnorm.cli.fit_check import FitOptions
    from graphormer_sepnorm.runs.experiments import read_experiments

    return list(read_experiments(directories, FitOptions([]).configuration(), arm_of))


def arm_of(directory: Path) -> tuple[str, dict[str, str]] | None:
    """Return the arm that a run is of, if it lies in the directory of a comparison."""
    from graphormer_sepnorm.compare.comparison import Comparison

    try:
        comparison = Comparison.read(directory.parent.parent)
    except ConfigError:  # of another version; the run itself says what it did
        return None
    arms = {arm.name: arm.options for arm in comparison.arms} if comparison else {}
    name = directory.parent.name
    return (name, arms[name]) if name in arms else None


def _files(experiments: list[Experiment]) -> dict[str, dict[str, Any]]:
    """What the configuration files that come with the package say today."""
    from graphormer_sepnorm.cli.fit_check import FitOptions
    from graphormer_sepnorm.cli.options import LINKED
    from graphormer_sepnorm.runs.experiments import differing

    defaults = FitOptions([]).configuration()
    said = {}
    for name in {configuration_file(one) for one in experiments} & set(config_names()):
        options = differing(FitOptions(["-c", name]).configuration(), defaults)
        # Runs do not keep what other options set.
        said[name] = {key: value for key, value in options.items() if key not in LINKED}
    return said


def _count(experiments: list[Experiment]) -> str:
    different = len({one.fingerprint for one in experiments})
    runs = sum(len(one.runs) for one in experiments)
    return f"{different} experiment{'s' * (different != 1)}, {runs} run{'s' * (runs != 1)}"
