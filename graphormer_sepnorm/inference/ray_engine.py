"""Predicting for a library of files through Ray Data, which reads, hands out and writes."""

from __future__ import annotations

import glob
import logging
import os
import re
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import ConfigError, DataError, GraphormerError
from graphormer_sepnorm.formatting import in_a_line, shortened
from graphormer_sepnorm.inference.batching import CHUNK_ROWS
from graphormer_sepnorm.inference.predict_table import Columns, find_columns, predict_chunk
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.inference.table_job import Outcome, TableJob
from graphormer_sepnorm.process import cores, trim_now_and_then
from graphormer_sepnorm.tables.opening import format_of, open_table

# For Ray, where the user does not set them. On a busy machine its processes take longer than a
# minute to start; it would kill them, and start over for ever.
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_register_timeout_seconds": "600"}
_BLOCK_ROWS = 16 * CHUNK_ROWS  # that are handed out at once, and written to one file
_SPARE_CPUS = 2  # for reading and writing, in addition to the actors
_RETRIES = 3  # of rows whose actor died of them, of too little memory say; Ray's are endless


class Predict:
    """The function that is mapped: a table of some rows in, the same with predictions out."""

    def __init__(
        self, job: TableJob, names: Sequence[str], columns: Columns, model: Path, given: Any
    ) -> None:
        import torch

        torch.set_num_threads(1)
        device, *asked = given
        self._job, self._names, self._columns = job, list(names), columns
        self._predictor = Predictor.load(model, device)
        self._predictor.ask(*asked)

    def __call__(self, table: Any) -> Any:
        """Predict a table of pyarrow.

        Raises:
            ValueError: It has other columns than the first file.
        """
        import pyarrow

        if table.column_names != self._names:
            found = ", ".join(table.column_names)
            raise ValueError(f"a file has other columns than the first one: {found}")
        columns = self._columns
        source = columns.molecules
        cells = (table.column(place).to_pylist() for place in (source.smiles, *source.extra))
        texts = [("", smiles, extra) for smiles, *extra in zip(*cells, strict=True)]
        found = predict_chunk(self._predictor, columns, self._job, source.parse(texts))
        trim_now_and_then()
        for name, values in zip(columns.added.values(), found.values(), strict=True):
            type = pyarrow.float64() if name in columns.numbers else pyarrow.string()
            table = table.append_column(name, pyarrow.array(values, type, from_pandas=True))
        return table


def find_files(source: str) -> tuple[str, list[str]]:
    """Return the format, ``csv`` or ``parquet``, and the files of a folder, a file or a pattern.

    Raises:
        DataError: There are none, or some of both formats.
    """
    pattern = f"{glob.escape(source)}/**" if Path(source).is_dir() else source
    ends = (".csv", ".csv.gz", ".parquet", ".pq")
    names = [name for name in glob.glob(pattern, recursive=True) if name.lower().endswith(ends)]
    formats = {format_of(name) for name in names}
    if len(formats) != 1:
        raise DataError(
            f"{source} has {' and '.join(sorted(formats)) or 'no such files'}: --ray reads Parquet "
            "or CSV files, of one of them only; a pattern in quotes names them, 'DIR/*.parquet'"
        )
    return formats.pop(), sorted(os.path.abspath(name) for name in names)


def start_ray(device: str | None, wanted: int | None) -> tuple[Any, int, bool]:
    """Start Ray, or join a cluster; return it, the number of actors, whether they are on GPUs.

    Raises:
        ConfigError: Ray is not installed, or does not start; the cluster is too small.
    """
    os.environ.update(_ENVIRONMENT | os.environ)
    logging.disable()  # what Ray prints in addition to its progress; the process does nothing else
    try:
        import ray.data  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError("--ray needs Ray: pip install 'graphormer-sepnorm[ray]'") from None
    warnings.simplefilter("ignore")
    address = os.environ.get("RAY_ADDRESS") or "local"
    size: Any = {"num_cpus": (wanted or cores()) + _SPARE_CPUS} if address == "local" else {}
    try:
        if not ray.is_initialized():
            ray.init(address, include_dashboard=False, log_to_driver=False, **size)
    except Exception as error:  # where a node is slow to start it is of no other type
        raise ConfigError(
            f"Ray does not start, or cannot be joined at {address} "
            f"({shortened(in_a_line(str(error)), 200)}): try again when the machine is less busy"
        ) from error
    there = ray.cluster_resources()
    gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 0))
    on_gpu = gpus > 0 if device is None else device != "cpu"
    most = gpus if on_gpu else cpus - _SPARE_CPUS
    if not 1 <= (wanted or most) <= most:
        raise ConfigError(
            f"the cluster has {cpus} CPUs and {gpus} GPUs, {_SPARE_CPUS} CPUs read and write: "
            f"--num_actors is {wanted}, there can be {max(most, 0)} of them"
        )
    return ray, wanted or most, on_gpu


