"""predict.py --engine ray on a cluster of two workers: what one machine gives, whatever happens."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyarrow import compute, csv, parquet
from reference.processes import REPOSITORY
from tiny_run import refused, sample_rows

from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.inference import ray_actor, ray_cluster, ray_engine
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.inference.stream import find_columns
from graphormer_sepnorm.inference.table_job import Outcome, TableJob
from graphormer_sepnorm.tables.library import damage, find_library, values_of_parts
from graphormer_sepnorm.tables.opening import open_table

ROWS, FILES = 8_000, 16
ADDED = ["pred_property", "warning", "error"]
# Ray's processes are nice to others; beside other tests they would not get on.
ENVIRONMENT = {
    "PYTHONPATH": str(REPOSITORY),
    "OMP_NUM_THREADS": "1",
    "RAY_worker_niceness": "0",
}
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray, which the extra test installs"
)

# Commands whose actors do something else; `_Predict` is found here, so it travels with the job.
SLOW = """
import sys, time
from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.inference import ray_actor, ray_cluster, ray_engine

class Slow(ray_engine.Predict):
    def _predicted(self, table):
        time.sleep(1)
        return super()._predicted(table)

ray_engine.Predict = Slow
sys.exit(main(sys.argv[1:]))
"""
DEADLY = SLOW.replace("time.sleep(1)", "0 in table['id'].to_pylist() and __import__('os')._exit(1)")

UNBORN = """
import os, sys
from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.inference import ray_engine

class Unborn(ray_engine.Predict):
    def __init__(self, task):
        born = task.tries.parent / "born"
        if not born.exists():
            born.touch()
            os._exit(1)
        super().__init__(task)

