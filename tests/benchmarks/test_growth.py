"""The picture of growing costs, of few and small molecules."""

from pathlib import Path

import pytest

from benchmarks import growth


@pytest.mark.slow
def test_the_picture_of_growth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    sizes = {"RESIDUES": (1, 2), "ROWS": (3, 6), "BATCH": 2, "ROUNDS": 1}
    for name, value in sizes.items():
        monkeypatch.setattr(growth, name, value)
    monkeypatch.setattr("sys.argv", ["growth", str(tmp_path / "growth.png")])
    growth.main()
    rows = [line.split(",")[:2] for line in capsys.readouterr().out.splitlines()]
    assert rows[:2] == [["predict.py", "3 rows"], ["predict.py", "6 rows"]]
    assert [row[1] for row in rows[2:]] == ["12 atoms"] * 3 + ["23 atoms"] * 3
    assert (tmp_path / "growth.png").stat().st_size > 10_000
