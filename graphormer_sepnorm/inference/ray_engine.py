"""Predicting for a library on many machines: Ray Data reads, hands out, writes and tries again.

Ours is the function that is mapped, `ray_actor.Predict`, and what is said before and after it. Ray
writes to ``DIR.partial/rows`` and notes in ``DIR.partial/ids`` which rows are safely there, by
their ids: those are left out when the job is continued. When all are there, ``rows`` becomes
``DIR``.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import threading
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import read_json, write_json
from graphormer_sepnorm.formatting import StatusLine, clock
from graphormer_sepnorm.inference.batching import CHUNK_ROWS
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.inference.ray_actor import Best, Predict, Task
from graphormer_sepnorm.inference.ray_cluster import Failures, cluster, load_ray, silence
from graphormer_sepnorm.inference.stream import Columns, find_columns
from graphormer_sepnorm.inference.table_job import (
    Outcome,
    TableJob,
    kind_of,
    made_with,
    require_same,
)
from graphormer_sepnorm.process import name_and_version
from graphormer_sepnorm.tables.columns import find_column, free_name
from graphormer_sepnorm.tables.library import (
    Library,
    csv_options,
    damage,
    find_library,
    rows_of_parts,
    values_of_parts,
)
from graphormer_sepnorm.tables.opening import open_table

MANIFEST = "_manifest.json"  # with the underscore readers of the folder take it for no table
BEST = "best.parquet"
_JOB = "job.json"  # in the folder of an unfinished output: what it is of
ROW_ID = "row_hash"  # Ray's, of file and place in it

# Rows that an actor gets at once, and that are written to one file: enough that handing them out
# costs nothing, few enough that all actors have work to the end and a killed one loses little.
_MOST_ROWS = 32 * CHUNK_ROWS
_SHARES = 8  # of each actor, in a small library
# So many actors, or as many as there are, may die one behind the other while they load the model.
_INIT_DEATHS = 3


@dataclass(frozen=True)
class RayJob:
    """What is asked of the cluster.

    Attributes:
        job: What is predicted, from where to where; its source is a folder, a pattern or a file.
        model: The model's file, which all machines must see.
        device: ``cpu`` leaves GPUs of the cluster alone, ``cuda`` needs them; None: GPUs if there
            are any.
        actors: How many predict at once; None: one for each GPU, else each CPU, of the cluster.
        address: Of a running cluster; None starts one on this machine.
        id_column: A column with a different value in each row; None: file and place in it.
        top: Keep so many rows only; None: all.
        by: Of these columns the highest are kept.
        lowest: Keep the lowest.
    """

    job: TableJob
    model: Path
    device: str | None = None
    actors: int | None = None
    address: str | None = None
    id_column: str | None = None
    top: int | None = None
    by: str | None = None
    lowest: bool = False

    @property
    def rows_folder(self) -> Path:
        """Where Ray writes to."""
        return self.job.partial / "rows"

    @property
    def parts(self) -> list[Path]:
        """What it has written so far."""
        return sorted(self.rows_folder.glob("*.parquet"))


def check_places(job: TableJob) -> None:
    """Refuse to overwrite anything but an earlier output.

    Raises:
        DataError: The output is there already, or was begun by an earlier job.
    """
    output, partial = Path(job.destination), job.partial
    if output.is_symlink():
        raise DataError(f"{output} is a link: name the folder itself")
    if Path(job.source).resolve() in output.resolve().parents:
        raise DataError(
            f"{output} is in the folder that is read, {job.source}, and would be read as a part of "
            "it the next time: name a place outside"
        )
    if output.exists() and not (job.overwrite and (output / MANIFEST).is_file()):
        ours = not output.is_dir() or (output / MANIFEST).is_file()
        what = "" if ours else ", and it is no output of predict.py"
        advice = "" if what else ", or --overwrite to replace it"
        raise DataError(f"{output} is there already{what}: give another name{advice}")
    if partial.exists() and not (job.resume or job.overwrite):
        way = "--resume continues it, " if is_continuable(job) else ""
        raise DataError(
            f"{partial} is there, of a job that was interrupted: {way}--overwrite begins anew"
        )


def is_continuable(job: TableJob) -> bool:
    """Whether what an interrupted job left can be continued: if its rows can be told apart."""
    before = read_json(job.partial / _JOB) or {}
    return before.get("id_column") is not None or before.get("input", {}).get("format") == "parquet"


def _refuse_to_replace(library: Library, job: TableJob) -> None:
    """Raise a DataError if a file that is read lies where something is removed."""
    for folder in (Path(job.destination), job.partial):
        for name in (*library.files, *library.unreadable):
            if folder.resolve() in Path(name).resolve().parents:
                raise DataError(
                    f"{name}, which is read, lies in {folder}, which would be removed: give the "
                    "output another name"
                )


def predict_library(predictor: Predictor, asked: RayJob, outcome: Outcome) -> None:
    """Predict for all rows of a library.

    By the predictor, which is on this machine, columns are named and options checked.

    Raises:
        DataError: There is nothing to read, the output cannot be written, rows are missing, or an
            interrupted job is another one.
        ConfigError: There is no cluster, it is too small, or has no GPU where one is asked for.
    """
    started = time.monotonic()
    ray, job = load_ray(), asked.job
    check_places(job)
    library = find_library(job.source)
    _refuse_to_replace(library, job)
    outcome.notes += [f"{name} cannot be read: {why}" for name, why in library.unreadable.items()]
    with open_table(library.files[0]) as reader:
        columns = find_columns(reader, predictor, job, outcome)
        if asked.id_column is not None:
            place = find_column(reader.columns, asked.id_column, reader.name)
            asked = replace(asked, id_column=reader.columns[place])
    if ROW_ID in library.columns and asked.id_column is None:
        raise DataError(
            f"the library has a column {ROW_ID!r}, which Ray would write over: rename it, or name "
            "a column that has another value in each row with --id_column"
        )
    best = _best_of(asked, predictor, library, columns)
    total = sum(library.rows)
    identity = {
        "input": _contents(library),
        **made_with(job, asked.model, CHUNK_ROWS, asked.device or "any"),
    }
    _begin(asked, library, identity, outcome)
    try:
        with (
            silence() as stderr,
            cluster(ray, asked.address, asked.actors, asked.device) as (actors, on_gpu),
            Failures() as failures,
        ):
            device = "cuda" if on_gpu else "cpu"
            tries = (job.partial / "tries").absolute()
            shutil.rmtree(tries, ignore_errors=True)  # a job that is continued tries again
            tries.mkdir()
            task = Task(columns, job, asked.model, predictor.asked, device, best, tries)
            readable = library
            with _Progress(asked, total, outcome, stderr) as progress:
                while readable.files:
                    data = _predicted(ray, readable, asked, task, actors, on_gpu)
                    _run(data, asked, best, progress, outcome, failures)
                    if best is None:
                        _count(asked, columns, outcome)
                    readable = _without_damaged(readable, asked, outcome, failures)
    except BaseException:
        if best is not None or not asked.parts:  # there is nothing to continue
            shutil.rmtree(job.partial, ignore_errors=True)
        raise
    manifest = {
        "rows": {
            "in": total,
            "out": outcome.rows,
            "failed": outcome.errors.total(),
            "missing": total - outcome.rows,
            **({} if best is None else {"kept": rows_of_parts(asked.parts)}),
        },
        "failed": dict(outcome.errors),
        "warnings": outcome.warnings,
        "files": {"read": len(library.files), "unreadable": library.unreadable},
        "model_file": str(asked.model),
        **identity,
        "actors": actors,
        "packages": {"graphormer_sepnorm": name_and_version().split()[1], "ray": ray.__version__},
        "seconds": round(time.monotonic() - started, 1),
    }
    _finish(asked, manifest)


def _best_of(
    asked: RayJob, predictor: Predictor, library: Library, columns: Columns
) -> Best | None:
    """Return which rows are kept; None: all."""
    if asked.top is None:
        return None
    by = find_column(predictor.columns, asked.by or predictor.columns[0], "--by")
    if asked.id_column is not None:
        tie = asked.id_column
    elif library.format == "parquet":
        tie = ROW_ID
    else:
        assert columns.molecules.smiles is not None
        tie = library.columns[columns.molecules.smiles]
    warning, error = columns.added[-2:]
    counts = free_name("counts", (*library.columns, *columns.added))
    return Best(asked.top, columns.numbers[by], asked.lowest, tie, (error, warning), counts)


def _contents(library: Library) -> dict[str, Any]:
    sizes = [(name, Path(name).stat().st_size) for name in library.files]
    return {
        "format": library.format,
        "files": len(sizes),
        "bytes": sum(size for _, size in sizes),
        "sha256_of_names_and_sizes": hashlib.sha256(json.dumps(sizes).encode()).hexdigest(),
    }


def _begin(asked: RayJob, library: Library, identity: dict[str, Any], outcome: Outcome) -> None:
    """Make the folder to write to, or find what an earlier run wrote to it."""
    job, file = asked.job, asked.job.partial / _JOB
    identity = identity | {"id_column": asked.id_column}
    if job.resume and asked.rows_folder.exists():
        if library.format != "parquet" and asked.id_column is None:
            raise DataError(
                "--resume of CSV needs --id_column, a column with another value in each row; "
                "Parquet needs none"
            )
        before = read_json(file)
        if before is None:
            raise DataError(f"{file} is damaged: begin anew with --overwrite")
        require_same(before, identity, job.partial)
        if before["id_column"] != asked.id_column:
            raise DataError(
                f"{job.partial} was begun with another --id_column: continue it with the same, or "
                "begin anew with --overwrite"
            )
        outcome.earlier_rows = rows_of_parts(asked.parts)
        return
    try:
        shutil.rmtree(job.partial, ignore_errors=True)
        asked.rows_folder.mkdir(parents=True)
        write_json(file, identity, indent=1)
    except OSError as error:
        raise DataError(f"{job.partial} cannot be written ({error.strerror})") from error


def _predicted(
    ray: Any, library: Library, asked: RayJob, task: Task, actors: int, on_gpu: bool
) -> Any:
    """Return the data set of the predictions; nothing is computed yet."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # A file that cannot be read to its end, or rows whose actors die, stop nothing; what is missing
    # is counted at the end.
    context.max_errored_blocks = -1
    # Nor does an actor that dies while it loads the model, unless no other comes up meanwhile; by
    # itself Ray 2.60 would end the job with the first. On a busy cluster all may die at once.
    if hasattr(context, "max_consecutive_actor_init_deaths"):
        context.max_consecutive_actor_init_deaths = max(_INIT_DEATHS, actors)
    context.checkpoint_config = None
    if asked.top is None and (asked.id_column is not None or library.format == "parquet"):
        context.checkpoint_config = ray.data.checkpoint.CheckpointConfig(
            asked.id_column or ROW_ID,
            str((asked.job.partial / "ids").absolute()),
            delete_checkpoint_on_success=False,
        )
    files = list(library.files)
    if library.format == "parquet":
        numbered = asked.id_column is None
        data = ray.data.read_parquet(files, include_row_hash=numbered, partitioning=None)
    else:
        data = ray.data.read_csv(files, partitioning=None, **csv_options(library))
    share = math.ceil(sum(library.rows) / (actors * _SHARES * CHUNK_ROWS)) * CHUNK_ROWS
    data = data.repartition(target_num_rows_per_block=min(share, _MOST_ROWS))
    return data.map_batches(
        Predict,
        fn_constructor_args=(task,),
        batch_size=None,  # a block
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=actors, max_tasks_in_flight_per_actor=1),
        num_cpus=1,
        num_gpus=1 if on_gpu else 0,
    )


