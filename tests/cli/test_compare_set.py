"""The command train.py compare with a set of comparisons, and its table."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
import yaml
from tiny_run import TINY, read_csv, refused, sample_table

from graphormer_sepnorm.cli import comparison_job, configs
from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.compare import runner
from graphormer_sepnorm.compare.comparison_set import names_in, without_set
from graphormer_sepnorm.errors import ConfigError

ARMS = ("--arms", "sharenorm,sepnorm")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two comparisons on one table: one with a layer more than the other."""
    folder = tmp_path_factory.mktemp("set")
    table = sample_table(folder / "mine.csv", 60)
    (folder / "sizes.yaml").write_text(
        "deep: {config: table_regression, model: {layers: 2}}\n"
        "flat: {config: table_regression, model.layers: 1}\n"
    )
    own = [word for word in TINY if not word.startswith("--model.layers")]
    data = [f"--data.table={table}", f"--data.root={folder / 'root'}", "--data.split=random"]
    return ["-c", str(folder / "sizes.yaml"), *own, *data]


def run(*arguments: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["compare", *map(str, arguments)])
    return status, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def made(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The set with one seed, and then another: its directory, and what was printed at last."""
    directory = tmp_path_factory.mktemp("made") / "sets"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        first = run(*words, *ARMS, "--seeds", "0", "--jobs", "1", "-o", directory)
        assert first[0] == 0, first[2]
        status, out, err = run("-o", directory, "--seeds", "1", "--jobs", "1")
    assert status == 0, err
    return directory, out


@pytest.mark.slow
def test_each_comparison_is_one_like_any_other(made: tuple[Path, str]) -> None:
    directory, _ = made
    assert names_in(directory) == ["deep", "flat"]
    for name, layers in (("deep", 2), ("flat", 1)):
        kept = yaml.safe_load((directory / name / "compare.yaml").read_text())
        assert kept["configuration"]["model"]["layers"] == layers
        assert kept["seeds"] == [0, 1]
        assert (directory / name / "report.html").is_file()
        assert (directory / name / "sepnorm" / "seed1" / "summary.json").is_file()


@pytest.mark.slow
def test_table_has_the_numbers_of_the_reports(made: tuple[Path, str]) -> None:
    directory, out = made
    rows = read_csv(directory / "comparisons.csv")
    assert [(row["comparison"], row["arm"]) for row in rows] == [
        (name, arm) for name in ("deep", "flat") for arm in ("sharenorm", "sepnorm")
    ]
    for row in rows:
        results = json.loads((directory / row["comparison"] / "results.json").read_text())
        arm = next(arm for arm in results["arms"] if arm["name"] == row["arm"])
        tests = [run["test"] for run in arm["runs"]]
        assert float(row["test_mean"]) == pytest.approx(sum(tests) / 2)
        assert float(row["test_sd"]) == pytest.approx(abs(tests[0] - tests[1]) / 2**0.5)
        assert (row["seeds"], float(row["steps"])) == ("2", 4)
        assert float(row["parameters"]) == arm["parameters"]
        assert row["paper"] == ""  # no data set of the paper's
        if row["arm"] == "sharenorm":
            assert row["difference"] == row["verdict"] == ""
        else:
            (found,) = results["comparisons"]
            assert float(row["difference"]) == pytest.approx(found["test"]["mean"])
            assert float(row["low"]) < float(row["difference"]) < float(row["high"])
            assert row["verdict"] in ("not resolved", "not significant")
    markdown = (directory / "comparisons.md").read_text()
    assert markdown.count("\n| deep |") == markdown.count("\n| flat |") == 2
    for name in ("deep", "flat"):
        assert f"[{name}]({name}/report.md)" in markdown
        assert (directory / name / "report.md").is_file()
    assert out.splitlines()[-1] == f"table  {directory / 'comparisons.md'}"


@pytest.mark.slow
def test_table_is_made_again_without_training(made: tuple[Path, str]) -> None:
    directory, _ = made
    before = (directory / "comparisons.csv").read_bytes()
    (directory / "comparisons.csv").unlink()
    status, _, err = run("-o", directory, "--report-only")
    assert status == 0, err
    assert (directory / "comparisons.csv").read_bytes() == before


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*arguments: object, **options: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(runner.subprocess, "Popen", started)


@pytest.mark.usefixtures("nothing_starts")
def test_all_are_checked_before_the_first_is_trained(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(Path(words[1]).read_text() + "bad: {config: table_regression, model.width: 7}")
    given = ["-c", path, *(word for word in words[2:] if "width" not in word), *ARMS]
    said = refused(capsys, main, "compare", *given, "-o", tmp_path / "out")
    assert "train.py: bad: " in said
    assert "heads" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("nothing_starts")
def test_a_set_that_was_interrupted_early_is_continued_as_a_whole(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has not had its turn is written down before the first training."""

    def interrupted(*of: object, **options: object) -> int:
        raise KeyboardInterrupt

    trained: list[tuple[str, Path]] = []

    def train(*of: object, again: Path, **options: object) -> int:
        trained.append((Path(str(of[5])).name, again))
        return 0

    monkeypatch.setattr(comparison_job, "train_all", interrupted)
    assert run(*words, *ARMS, "-o", tmp_path / "out")[0] == 130
    monkeypatch.setattr(comparison_job, "train_all", train)
    status, _, err = run("-o", tmp_path / "out")
    assert trained == [("deep", tmp_path / "out"), ("flat", tmp_path / "out")]
    # As nothing was trained there is nothing to make a table of.
    assert (status, err.count("\n")) == (2, 1)
    assert "no comparison in it has results yet" in err


@pytest.mark.usefixtures("nothing_starts")
def test_mistakes_with_sets_are_one_line(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: object) -> str:
        return refused(capsys, main, "compare", *map(str, arguments))

    assert "names two sets" in said(*words[:2], *words, *ARMS, "-o", tmp_path / "out")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "compare.yaml").touch()
    assert "holds a single comparison" in said(*words, *ARMS, "-o", tmp_path / "one")
    (tmp_path / "twice.yaml").write_text("a: {config: table}\nb: {config: table}\n")
    assert "are the same" in said("-c", tmp_path / "twice.yaml", *ARMS, "-o", tmp_path / "out")
    (tmp_path / "name.yaml").write_text("a/b: {config: table}\n")
    assert "cannot be the name" in said("-c", tmp_path / "name.yaml", *ARMS, "-o", tmp_path / "o")
    assert "is a set of comparisons" in refused(capsys, main, "fit", "-c", "paper_table")


def test_words_that_name_no_set_stay(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text("model: {width: 8}\n")
    (tmp_path / "broken.yaml").write_text("model: {width: 8\n")
    given = [
        *(
            "-c",
            "table",
            f"--config={tmp_path / 'plain.yaml'}",
            "-c",
            str(tmp_path / "broken.yaml"),
        ),
        *("--model.width", "8", "-c"),
    ]
    others, found = without_set(given)
    assert (others[:-1], found) == (given, {})
    with pytest.raises(ConfigError, match="-c needs the name"):
        configs.resolve_in_arguments(others[-2:])


@pytest.mark.parametrize("written", ["paper_table", "paper_table.yaml", "configs/sets/paper_table"])
def test_bundled_sets_go_by_name(written: str) -> None:
    others, found = without_set(["--data.root", "D", "-c", written])
    assert others == ["--data.root", "D"]
    assert list(found) == ["zinc-subset", "ogbg-molhiv", "zinc"]
