"""A table to predict: what is asked for, the outcome, and how an interrupted job is resumed."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from graphormer_sepnorm import __version__
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.files import (
    behind_link,
    beside,
    cannot_be_written,
    is_stream,
    sha256_of,
    write_json,
)
from graphormer_sepnorm.tables.opening import format_of, open_table
from graphormer_sepnorm.tables.reader import Layout, TableReader

if TYPE_CHECKING:
    from graphormer_sepnorm.inference.evaluation import Evaluation

# Where the user says nothing: molecules computed at once, and their largest number of atoms, as
# memory grows with its square.
BATCH_SIZE, MAX_ATOMS = 128, 500
_ENDS_BYTES = 1 << 20
# What reasons of a kind have in common.
_KINDS = ("not a valid molecule", "empty", "too large", "not understood", "no atoms")


class Shard(NamedTuple):
    """The part `number` of `of` parts, counted from 1.

    The parts are contiguous, disjoint and together the whole table. They begin where a chunk of the
    whole table begins: the last digits of a value depend on the rows that are predicted together,
    so these are the same, and the parts behind each other are the output of the whole table.
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``3/16``.

        Raises:
            ConfigError: It is something else.
        """
        if match := re.fullmatch(r"(\d+)/(\d+)", text):
            shard = cls(*map(int, match.groups()))
            if 1 <= shard.number <= shard.of:
                return shard
        raise ConfigError(f"--shard is {text}: give K/N with K from 1 to N, such as 3/16")

    def rows(self, total: int, chunk_rows: int) -> range:
        """Return which rows of a table belong to it, from 0; none where there are few chunks."""
        chunks = -(-total // chunk_rows)
        first, last = (chunks * part // self.of for part in (self.number - 1, self.number))
        return range(min(first * chunk_rows, total), min(last * chunk_rows, total))


# Given for columns of labels: those that are called like the targets.
EVERY_TARGET = ("all",)


@dataclass(frozen=True)
class TableJob:
    """What is to be predicted, from where to where."""

    source: str  # the table; - is standard input
    destination: str  # the table to write; - is standard output
    smiles_column: str | None = None  # its name; None finds it
    sheet: str | None = None  # see `Layout`
    header_row: int | None = None
    input_format: str | None = None  # None goes by the name
    output_format: str | None = None  # CSV for standard output
    batch_size: int = BATCH_SIZE  # molecules computed at once
    max_atoms: int = MAX_ATOMS  # larger molecules get an error
    jobs: int | None = None  # processes that predict; None: see `number_of_jobs`
    evaluate: tuple[str, ...] = ()  # columns of labels, or `EVERY_TARGET`
    resume: bool = False  # an interrupted job, if there is one
    overwrite: bool = False  # an output that is there, or an interrupted job
    quiet: bool = False  # no progress on stderr
    verb: Literal["predicted", "embedded", "explained"] = "predicted"
    asked: str = ""  # what predictions come with, for the identity of an interrupted job
    shard: Shard | None = None  # the part of the table; None: all of it

    @property
    def layout(self) -> Layout:
        """Which part of a file is the table."""
        return Layout(self.sheet, self.header_row, self.smiles_column)

    def opened(self) -> TableReader:
        """Open the table."""
        return open_table(self.source, self.input_format, self.layout)

    @property
    def to_file(self) -> bool:
        """Whether the output is a file and not standard output, a device or a pipe."""
        return not is_stream(self.destination)

    @property
    def can_resume(self) -> bool:
        """Whether an interruption of this job loses nothing: its input can be read again.

        An evaluation is of all rows, and an earlier run's are not read again for it.
        """
        if self.evaluate or not self.to_file or not Path(self.source).is_file():
            return False
        format = self.output_format or format_of(self.destination)
        return format not in ("parquet", "xlsx", "html")

    @property
    def partial(self) -> Path:
        """Where the output is until it is complete."""
        return beside(behind_link(Path(self.destination)), ".partial")

    @property
    def progress_file(self) -> Path:
        """Where the state of an interrupted job is stored."""
        return beside(behind_link(Path(self.destination)), ".progress.json")


@dataclass
class Outcome:
    """What a job has done so far."""

    rows: int = 0  # written, those of an earlier run included
    earlier_rows: int = 0  # that an earlier run had written
    safe_rows: int = 0  # that an interruption cannot take away any more
    warnings: int = 0  # rows with a warning
    errors: Counter[str] = field(default_factory=Counter)  # rows without a value, by the reason
    notes: list[str] = field(default_factory=list)  # what the user should know, one line each
    evaluation: Evaluation | None = None  # labels against predictions, if that was asked for

    def count(self, warnings: Sequence[str], errors: Sequence[str]) -> None:
        """Count rows that are done, by the warning and the error of each."""
        self.rows += len(errors)
        self.warnings += sum(map(bool, warnings))
        for error in filter(None, errors):
            self.errors[next((kind for kind in _KINDS if kind in error), "other")] += 1


def check_places(job: TableJob) -> None:
    """Refuse to overwrite anything, and to continue what cannot be continued.

    Raises:
        DataError: There is no input; the output, or a file that is needed until it is complete,
            would replace the input; the output is there already, or a part of it, of an earlier
            job; or a path cannot be used.
    """
    source, output = Path(job.source), Path(job.destination)
    try:
        if job.source != "-" and not source.exists():
            raise DataError(f"there is no file {source}")
        if job.shard and not source.is_file():
            raise DataError("--shard needs an input file: its rows are counted before it is read")
        if job.resume and not job.can_resume:
            raise DataError(
                "--resume needs an input file and an output file of text, and no --evaluate"
            )
        if not job.to_file:
            return
        for path in (output, job.partial, job.progress_file):
            if job.source != "-" and path.exists() and path.samefile(source):
                raise DataError(f"{path} is the input: give the output {output} another name")
        if output.is_file() and not job.overwrite:
            raise DataError(
                f"{output} is there already: give another name, or --overwrite to replace it"
            )
        if job.partial.exists() and not (job.resume or job.overwrite):
            ways = "--resume continues it, " if job.can_resume else ""
            raise DataError(
                f"{job.partial} is there, of an interrupted job: {ways}--overwrite starts over"
            )
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise DataError(f"{error.filename} cannot be used ({error.strerror})") from error


def identify(job: TableJob, checkpoint: Path, chunk_rows: int, device: str) -> dict[str, Any]:
    """Return what the rows of an output are made from.

    Their last digits depend on how many are predicted together, and on which device.
    """
    import torch

    from graphormer_sepnorm.chem.molecules import RDKIT_VERSION

    source = Path(job.source)
    size = source.stat().st_size
    with source.open("rb") as handle:
        ends = handle.read(_ENDS_BYTES)
        handle.seek(max(size - _ENDS_BYTES, 0))
        ends += handle.read()
    names = ("smiles_column", "sheet", "header_row", "input_format", "output_format", "batch_size")
    options = {name: getattr(job, name) for name in (*names, "max_atoms", "verb", "asked")}
    options |= {"chunk_rows": chunk_rows, "device": device.partition(":")[0]}
    return {
        "input": {"bytes": size, "sha256_of_ends": hashlib.sha256(ends).hexdigest()},
        "model": sha256_of(checkpoint),
        "options": options | {"shard": str(job.shard)},
        "version of RDKit": RDKIT_VERSION,
        "version of torch": torch.__version__,
        "version of graphormer_sepnorm": __version__,
    }


def save_progress(job: TableJob, mark: int, identity: dict[str, Any], outcome: Outcome) -> None:
    """Note how far the output is, atomically."""
    state = {name: getattr(outcome, name) for name in ("rows", "warnings", "errors")}
    state |= {"offset": mark, "identity": identity}
    try:
        write_json(job.progress_file, state, indent=1)
    except OSError as error:
        raise DataError(cannot_be_written(job.progress_file, error)) from error
    outcome.safe_rows = outcome.rows


def earlier_progress(job: TableJob, identity: dict[str, Any], outcome: Outcome) -> int | None:
    """Return where an earlier run of the same job stopped; None if there was none.

    Raises:
        DataError: The earlier job was another one.
    """
    if not job.partial.exists():
        return None
    try:
        state = json.loads(job.progress_file.read_text(encoding="utf-8"))
        before, mark = state["identity"], int(state["offset"])
        rows, warnings, errors = state["rows"], state["warnings"], Counter(state["errors"])
    except FileNotFoundError:
        return None  # interrupted before the first rows were safe
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{job.progress_file} is damaged: start over with --overwrite") from error
    changed = [name for name in identity if before.get(name) != identity[name]]
    if changed:
        raise DataError(
            f"{job.partial} was started with another {' and another '.join(changed)}: continue it "
            "with the same, or start over with --overwrite"
        )
    outcome.rows = outcome.earlier_rows = outcome.safe_rows = rows
    outcome.warnings, outcome.errors = warnings, errors
    return mark


def forget_progress(job: TableJob) -> None:
    """Remove the progress of an earlier job, whose partial file a new one has just replaced.

    Also where the new one cannot be resumed: else the earlier one would continue in its rows.
    """
    if job.to_file:
        job.progress_file.unlink(missing_ok=True)
