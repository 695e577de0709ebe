"""predict.py: what it reads and writes besides plain files, and what it leaves behind."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from predict_tables import interrupted
from reference.processes import REPOSITORY, run_python
from tiny_run import refused

from graphormer_sepnorm.cli.predict import main

pytestmark = pytest.mark.usefixtures("small_chunks")
COMMAND = REPOSITORY / "predict.py"
ROWS = 30


@pytest.fixture
def model(model: Path) -> str:
    return str(model)


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "in.csv"
    path.write_text("smiles,y\n" + "".join(f"{'C' * (1 + n % 7)}O,{n}\n" for n in range(ROWS)))
    return path


def test_a_pipe_is_read_once_and_whole(model, source, tmp_path, capsys):
    """As with `-i <(command)`: what is read from it cannot be read again."""
    os.mkfifo(tmp_path / "pipe")
    words = [model, "-i", tmp_path / "pipe", "--input_format", "csv", "-o", tmp_path / "out.csv"]
    assert "--resume needs an input file" in refused(capsys, main, *words, "--resume")
    output = tmp_path / "out.csv"
    options = ["-i", "/dev/stdin", "--input_format", "csv", "-o", str(output), "--quiet"]
    text = source.read_text()
    done = run_python(COMMAND, model, *options, cwd=tmp_path, text=text)
    assert done.returncode == 0, done.stderr
    assert len(output.read_text().splitlines()) == ROWS + 1


@pytest.mark.parametrize("suffix", [".partial", ".progress.json"])
def test_the_input_is_not_one_of_the_files_that_are_needed_meanwhile(
    model, source, tmp_path, capsys, suffix
):
    taken = source.rename(tmp_path / f"out.csv{suffix}")
    before = taken.read_bytes()
    words = [model, "-i", taken, "--input_format", "csv", "-o", tmp_path / "out.csv"]
    assert f"{taken} is the input" in refused(capsys, main, *words, "--overwrite")
    assert taken.read_bytes() == before


def test_an_output_that_is_a_pipe_is_written_to(model, source, tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert main([model, "-i", str(source), "-o", str(pipe), "--quiet"]) == 0
    assert os.read(reader, 10_000).count(b"\n") == 1 + ROWS
    os.close(reader)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "pipe.csv"]


def test_the_command_that_is_offered_continues_also_over_an_old_output(
    model, source, tmp_path, capsys
):
    whole, output = tmp_path / "whole.csv", tmp_path / "out.csv"
    assert main([model, "-i", str(source), "-o", str(whole), "--quiet"]) == 0
    output.write_text("old")
    interrupted([model, "-i", str(source), "-o", str(output), "--overwrite"], 2)
    assert output.read_text() == "old"
    again = shlex.split(capsys.readouterr().err.partition("python predict.py ")[2])
    interrupted(again, 0)  # nothing new: it can still be continued
    assert main(again) == 0
    assert output.read_bytes() == whole.read_bytes()
    assert f"{ROWS} rows, {ROWS} predicted" in capsys.readouterr().err


def test_what_an_earlier_job_left_does_not_mislead_a_new_one(model, source, tmp_path, capsys):
    """Nor one that cannot be resumed, in whose rows the earlier one would go on."""
    output = tmp_path / "out.csv"
    progress = output.with_name("out.csv.progress.json")
    arguments = [model, "-i", str(source), "-o", str(output)]
    interrupted(arguments, 3)
    interrupted([*arguments, "--overwrite"], 0)  # before its first rows
    assert not progress.exists()
    assert main([*arguments, "--resume"]) == 0
    assert len(output.read_text().splitlines()) == ROWS + 1
    interrupted([*arguments, "--overwrite"], 2)
    assert progress.exists()
    assert main([model, "CCO", "-o", str(output), "--overwrite"]) == 0
    assert not progress.exists()


def test_parquet_cannot_be_continued(model, source, tmp_path, capsys):
    output = tmp_path / "out.parquet"
    arguments = [model, "-i", str(source), "-o", str(output)]
    interrupted(arguments, 2)
    assert "8 rows; the output is incomplete" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [source]
    (tmp_path / "out.parquet.partial").write_bytes(b"PAR1 and then it was killed")
    assert "--resume" not in refused(capsys, main, *arguments)
    assert main([*arguments, "--overwrite", "--quiet"]) == 0
    assert not (tmp_path / "out.parquet.partial").exists()


def test_any_encoding_of_the_terminal_will_do(model):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    smiles = ["CCO", "\u00e9", b"\xff"]
    done = subprocess.run(
        [sys.executable, COMMAND, model, *smiles], capture_output=True, check=True, env=environment
    )
    header, *rows = done.stdout.splitlines()
    assert header == b"smiles,pred_property,warning,error"
    assert [row.partition(b",")[0] for row in rows] == [b"CCO", "\u00e9".encode(), b"\xff"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("what", ["molecules", "evaluation"])
def test_full_standard_output_is_one_line(model, source, tmp_path, what):
    output = tmp_path / "out.csv"
    arguments = ["CCO"]
    if what == "evaluation":
        arguments = ["-i", str(source), "-o", str(output), "--evaluate", "y", "--quiet"]
    with open("/dev/full", "w") as full:
        command = [sys.executable, str(COMMAND), model, *arguments]
        own = {**os.environ, "PYTHONUNBUFFERED": ""}
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=own)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "standard output cannot be written" in done.stderr
    assert output.exists() == (what == "evaluation")


def test_closed_streams_lose_no_output(model, source, tmp_path):
    output = tmp_path / "out.csv"

    def ended(shut: str, *words: str) -> subprocess.CompletedProcess[str]:
        line = shlex.join([sys.executable, str(COMMAND), model, *words])
        return subprocess.run(f"{line} {shut}", shell=True, capture_output=True, text=True)

    done = ended("0>&- 1>&- 2>&-", "-i", str(source), "-o", str(output), "--jobs", "2")
    assert done.returncode == 0
    assert len(output.read_text().splitlines()) == 1 + ROWS
    assert ended("1>&-", "CCO").returncode == 0


def test_a_device_is_no_name_without_a_format(model, source, capsys):
    assert main([model, "-i", str(source), "-o", "/dev/null", "--quiet"]) == 0
    assert not Path("/dev/null").is_file()
    assert "No space left" in refused(capsys, main, model, "CCO", "-o", "/dev/full")


def test_names_that_no_file_can_have_are_one_line(model, source, tmp_path, capsys):
    long = "C" * 300
    assert "File name too long" in refused(capsys, main, model, "-i", tmp_path / long)
    for length in (240, 252):  # the first with .progress.json
        out = tmp_path / f"{'C' * length}.csv"
        assert "File name too long" in refused(capsys, main, model, "-i", source, "-o", out)
    assert main([str(model), "NCC(=O)" * 50 + "O"]) == 0
    assert "NCC(=O)" in capsys.readouterr().out