def _run(
    data: Any,
    asked: RayJob,
    best: Best | None,
    progress: _Progress,
    outcome: Outcome,
    failures: Failures,
) -> None:
    """Have it computed.

    Raises:
        DataError: Ray gave up, as where no actor can load the model.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if best is None:
                data.write_parquet(str(asked.rows_folder.absolute()))
            else:
                _keep_best(data, asked, best, progress, outcome)
        except Exception as error:
            failures.last = failures.last or error
            raise DataError(f"Ray gave up: {failures.reason}; {_advice(asked)}") from error


def _keep_best(data: Any, asked: RayJob, best: Best, progress: _Progress, outcome: Outcome) -> None:
    """Collect the best rows of what each actor got, and write the best of these."""
    import pyarrow
    from pyarrow import parquet

    kept = None
    outcome.rows = outcome.warnings = 0
    outcome.errors.clear()
    for part in data.iter_batches(batch_size=None, batch_format="pyarrow"):
        for text in part[best.counts].drop_null().to_pylist():
            counts = json.loads(text)
            outcome.rows += counts["rows"]
            outcome.warnings += counts["warnings"]
            outcome.errors.update(counts["errors"])
        kept = best.of(part if kept is None else pyarrow.concat_tables([kept, part]))
        progress.rows = outcome.rows
    if kept is not None:
        ours = {best.counts} | ({ROW_ID} if asked.id_column is None else set())
        kept = kept.drop_columns([name for name in kept.column_names if name in ours])
        parquet.write_table(kept, asked.rows_folder / BEST)


class _Progress:
    """Says now and then how many rows are done, by the files that are there.

    Attributes:
        rows: Rows that are done; of those that are written to files it finds them itself.
    """

    def __init__(self, asked: RayJob, total: int, outcome: Outcome, stream: TextIO) -> None:
        self._stream = stream
        self.rows = outcome.earlier_rows
        self._asked = asked
        self._total = total
        self._first = self.rows
        self._started = time.monotonic()
        self._known: dict[Path, int] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Progress:
        if not self._asked.job.quiet:
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        line = StatusLine(self._stream)
        while not self._done.wait(0.5):
            if not line.is_due():
                continue
            if self._asked.top is None:
                for part in self._asked.parts:
                    self._known[part] = self._known.get(part) or rows_of_parts([part])
                self.rows = sum(self._known.values())
            rate = (self.rows - self._first) / (time.monotonic() - self._started)
            left = f", {clock((self._total - self.rows) / rate)} left" if rate else ""
            line.show(f"{self.rows:,} of {self._total:,} rows predicted, {rate:,.0f} rows/s{left}")
        line.clear()


def _count(asked: RayJob, columns: Columns, outcome: Outcome) -> None:
    """Count what is there, whoever wrote it and after whatever happened."""
    parts = asked.parts
    warning, error = columns.added[-2:]
    outcome.errors.clear()
    outcome.rows = rows_of_parts(parts)
    for text, count in values_of_parts(parts, error).items():
        if text:
            outcome.errors[kind_of(text)] += count
    found = values_of_parts(parts, warning)
    outcome.warnings = found.total() - found[""]


def _without_damaged(
    library: Library, asked: RayJob, outcome: Outcome, failures: Failures
) -> Library:
    """Return what is to be tried again: the library without files that cannot be read to their end.

    A task reads several files, and where one of them is damaged those behind it are missing too.

    Returns:
        A library without files where nothing is missing.

    Raises:
        DataError: Rows are missing for another reason.
    """
    missing = sum(library.rows) - outcome.rows
    if missing <= 0 and failures.last is None:
        return replace(library, files=())
    reasons = {name: why for name in library.files if (why := damage(name))}
    if not reasons:
        raise DataError(
            f"{missing:,} of {sum(library.rows):,} rows are missing ({failures.reason}); "
            f"{_advice(asked)}"
        )
    library.unreadable.update(reasons)
    outcome.notes += [f"{name} cannot be read to its end: {why}" for name, why in reasons.items()]
    rows = dict(zip(library.files, library.rows, strict=True))
    left = {name: count for name, count in rows.items() if name not in reasons}
    failures.last = None
    return replace(library, files=tuple(left), rows=tuple(left.values()))


def _advice(asked: RayJob) -> str:
    less = "if memory ran out, take fewer actors (--num_actors) or smaller batches (--batch_size)"
    if asked.top is None and asked.parts and is_continuable(asked.job):
        return f"{asked.job.partial} holds the others and --resume does the rest; {less}"
    return less


def _finish(asked: RayJob, manifest: dict[str, Any]) -> None:
    """Give the complete output its name."""
    job, output = asked.job, Path(asked.job.destination)
    try:
        write_json(asked.rows_folder / MANIFEST, manifest)
        if output.exists():  # with --overwrite, and an output of ours
            shutil.rmtree(output)
        os.replace(asked.rows_folder, output)
        shutil.rmtree(job.partial)
    except OSError as error:
        raise DataError(f"{output} cannot be written ({error.strerror or error})") from error
