"""predict.py --ray: what one process gives, mistakes in one line, and nothing outlives it."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from reference.processes import REPOSITORY
from tiny_run import sample_rows

from graphormer_sepnorm.cli import predict
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.inference import ray_engine

# Ray's processes are nice to others; beside other tests they would not get on.
ENVIRONMENT = {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}

COMMANDS = """
import json, sys
from graphormer_sepnorm.cli import predict
from graphormer_sepnorm.inference import ray_engine
ray_engine._BLOCK_ROWS = 256
predict.ended_in_a_child = lambda: None
print([predict.main(words) for words in json.loads(sys.argv[1])])
"""
# A command that leaves a process behind, as Ray does, of another session.
LEAVING = """
import subprocess, sys, time
from graphormer_sepnorm.cli.main import run
from graphormer_sepnorm.process import ended_in_a_child
def command(words):
    if (status := ended_in_a_child()) is not None:
        return status
    leave = ["sh", "-c", "setsid sleep 600 >/dev/null & echo $!"]
    print(subprocess.check_output(leave, text=True).strip(), flush=True)
    time.sleep(float(sys.argv[1]))
    return 3
sys.exit(run("command", command))
"""


def start(program: str, word: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, word],
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def molecules(rows: range) -> pa.Table:
    known = [row[0] for row in sample_rows(100)]
    bad = {3: "", 7: "no molecule", 11: "[Si]"}
    smiles = [bad.get(n % 50, known[n % 100]) for n in rows]
    return pa.table({"id": rows, "smiles": smiles, "note": ['"a"\n,'] * len(rows)})


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")
def test_libraries_are_predicted_as_a_table_is(model: Path, tmp_path: Path) -> None:
    for folder in ("parquet", "csv/deeper", "cut"):
        (tmp_path / folder).mkdir(parents=True)
    for number in range(3):
        table = molecules(range(number * 300, (number + 1) * 300))
        parquet.write_table(table, tmp_path / f"parquet/{number}.parquet")
        csv.write_csv(table, tmp_path / f"csv/deeper/{number}.csv")
        parquet.write_table(table, tmp_path / f"cut/{number}.parquet")
    (tmp_path / "cut/2.parquet").write_bytes(b"PAR1")
    parquet.write_table(molecules(range(900)), tmp_path / "in.parquet")
    words = [str(model), "--quiet", "--device", "cpu"]
    table_words = ["-i", str(tmp_path / "in.parquet"), "-o", str(tmp_path / "direct.parquet")]
    assert predict.main([*words, *table_words]) == 0
    expected = parquet.read_table(tmp_path / "direct.parquet")
    words += ["--ray", "--num_actors", "1"]
    jobs = [("parquet", "out"), ("csv/**/*.csv", "out_of_csv"), ("cut", "none")]
    commands = [[*words, "-i", f"{tmp_path}/{i}", "-o", f"{tmp_path}/{o}"] for i, o in jobs]
    out, err = start(COMMANDS, json.dumps(commands)).communicate()
    assert out == "[0, 0, 2]\n", err
    assert err.splitlines()[-1].startswith("predict.py: nothing was written to ")
    assert sorted(path.name for path in tmp_path.glob("[no]*")) == ["out", "out_of_csv"]
    layout = csv.ParseOptions(newlines_in_values=True)
    files = (tmp_path / "out_of_csv").iterdir()
    of_csv = pa.concat_tables(csv.read_csv(file, parse_options=layout) for file in files)
    for rows in (parquet.read_table(tmp_path / "out").sort_by("id"), of_csv.sort_by("id")):
        assert rows.column_names == expected.column_names
        for name in ("id", "smiles", "note", "error"):
            assert rows[name].to_pylist() == expected[name].to_pylist()
        values = [one["pred_property"].to_numpy() for one in (rows, expected)]
        np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-6)


def test_a_file_with_other_columns_is_refused() -> None:
    mapped = object.__new__(ray_engine.Predict)
    mapped._names = ["smiles", "id"]
    with pytest.raises(ValueError, match="id, smiles"):
        mapped(pa.table({"id": [1], "smiles": ["C"]}))


@pytest.mark.skipif(sys.platform != "linux", reason="only there are processes told of an end")
@pytest.mark.parametrize(
    ("ended", "status"),
    [("itself", 3), ("child", 137), (signal.SIGKILL, -9), (signal.SIGTERM, 130)],
)
def test_no_process_outlives_the_command(ended: str | signal.Signals, status: int) -> None:
    process = start(LEAVING, "0.1" if ended == "itself" else "60")
    assert process.stdout is not None
    left = psutil.Process(int(process.stdout.readline()))
    if ended == "child":
        psutil.Process(process.pid).children(recursive=True)[1].kill()
    elif isinstance(ended, signal.Signals):
        process.send_signal(ended)
    assert process.wait(timeout=20) == status
    left.wait(timeout=20)
    process.communicate()


def test_what_ray_lacks_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = MagicMock()
    ray.is_initialized.return_value = False
    ray.cluster_resources.return_value = {"CPU": 4.0}
    monkeypatch.setattr("logging.disable", lambda: None)
    for name, module in (("ray", ray), ("ray.data", ray.data)):
        monkeypatch.setitem(sys.modules, name, module)
    assert ray_engine.start_ray(None, None) == (ray, 2, False)
    for device, actors in (("cuda", 1), (None, 3)):
        with pytest.raises(ConfigError, match="--num_actors"):
            ray_engine.start_ray(device, actors)
    ray.init.side_effect = Exception("The current node timed out\nduring startup.")
    with pytest.raises(ConfigError, match="node timed out during startup"):
        ray_engine.start_ray(None, 1)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'graphormer-sepnorm\[ray\]'"):
        ray_engine.start_ray(None, 1)


def test_a_library_is_of_one_format(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv.gz", "readme.md"):
        (tmp_path / name).touch()
    files = [str(tmp_path / name) for name in ("a.csv.gz", "b.csv")]
    assert ray_engine.find_files(str(tmp_path)) == ("csv", files)
    (tmp_path / "b.parquet").touch()
    for several_or_none in (tmp_path, tmp_path / "absent"):
        with pytest.raises(DataError):
            ray_engine.find_files(str(several_or_none))