ray_engine.Predict = Unborn
sys.exit(main(sys.argv[1:]))
"""


def molecules(first: int, last: int) -> pa.Table:
    known = [row[0] for row in sample_rows(1000)]
    bad = {3: "", 7: "no molecule", 11: "[Si]"}
    smiles = [bad.get(n % 100, known[n % 1000]) for n in range(first, last)]
    return pa.table({"id": range(first, last), "smiles": smiles})


def write_library(folder: Path, rows: int, files: int) -> Path:
    folder.mkdir()
    each = rows // files
    for number in range(files):
        table = molecules(number * each, (number + 1) * each)
        parquet.write_table(table, folder / f"part-{number:03}.parquet", row_group_size=300)
    return folder


@pytest.fixture(scope="module")
def expected(model: Path, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """What predict.py makes of all rows in one file."""
    folder = tmp_path_factory.mktemp("direct")
    parquet.write_table(molecules(0, ROWS), folder / "in.parquet")
    words = ["-i", str(folder / "in.parquet"), "-o", str(folder / "out.parquet"), "--quiet"]
    assert main([str(model), *words, "--device", "cpu"]) == 0
    return parquet.read_table(folder / "out.parquet")


def output_of(folder: Path) -> tuple[pa.Table, dict[str, Any]]:
    """The rows of an output in the order of their ids, and its manifest."""
    manifest = json.loads((folder / "_manifest.json").read_text())
    return parquet.read_table(folder).sort_by("id"), manifest


def same(predicted: pa.Table, expected: pa.Table) -> None:
    assert [name for name in predicted.column_names if name != "row_hash"] == expected.column_names
    for name in ("id", "smiles", "warning", "error"):
        assert predicted[name].to_pylist() == expected[name].to_pylist()
    values, others = (table["pred_property"].to_numpy() for table in (predicted, expected))
    np.testing.assert_allclose(values, others, rtol=1e-5, atol=1e-6)


@pytest.fixture
def start(model: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start predict.py in a process of its own, with one actor unless told otherwise."""
    started = []

    def start(source: Path | str, *words: str, program: str = "") -> subprocess.Popen[str]:
        command = ["-c", program] if program else [str(REPOSITORY / "predict.py")]
        options = ["-i", str(source), "--engine", "ray", "--num_actors", "1", "--device", "cpu"]
        process = subprocess.Popen(
            [sys.executable, *command, str(model), *options, "-o", str(tmp_path / "out"), *words],
            cwd=tmp_path,
            env={**os.environ, **ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for(process: subprocess.Popen[str], pattern: str, count: int, folder: Path) -> None:
    """Wait until so many files of an unfinished output are there."""
    while process.poll() is None and len([*folder.glob(f"out.partial/{pattern}")]) < count:
        time.sleep(0.05)
    assert process.poll() is None, process.communicate()


@needs_ray
@pytest.mark.slow
def test_a_library_is_predicted_whatever_is_damaged_and_killed(start, expected, tmp_path):
    source, output = write_library(tmp_path / "library", ROWS, FILES), tmp_path / "out"
    whole = (source / "part-000.parquet").read_bytes()
    (source / "cut.parquet").write_bytes(whole[:-100])
    (source / "flipped.parquet").write_bytes(whole[:4] + bytes(200) + whole[204:])
    # One of two workers is killed, and when there is more, the whole job.
    process = start(source, "--num_actors", "2", program=SLOW)
    wait_for(process, "ids/*[0-9].parquet", 1, tmp_path)
    workers = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if any("MapBatches(Slow)" in word for word in child.cmdline())
    ]
    assert len(workers) == 2
    workers[0].kill()
    wait_for(process, "ids/*[0-9].parquet", 3, tmp_path)
    process.kill()
    process.communicate()
    done = [path.stem for path in (tmp_path / "out.partial/ids").glob("*[0-9].parquet")]
    rows = {
        path.name: path.read_bytes()
        for path in (tmp_path / "out.partial/rows").iterdir()
        if path.stem.rpartition("-")[0] in done
    }
    assert 3 <= len(rows) < FILES

    process = start(source, "--num_actors", "2", "--resume")
    out, error = process.communicate()
    assert process.returncode == 0, error
    assert {name: (output / name).read_bytes() for name in rows} == rows
    predicted, manifest = output_of(output)
    same(predicted, expected)
    failed = sum(map(bool, expected["error"].to_pylist()))
    assert manifest["rows"] == {"in": ROWS + 500, "out": ROWS, "failed": failed, "missing": 500}
    assert sorted(map(os.path.basename, manifest["files"]["unreadable"])) == [
        "cut.parquet",
        "flipped.parquet",
    ]
    # Nothing is said but what predict.py says.
    assert out == ""
    *notes, last = [line for line in error.splitlines() if "rows predicted," not in line]
    assert [note.partition(" cannot be read")[0] for note in notes] == [
        f"note: {source}/cut.parquet",
        f"note: {source}/flipped.parquet",
    ]
    assert last.startswith(f"{ROWS:,} rows, {ROWS - failed:,} predicted, {failed:,} without")
    assert not (tmp_path / "out.partial").exists()


@needs_ray
@pytest.mark.slow
def test_rows_whose_actor_dies_each_time_are_missing_and_the_others_are_kept(start, tmp_path):
    source = write_library(tmp_path / "library", 6000, 6)
    process = start(source, program=DEADLY)
    out, error = process.communicate()
    assert process.returncode == 2
    assert out == ""
    said = error.splitlines()[-1]
    assert said.startswith("predict.py: ")
    assert "1,024 of 6,000 rows are missing (RuntimeError: 3 actors died of the same rows)" in said
    assert "out.partial holds the others and --resume does the rest" in said
    assert "take fewer actors (--num_actors) or smaller batches (--batch_size)" in said
    assert not (tmp_path / "out").exists()
    kept = parquet.read_table(tmp_path / "out.partial" / "rows")
    assert kept.num_rows == len(set(kept["id"].to_pylist())) == 6000 - 1024
    assert 0 not in kept["id"].to_pylist()


@needs_ray
@pytest.mark.slow
def test_an_actor_that_dies_while_it_loads_the_model_is_replaced(start, tmp_path):
    process = start(write_library(tmp_path / "library", 300, 1), "--quiet", program=UNBORN)
    assert process.communicate() == ("", "")
    assert process.returncode == 0
    assert output_of(tmp_path / "out")[1]["rows"]["missing"] == 0


@needs_ray
@pytest.mark.slow
def test_the_best_rows_of_csv_files(start, expected, tmp_path):
    source = tmp_path / "library"
    source.mkdir()
    for number in range(4):
        csv.write_csv(molecules(number * 1500, (number + 1) * 1500), source / f"{number}.csv")
    process = start(f"{source}/*.csv", "--top", "50", "--lowest", "--id_column", "id", "--quiet")
    assert process.communicate() == ("", "")
    kept = parquet.read_table(tmp_path / "out" / "best.parquet")
    direct = expected.slice(0, 6000)
    failed = sum(map(bool, direct["error"].to_pylist()))
    direct = direct.filter(compute.is_valid(direct["pred_property"]))
    best = direct.sort_by([("pred_property", "ascending")]).slice(0, 50)
    np.testing.assert_allclose(
        kept["pred_property"].to_numpy(), best["pred_property"].to_numpy(), rtol=1e-5
    )
    assert kept.column_names == ["id", "smiles", *ADDED]
    assert kept.schema.field("id").type == pa.string()  # cells of CSV stay as they are written
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert manifest["rows"] == {"in": 6000, "out": 6000, "failed": failed, "missing": 0, "kept": 50}


def task_of(model: Path, folder: Path, best: ray_actor.Best | None = None) -> ray_actor.Task:
    predictor = Predictor.load(model, "cpu")
    source = folder / "in.parquet"
    parquet.write_table(molecules(0, 3000), source)
    job = TableJob(str(source), str(folder / "out"), output_format="parquet")
    with open_table(source) as reader:
        columns = find_columns(reader, predictor, job, Outcome())
    return ray_actor.Task(columns, job, model, predictor.asked, "cpu", best, folder)


def test_what_is_mapped_gives_what_a_table_gives(model, expected, tmp_path):
    predict = ray_actor.Predict(task_of(model, tmp_path))
    predicted = predict(molecules(0, 3000))
    same(predicted, expected.slice(0, 3000))
    assert predicted.schema.remove_metadata() == expected.schema.remove_metadata()
    assert (
        predicted["pred_property"].null_count == expected["pred_property"].slice(0, 3000).null_count
    )
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]  # no note of a try is left


