"""The turns of a benchmark, what is made of them, and one row from end to end."""

import json
import subprocess
import sys

import pytest

from benchmarks import bench, environments
from benchmarks.molecules import Molecules, heavy_atoms
from benchmarks.processes import REPOSITORY, Command, SideFailed, variables
from benchmarks.report import BY_HAND, document, lines_of, main
from benchmarks.rounds import ratios, rotated, spread, take_turns
from benchmarks.rows import MATRIX_PRODUCT


def test_each_side_is_first_in_turn_and_works_once_a_round():
    assert [rotated(3, number) for number in range(4)] == [
        [0, 1, 2],
        [1, 2, 0],
        [2, 0, 1],
        [0, 1, 2],
    ]
    order, done = [], []

    def side(name, seconds):
        def work():
            order.append(name)
            return seconds

        return work

    measured = take_turns([side("a", 1.0), side("b", 2.0)], 3, done.append)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert measured == [[1.0] * 3, [2.0] * 3]
    assert done == [1, 2, 3]


def test_ratios_are_taken_within_a_round():
    # The machine was ten times slower in the last two rounds; the sides differ by 2 throughout.
    assert ratios([2.0, 20.0, 20.0], [1.0, 10.0, 10.0]) == (2.0, 2.0, 2.0)
    assert spread([5.0, 1.0, 2.0, 4.0, 3.0]) == (2.0, 3.0, 4.0)
    assert spread([7.0]) == (7.0, 7.0, 7.0)


def made_up_result():
    def side(label, seconds, **more):
        return {"label": label, "seconds": seconds, "peak": 5_000_000, "facts": {}, **more}

    train = [
        side("ours", [1.0, 2.0], memory_before=1_000_000, facts={"flops": 50, "parameters": 1234}),
        side("other", [3.0, 8.0], memory_before=2_000_000),
        side(MATRIX_PRODUCT, [1.0, 2.0], facts={"flops": 100}),
    ]
    stream = [side("ours", [9.0], marks=[[1.5, 2_000_000], [4.0, 3_000_000]])]
    return {
        "command": "COMMAND",
        "machine": {
            name: name.upper() for name in ("date", "processor", "cores", "system", "packages")
        },
        "molecules": "MOLECULES",
        "rows": [
            {"subset": "train", "title": "step", "threads": 2, "sides": train},
            {"subset": "million", "title": "stream", "threads": 1, "sides": stream},
        ],
    }


def test_the_table_holds_ratio_memory_and_share_of_peak():
    table = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines_of(made_up_result())
    ]
    assert table[2] == [
        "step",
        "2",
        "other",
        "3.50 [3.25, 3.75]",
        "1.5",
        "5.5",
        "4",
        "3",
        "50.0%",
        "",
    ]
    assert table[3] == ["stream", "1", "", "", "9", "", "5", "", "", ""]
    text = document([made_up_result(), made_up_result()])
    assert text.count("| step ") == 2
    assert "- ours: 1,234 parameters." in text
    assert "seconds for each tenth of the rows 1.5, 2.5; memory after each 2, 3 MB." in text
    for fact in ("COMMAND", "PROCESSOR", "CORES", "DATE", "MOLECULES"):
        assert fact in text


def test_what_was_written_by_hand_stays(tmp_path):
    source, page = tmp_path / "result.json", tmp_path / "performance.md"
    source.write_text(json.dumps(made_up_result()))
    page.write_text(f"earlier tables\n\n{BY_HAND}\n\nTwice as fast.\n")
    main(str(source), str(page))
    text = page.read_text()
    assert text.endswith(f"\n\n{BY_HAND}\n\nTwice as fast.\n")
    assert "earlier tables" not in text
    assert "| step " in text


def test_atoms_are_counted_and_files_written(tmp_path):
    assert heavy_atoms("C[C@H](Cl)c1ccc(Br)cc1") == 10
    assert heavy_atoms("[H]OC.[Na+].[2H]C") == 4
    molecules = Molecules("", ["C", "CC", "CCC"], ["CCCC"], ["N"])
    files = molecules.write(tmp_path, "many", rows=5)
    table = (tmp_path / "molecules.csv").read_text()
    assert table == "smiles\nC\nCC\nCCC\nC\nCC\n"
    assert files["table"] == str(tmp_path / "molecules.csv")
    molecules.write(tmp_path, "few", few=2)
    assert (tmp_path / "molecules.smi").read_text() == "C\nCC"


def test_a_command_that_fails_says_its_last_line(tmp_path):
    script = "import sys; print('useful'); sys.exit(3)"
    command = Command([sys.executable, "-c", script], variables(1), tmp_path / "log")
    with pytest.raises(SideFailed, match=r"ended with 3: useful"):
        command.round()


def test_a_stream_is_marked_at_each_tenth(tmp_path):
    script = "print('header')\nfor row in range(20): print(row)"
    stream = Command([sys.executable, "-c", script], variables(1), tmp_path / "log", rows=20)
    seconds = stream.round()
    ends = [end for end, _ in stream.marks]
    assert len(ends) == 10
    assert sorted(ends) == ends
    assert ends[-1] <= seconds
    assert stream.peak > 1_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it")
def test_the_memory_of_a_stream_is_that_of_all_its_processes(tmp_path):
    script = """
import subprocess, sys, time
holds = "block = b'x' * 60_000_000; print(flush=True); input()"
pipe = subprocess.PIPE
child = subprocess.Popen([sys.executable, "-c", holds], stdin=pipe, stdout=pipe)
child.stdout.readline()
print(*["header", *range(10)], sep="\\n", flush=True)
time.sleep(2)
child.communicate(b"\\n")
"""
    stream = Command([sys.executable, "-c", script], variables(1), tmp_path / "log", rows=10)
    stream.round()
    assert len(stream.marks) == 10
    assert all(memory > 60_000_000 for _, memory in stream.marks)
    assert stream.peak > 60_000_000


def test_an_environment_that_cannot_be_built_is_left_out(tmp_path, monkeypatch, capsys):
    failed = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(environments, "HOME", tmp_path / "environments")
    monkeypatch.setattr(environments.subprocess, "run", lambda *_, **__: failed)
    pythons = bench._interpreters([row for row in bench.ROWS if row.subset == "forward"])
    assert list(pythons) == [None]
    assert "huggingface is left out: no environment" in capsys.readouterr().err


def test_one_row_from_end_to_end(tmp_path, monkeypatch):
    monkeypatch.delenv("GRAPHORMER_DATA", raising=False)
    output = tmp_path / "result.json"
    options = ["--rounds", "1", "--few", "4", "--output", str(output), "--against"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench", "preprocess", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(output.read_text())
    (side,) = result["rows"][0]["sides"]
    assert side["facts"] == {"molecules": 4}
    assert len(side["seconds"]) == 1
    assert side["peak"] > side["memory_before"] > 0
    assert "SMILES to padded batches" in done.stdout
    assert "sample" in result["molecules"]
    assert result["command"].endswith("preprocess --rounds 1 --few 4 --against")