def predict_library(
    predictor: Predictor,
    job: TableJob,
    model: Path,
    outcome: Outcome,
    device: str | None,
    actors: int | None,
) -> None:
    """Predict for all rows of a library, into a folder that must not be there yet.

    By the predictor, on this machine, columns are named and options checked; all machines must see
    the file `model`. The device ``cpu`` leaves GPUs of the cluster alone, ``cuda`` needs them.
    Without a number of actors there is one for each GPU, else for each CPU to spare.

    Raises:
        DataError: There is nothing to read, the output cannot be written, or Ray gave up.
        ConfigError: See `start_ray`.
    """
    import pyarrow
    from pyarrow import csv, dataset

    for path in (Path(job.destination), job.partial):
        if path.exists():
            raise DataError(f"{path} is there already: remove it, or give another name")
    format, files = find_files(job.source)
    with open_table(files[0]) as first:
        columns = find_columns(first, predictor, job, outcome)
    ray, actors, on_gpu = start_ray(device, actors)
    ray.data.DataContext.get_current().enable_progress_bars = not job.quiet
    given = ("cuda" if on_gpu else "cpu"), predictor.interval, predictor.neighbors
    try:
        job.partial.mkdir(parents=True)
        if format == "parquet":
            data = ray.data.read_parquet(files, partitioning=None)
        else:  # cells are text, as they are written
            text = dict.fromkeys(first.columns, pyarrow.string())
            data = ray.data.read_csv(
                files,
                partitioning=None,
                parse_options=csv.ParseOptions(delimiter=first.delimiter, newlines_in_values=True),
                convert_options=csv.ConvertOptions(column_types=text, strings_can_be_null=False),
            )
        data = data.repartition(target_num_rows_per_block=_BLOCK_ROWS).map_batches(
            Predict,
            fn_constructor_args=(job, first.columns, columns, model, given),
            batch_size=CHUNK_ROWS,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=actors, max_tasks_in_flight_per_actor=1),
            num_cpus=1,
            num_gpus=int(on_gpu),
            max_task_retries=_RETRIES,
        )
        (data.write_csv if format == "csv" else data.write_parquet)(str(job.partial.absolute()))
        counted = [columns.added[name] for name in ("warning", "error")]
        text = csv.ConvertOptions(column_types=dict.fromkeys(counted, pyarrow.string()))
        layout = csv.ParseOptions(newlines_in_values=True)
        of_csv = dataset.CsvFileFormat(layout, convert_options=text)
        for file in job.partial.iterdir():
            written = dataset.dataset(file, format=of_csv if format == "csv" else format)
            for batch in written.to_batches(columns=counted):
                outcome.count(*(column.to_pylist() for column in batch.columns))
        os.replace(job.partial, job.destination)
    except BaseException as error:
        shutil.rmtree(job.partial, ignore_errors=True)
        if isinstance(error, GraphormerError) or not isinstance(error, Exception):
            raise
        # What it began with, not what Ray says of that.
        reasons = re.findall(r"^\s*[\w.]*(?:Error|Exception): .+", str(error), re.MULTILINE)
        reason = shortened(in_a_line((reasons or [str(error)])[0]), 200)
        raise DataError(
            f"nothing was written to {job.destination} ({reason}); if memory ran out, take fewer "
            "actors (--num_actors) or rows at once (--batch_size)"
        ) from error