def test_rows_are_given_up_when_three_actors_died_of_them(model, tmp_path, monkeypatch):
    predict = ray_actor.Predict(task_of(model, tmp_path))
    rows = molecules(0, 10)
    with monkeypatch.context() as patch:
        patch.setattr(ray_actor, "predict_chunk", lambda *chunk: 1 / 0)  # as far as it comes
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                predict(rows)
    with pytest.raises(RuntimeError, match="3 actors died of the same rows"):
        predict(rows)
    assert predict(molecules(10, 20)).num_rows == 10


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "Traceback:\n  f()\nOSError: no room\n\nray.UserCodeException: UDF failed\nTo",
            "OSError: no room",
        ),
        ("The actor died unexpectedly.\n\tclass_name: X", "The actor died unexpectedly."),
        ("", "ValueError"),
    ],
)
def test_of_what_ray_says_the_error_is_kept(text, reason):
    with ray_cluster.Failures() as failures:
        try:
            raise ValueError(text)
        except ValueError as error:
            logging.getLogger("ray.data").error("ignored", exc_info=error)
    assert failures.reason == reason


@pytest.mark.parametrize("level", ["DEBUG", "INFO", "WARNING"])
def test_what_ray_has_got_over_is_no_failure(level, caplog):
    caplog.set_level("DEBUG", logger="ray.data")
    with ray_cluster.Failures() as failures:
        number = logging.getLevelName(level)
        logging.getLogger("ray.data").log(number, "tried again", exc_info=OSError("a poll failed"))
    assert failures.last is None
    assert failures.reason == "Ray gave no reason"


@pytest.mark.parametrize(("actors", "deaths"), [(1, 3), (64, 64)])
def test_actors_may_die_while_they_load_the_model(actors, deaths, tmp_path):
    library = find_library(str(write_library(tmp_path / "library", 30, 3)))
    asked = ray_engine.RayJob(TableJob("library", "out"), tmp_path / "model.ckpt", top=1)
    contexts = SimpleNamespace(max_consecutive_actor_init_deaths=0), SimpleNamespace()
    for context in contexts:
        ray = MagicMock()
        ray.data.DataContext.get_current.return_value = context
        ray_engine._predicted(ray, library, asked, MagicMock(), actors, False)
    named, older = contexts
    assert named.max_consecutive_actor_init_deaths == deaths
    assert not hasattr(older, "max_consecutive_actor_init_deaths")


@pytest.mark.parametrize(("lowest", "kept"), [(False, [5, 1, 2]), (True, [4, 1, 2])])
def test_the_best_are_chosen_by_value_then_by_the_other_column(lowest, kept):
    best = ray_actor.Best(3, "y", lowest, "id", ("error", "warning"), "counts")
    table = pa.table(
        {
            "id": [2, 1, 3, 4, 5, 6],
            "y": [1.0, 1.0, 1.0, 0.0, 2.0, None],
            "warning": ["w", "", "", "", "", ""],
            "error": ["", "", "", "", "", "the SMILES is empty"],
        }
    )
    counted = best.counted(table)
    assert json.loads(counted["counts"][0].as_py()) == {
        "rows": 6,
        "warnings": 1,
        "errors": {"empty": 1},
    }
    assert counted["y"][0].as_py() is None
    assert best.of(counted)["id"].to_pylist() == kept
    none = table.filter(compute.is_null(table["y"]))
    assert best.of(best.counted(none)).num_rows == 0


