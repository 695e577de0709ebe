"""The turns of a benchmark, what is made of them, and one row from end to end."""

import json
import subprocess
import sys

import pytest

from benchmarks.bench import take_turns
from benchmarks.processes import REPOSITORY, Command, SideFailed, variables
from benchmarks.report import BY_HAND, main, ratios, text_of
from benchmarks.rows import MATRIX_PRODUCT


def test_each_side_is_first_in_turn_and_works_once_a_round(capsys):
    order = []

    def side(name, seconds):
        return lambda: order.append(name) or seconds

    measured = take_turns([side("a", 1.0), side("b", 2.0), side("c", 3.0)], 3)
    assert order == [*"abc", *"bca", *"cab"]
    assert measured == [[1.0] * 3, [2.0] * 3, [3.0] * 3]
    assert capsys.readouterr().err.split() == ["round", "1", "round", "2", "round", "3"]


def test_ratios_are_taken_within_a_round():
    # The machine was ten times slower in the last two rounds; the sides differ by 2 throughout.
    assert ratios([2.0, 20.0, 20.0], [1.0, 10.0, 10.0]) == (2.0, 2.0, 2.0)
    assert ratios([7.0], [1.0]) == (7.0, 7.0, 7.0)


def made_up_result():
    def side(label, seconds, **more):
        return {"label": label, "seconds": seconds, "peak": 5_000_000, "facts": {}, **more}

    train = [
        side("ours", [1.0, 2.0], memory_before=1_000_000, facts={"flops": 50, "parameters": 1234}),
        side("other", [3.0, 8.0], memory_before=2_000_000),
        side(MATRIX_PRODUCT, [1.0, 2.0], facts={"flops": 100}),
    ]
    machine = ("date", "processor", "kernels", "cores", "system", "packages")
    return {
        "command": "COMMAND",
        "machine": {name: name.upper() for name in machine},
        "molecules": "MOLECULES",
        "rows": [
            {"subset": "train", "title": "step", "threads": 2, "sides": train},
            {"subset": "startup", "title": "help", "threads": 1, "sides": [side("ours", [9.0])]},
        ],
    }


def test_the_document_has_ratio_memory_and_share_of_peak_and_what_was_written_by_hand(tmp_path):
    text = text_of(made_up_result())
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    first = ["step", "2", "other", "3.50 [3.25, 3.75]", "1.5", "5.5", "4", "3", "50.0%", ""]
    assert rows[2] == first
    assert rows[3] == ["help", "1", "", "", "9", "", "5", "", "", ""]
    assert "- ours: 1,234 parameters." in text
    source, page = tmp_path / "result.json", tmp_path / "performance.md"
    source.write_text(json.dumps(made_up_result()))
    page.write_text(f"earlier tables\n\n{BY_HAND}\n\nTwice as fast.\n")
    main(str(source), str(source), str(page))
    written = page.read_text()
    assert written.endswith(f"\n\n{BY_HAND}\n\nTwice as fast.\n")
    assert "earlier tables" not in written
    assert written.count(text) == 2
    for fact in ("COMMAND", "PROCESSOR", "CORES", "DATE", "MOLECULES"):
        assert fact in written


def test_a_command_that_fails_says_its_last_line(tmp_path):
    script = "import sys; print('useful'); sys.exit(3)"
    command = Command([sys.executable, "-c", script], variables(1), tmp_path / "log")
    with pytest.raises(SideFailed, match=r"ended with 3: useful"):
        command.round()


@pytest.mark.slow
def test_one_row_from_end_to_end(tmp_path, monkeypatch):
    """Beside itself as another checkout."""
    monkeypatch.delenv("GRAPHORMER_DATA", raising=False)
    output = tmp_path / "result.json"
    options = ["--rounds", "1", "--output", str(output), "--checkout", "."]
    command = [sys.executable, "-m", "benchmarks.bench", "preprocess", *options, "--against"]
    said = subprocess.check_output(command, cwd=REPOSITORY, text=True)
    result = json.loads(output.read_text())
    sides = result["rows"][0]["sides"]
    assert [side["label"] for side in sides] == ["ours", "before"]
    for side in sides:
        assert side["facts"] == {"molecules": 512}
        assert len(side["seconds"]) == 1
        assert side["peak"] > side["memory_before"] > 0
    assert "SMILES to padded batches" in said
    assert (str(tmp_path) in result["command"], "sample" in result["molecules"]) == (False, True)
