"""predict.py in several processes: the same file as from one, and none of them left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from predict_tables import table_of_many
from reference.processes import REPOSITORY, Forked, finish, run_python
from tiny_run import write_csv

from graphormer_sepnorm.cli.predict import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")


@pytest.mark.parametrize(
    ("source", "output"), [("csv", "csv.gz"), ("parquet", "tsv"), ("sdf", "sdf")]
)
def test_files_are_identical(model, tmp_path, capsys, small_chunks, source, output):
    table = table_of_many(source, tmp_path)
    files, said = [], []
    labels = [] if source == "sdf" else ["--evaluate", "y"]
    for jobs in ("1", "3"):
        place = tmp_path / f"{jobs}.{output}"
        options = ["-i", str(table), "-o", str(place), "--jobs", jobs, *labels]
        assert main([str(model), *options, "--device", "cpu"]) == 0
        files.append(place.read_bytes())
        captured = capsys.readouterr()
        said.append((captured.out, captured.err.partition(";")[0]))
    assert files[0] == files[1]
    assert said[0] == said[1]
    assert "without a prediction" in said[0][1]


def test_standard_input_and_output(model, tmp_path):
    text = "smiles\n" + "".join(f"{'C' * (1 + n % 7)}\n" for n in range(1100))
    (tmp_path / "in.csv").write_text(text)
    output = tmp_path / "out.csv"
    words = ["-i", str(tmp_path / "in.csv"), "-o", str(output), "--jobs", "1", "--quiet"]
    assert main([str(model), *words]) == 0
    words = [model, "-i", "-", "--jobs", "2", "--quiet"]
    done = run_python(REPOSITORY / "predict.py", *words, cwd=tmp_path, text=text)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == output.read_text()
    assert done.stdout.count("\n") == 1101


def start(
    model: Path, source: Path, output: Path, *more: str, new_session: bool = False
) -> subprocess.Popen[str]:
    """Start the command with small chunks, in a process of its own."""
    program = (
        "import sys; from graphormer_sepnorm.inference import predict_table; "
        "predict_table.CHUNK_ROWS = 64; from graphormer_sepnorm.cli.predict import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    return Forked(
        [sys.executable, "-c", program, str(model), "-i", str(source), "-o", str(output), *more],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=new_session,
    )


def wait_for_rows(output: Path, process: subprocess.Popen[str], rows: int) -> int:
    """Wait until so many rows are safe; return how many are."""
    progress = Path(f"{output}.progress.json")
    while process.poll() is None:
        if progress.exists():
            done = json.loads(progress.read_text())["rows"]
            if done >= rows:
                return done
        time.sleep(0.01)
    raise AssertionError(f"it ended too early: {process.stderr and process.stderr.read()}")


def children(process: subprocess.Popen[str]) -> list[int]:
    tasks = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(word) for word in tasks.read_text().split()]


def gone(processes: list[int]) -> bool:
    """Whether they have ended or end within seconds."""
    deadline = time.monotonic() + 60
    while any(map(running, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(running, processes))


def running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # ended, and nobody has asked how


@pytest.mark.slow
def test_killed_processes_lose_nothing(model, tmp_path):
    smiles = [["C" * (1 + n % 25) + "O" * (n % 2)] for n in range(6000)]
    source = write_csv(tmp_path / "in.csv", [["smiles"], *smiles])
    whole = tmp_path / "whole.csv"
    assert finish(start(model, source, whole, "--quiet", "--jobs", "1")) == (0, "")
    cases = [("1", "SIGKILL"), ("1", "SIGINT")]
    cases += [("2", how) for how in ("SIGKILL", "SIGINT", "SIGTERM", "worker")]
    for jobs, number in cases:
        output = tmp_path / f"{jobs}-{number}.csv"
        process = start(model, source, output, "--jobs", jobs)
        assert wait_for_rows(output, process, 200) < 6000
        workers = children(process)
        assert len(workers) == (jobs == "2") * 2
        if number == "worker":
            os.kill(workers[0], signal.SIGKILL)
        else:
            process.send_signal(getattr(signal, number))
        status, error = finish(process)
        assert gone(workers)
        assert not output.exists()
        if number == "SIGKILL":
            assert (status, error) == (-signal.SIGKILL, "")
        elif number == "worker":
            assert status == 2
            assert "one of 2 processes was ended by signal 9" in error
        else:
            assert status == 130
            assert "continue with: python predict.py" in error
        assert error.count("\n") == (number != "SIGKILL")
        assert finish(start(model, source, output, "--resume", "--quiet", "--jobs", "3")) == (0, "")
        assert output.read_bytes() == whole.read_bytes()


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_reaches_all_processes_and_says_one_line(model, tmp_path):
    source = write_csv(tmp_path / "in.csv", [["smiles"], *([["C" * 20]] * 6000)])
    output = tmp_path / "out.csv"
    process = start(model, source, output, "--jobs", "2", new_session=True)
    wait_for_rows(output, process, 64)
    workers = children(process)
    os.killpg(process.pid, signal.SIGINT)
    status, error = finish(process)
    assert status == 130
    assert error.count("\n") == 1
    assert gone(workers)