def test_without_ray_there_is_one_line(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["-i", str(tmp_path), "-o", str(tmp_path / "out"), "--engine", "ray"]
    said = refused(capsys, main, str(model), *words)
    assert "needs Ray 2.60 or newer: pip install 'graphormer-sepnorm[ray]'" in said


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("10.0.0.7:6379", ("10.0.0.7", 6379)),
        ("ray://head:10001", ("head", 10001)),
        ("[::1]:6379", ("::1", 6379)),
    ],
)
def test_a_cluster_that_does_not_answer_is_said(address, asked, monkeypatch):
    """Ray itself goes on trying."""
    knocked = []

    def refuse(place, timeout):
        knocked.append(place)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("socket.create_connection", refuse)
    with (
        pytest.raises(ConfigError, match=r"no Ray cluster answers at .*Connection refused"),
        ray_cluster.cluster(None, address, None, None),
    ):
        pass
    assert knocked == [asked]


@pytest.mark.parametrize("device", ["cuda:1", "gpu", "cuad"])
def test_a_device_that_ray_does_not_hand_out_is_refused(device, model, tmp_path, capsys):
    words = ["-i", str(tmp_path), "-o", str(tmp_path / "out"), "--engine", "ray"]
    said = refused(capsys, main, str(model), *words, "--device", device)
    assert f"--engine ray takes --device cpu or cuda, not {device}" in said


def test_gpus_that_the_cluster_lacks_are_said():
    ray = MagicMock()
    ray.cluster_resources.return_value = {"CPU": 8.0}
    with (
        pytest.raises(ConfigError, match="the cluster has no GPU for --device cuda"),
        ray_cluster.cluster(ray, None, 1, "cuda"),
    ):
        pass
    ray.shutdown.assert_called_once()
    for device, gpus, on_gpu in ((None, 0, False), (None, 2, True), ("cpu", 2, False)):
        ray.cluster_resources.return_value = {"CPU": 8.0, "GPU": float(gpus)}
        with ray_cluster.cluster(ray, None, 1, device) as found:
            assert found == (1, on_gpu)


def no_library(source: Path | str) -> str:
    with pytest.raises(DataError) as caught:
        find_library(str(source))
    return str(caught.value)


def test_a_library_is_its_files_of_one_format_and_the_same_columns(tmp_path):
    source = write_library(tmp_path / "library", 30, 3)
    (source / "deeper").mkdir()
    parquet.write_table(molecules(0, 5), source / "deeper" / "more.pq")
    parquet.write_table(molecules(0, 5), source / "_hidden.parquet")
    parquet.write_table(molecules(0, 5).slice(0, 0), source / "nothing.parquet")
    parquet.write_table(pa.table({"id": ["a"], "smiles": ["C"]}), source / "text.parquet")
    (source / "readme.md").write_text("no table")
    library = find_library(str(source))
    assert [Path(name).name for name in library.files] == [
        "more.pq",
        *(f"part-{number:03}.parquet" for number in range(3)),
    ]
    assert library.rows == (5, 10, 10, 10)
    assert library.columns == ("id", "smiles")
    ((name, why),) = library.unreadable.items()
    assert name.endswith("text.parquet")
    assert "its columns or their types are not those of" in why
    assert find_library(f"{source}/part-*.parquet").rows == (10, 10, 10)
    assert find_library(str(source / "part-001.parquet")).rows == (10,)
    csv.write_csv(molecules(0, 5), source / "more.csv")
    assert "is csv, parquet: a library is of Parquet or CSV files, of one" in no_library(source)
    assert "there is no Parquet or CSV file" in no_library(tmp_path / "absent")
    assert "has no rows" in no_library(source / "nothing.parquet")


def test_damaged_files_are_told_from_others(tmp_path):
    source = write_library(tmp_path / "library", 300, 1) / "part-000.parquet"
    assert damage(str(source)) == ""
    whole = source.read_bytes()
    source.write_bytes(whole[:4] + bytes(200) + whole[204:])
    assert find_library(str(source)).rows == (300,)  # of Parquet only the end is looked at
    assert damage(str(source))
    source.write_bytes(whole[:-100])
    assert "no file can be read" in no_library(source)
    ragged = tmp_path / "ragged.csv"
    ragged.write_text("smiles,id\nCCO,1\nCN\n")
    assert "Expected 2 columns" in no_library(ragged)


def test_cells_of_csv_are_text_and_separated_as_the_name_says(tmp_path):
    table = tmp_path / "in.tsv"
    table.write_text('smiles\tid\nCCO\t"a\nb"\nCN\tNA\n')
    assert find_library(str(table)).rows == (2,)
    table = tmp_path / "in.csv"
    table.write_text("smiles;id\nCCO;1\n")
    assert "separated by commas" in no_library(table)
    table.write_text("smiles,smiles\nCCO,1\n")
    assert "several columns are called 'smiles'" in no_library(table)


def test_what_stands_in_the_parts_is_counted(tmp_path):
    for number, texts in enumerate((["", "a", "a"], ["b", None])):
        parquet.write_table(pa.table({"error": texts}), tmp_path / f"{number}.parquet")
    counts = values_of_parts(sorted(tmp_path.iterdir()), "error")
    assert counts == {"": 2, "a": 2, "b": 1}


def test_an_output_of_others_is_not_overwritten(model, tmp_path, capsys, monkeypatch):
    for module in (ray_cluster, ray_engine):
        monkeypatch.setattr(module, "load_ray", lambda: None)
    source, output = write_library(tmp_path / "library", 30, 3), tmp_path / "out"
    words = [str(model), "-i", str(source), "-o", str(output), "--engine", "ray"]
    inside = [*words[:4], str(source / "out"), *words[5:]]
    assert "would be read as a part of it the next time" in refused(capsys, main, *inside)
    output.mkdir()
    (output / "thesis.tex").write_text("mine")
    said = refused(capsys, main, *words, "--overwrite")
    assert "is there already, and it is no output of predict.py" in said
    (output / "_manifest.json").write_text("{}")
    assert "is there already: give another name, or --overwrite" in refused(capsys, main, *words)
    part = write_library(output / "rows", 30, 3) / "part-001.parquet"
    for earlier in (output, part):
        words[2] = str(earlier)
        said = refused(capsys, main, *words, "--overwrite")
        assert f", which is read, lies in {output}, which would be removed" in said
        assert part.is_file()
    words[2] = str(source)
    (tmp_path / "link").symlink_to(output)
    said = refused(capsys, main, *words[:4], str(tmp_path / "link"), *words[5:], "--overwrite")
    assert "link is a link: name the folder itself" in said
    (tmp_path / "out.partial").mkdir()
    said = refused(capsys, main, *words, "--overwrite", "--id_column", "x")
    assert "there is no column 'x'" in said


def test_another_job_is_not_continued(model, tmp_path, capsys, monkeypatch):
    @contextlib.contextmanager
    def broken(*given: object) -> Iterator[None]:
        parquet.write_table(molecules(0, 1), tmp_path / "out.partial" / "rows" / "0.parquet")
        raise DataError("the cluster is gone")
        yield

    for module in (ray_cluster, ray_engine):
        monkeypatch.setattr(module, "load_ray", lambda: None)
    monkeypatch.setattr(ray_engine, "cluster", broken)
    source, output = write_library(tmp_path / "library", 30, 3), tmp_path / "out"
    words = [str(model), "-i", str(source), "-o", str(output), "--engine", "ray"]
    assert "the cluster is gone" in refused(capsys, main, *words)
    assert "--resume continues it, --overwrite begins anew" in refused(capsys, main, *words)
    for more, said in (
        (["--max_atoms", "7"], "begun with another options"),
        (["--id_column", "id"], "begun with another --id_column"),
        ([], "the cluster is gone"),
    ):
        assert said in refused(capsys, main, *words, "--resume", *more)
    (source / "part-002.parquet").unlink()
    assert "begun with another input" in refused(capsys, main, *words, "--resume")
    csv.write_csv(molecules(0, 9), tmp_path / "in.csv")
    words[2] = str(tmp_path / "in.csv")
    assert "--resume of CSV needs --id_column" in refused(capsys, main, *words, "--resume")
    assert "the cluster is gone" in refused(capsys, main, *words, "--overwrite")
    said = refused(capsys, main, *words)
    assert "--resume" not in said
    assert "--overwrite begins anew" in said
    assert [*(tmp_path / "out.partial" / "rows").iterdir()]


def test_a_column_that_ray_would_write_over_is_refused(model, tmp_path, capsys, monkeypatch):
    for module in (ray_cluster, ray_engine):
        monkeypatch.setattr(module, "load_ray", lambda: None)
    source = tmp_path / "in.parquet"
    parquet.write_table(pa.table({"smiles": ["C"], "row_hash": [1]}), source)
    words = [str(model), "-i", str(source), "-o", str(tmp_path / "out"), "--engine", "ray"]
    assert "a column 'row_hash', which Ray would write over" in refused(capsys, main, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
