"""The command train.py compare with a set of comparisons, and its table."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
from tiny_run import TINY, read_csv, refused, sample_table

from graphormer_sepnorm.cli.configs import find_set
from graphormer_sepnorm.cli.many_runs import Job
from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.compare.comparison_set import names_in, read_set
from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.runs import scheduler
from graphormer_sepnorm.runs.plan import Comparison

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
        plan = Comparison.read(directory / name)
        assert plan is not None
        assert (plan.base.model.layers, plan.seeds) == (layers, (0, 1))
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
            ends = [found["test"][end] for end in ("low", "high")]
            assert [float(row[end]) for end in ("low", "high")] == pytest.approx(ends)
            resolved = ends[0] > 0 or ends[1] < 0
            assert row["verdict"] == ("not significant" if resolved else "not resolved")
    markdown = (directory / "comparisons.md").read_text()
    assert markdown.count("\n| deep ") == markdown.count("\n| flat ") == 2
    for name in ("deep", "flat"):
        assert f"[{name}]({name}/summary.md)" in markdown
        assert (directory / name / "summary.md").is_file()
    assert out.splitlines()[-1] == f"table  {directory / 'comparisons.md'}"


@pytest.mark.slow
def test_table_is_made_again_without_training(made: tuple[Path, str]) -> None:
    directory, _ = made
    before = (directory / "comparisons.csv").read_bytes()
    (directory / "comparisons.csv").unlink()
    status, _, err = run("-o", directory, "--report-only")
    assert status == 0, err
    assert (directory / "comparisons.csv").read_bytes() == before


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


@pytest.mark.slow
def test_one_that_fails_does_not_stop_the_others(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its training diverges at once; the set is named in the command that tries again."""
    path = tmp_path / "hot.yaml"
    path.write_text(
        "hot: {config: table_regression, model.learning_rate: 1e30}\nok: {config: table_regression}"
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    given = ["-c", path, *words[2:], "--model.layers=1", "--model.warmup_steps=1", *ARMS]
    status, out, err = run(*given, "--seeds", "0", "--jobs", "1", "-o", tmp_path / "out")
    assert status == 1
    (said,) = (line for line in err.splitlines() if line.startswith("train.py:"))
    assert said.startswith("train.py: hot: 2 of 2 runs have failed: ")
    assert said.endswith(f"python train.py compare -o {tmp_path / 'out'}")
    rows = read_csv(tmp_path / "out" / "comparisons.csv")
    assert [row["comparison"] for row in rows] == ["ok", "ok"]
    assert "No results yet: hot" in out
    # The report on what there is names what has nothing, and makes the rest.
    (tmp_path / "out" / "comparisons.csv").unlink()
    status, _, err = run("-o", tmp_path / "out", "--report-only")
    assert status == 1
    assert err.startswith("train.py: hot: ")
    assert "no run has finished" in err
    assert read_csv(tmp_path / "out" / "comparisons.csv") == rows


def test_a_set_that_was_interrupted_early_is_continued_as_a_whole(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has not had its turn is written down before the first training, in the set's order."""
    path = tmp_path / "order.yaml"
    path.write_text(
        "z: {config: table_regression, model.layers: 1}\n"
        "a: {config: table_regression, model.layers: 2, baselines: true}"
    )
    monkeypatch.setattr(scheduler.Scheduler, "run", lambda self: False)
    own = [word for word in words[2:] if "baselines" not in word]
    status, _, err = run("-c", path, *own, *ARMS, "-o", tmp_path / "out")
    assert status == 130
    assert "train.py: z: " in err
    assert f"python train.py compare -o {tmp_path / 'out'}" in err
    plans = [Comparison.read(tmp_path / "out" / name) for name in "za"]
    assert [plan.base.model.layers for plan in plans if plan] == [1, 2]
    assert [plan.base.baselines for plan in plans if plan] == [True, True]
    trained: list[Path] = []
    monkeypatch.setattr(Job, "train", lambda self, again: trained.append(self.directory) or 0)
    assert run("-o", tmp_path / "out")[0] == 0
    assert trained == [tmp_path / "out" / "z", tmp_path / "out" / "a"]


def test_options_of_the_command_win(words: list[str], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(scheduler.Scheduler, "run", lambda self: False)
    assert run(*words, "--model.layers=3", *ARMS, "-o", tmp_path)[0] == 130
    plan = Comparison.read(tmp_path / "flat")
    assert plan is not None
    assert plan.base.model.layers == 3


@pytest.mark.usefixtures("nothing_starts")
def test_mistakes_with_sets_are_one_line(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: object) -> str:
        return refused(capsys, main, "compare", *arguments, *ARMS, "-o", tmp_path / "out")

    def of_file(text: str) -> str:
        (tmp_path / "own.yaml").write_text(text)
        return said("-c", tmp_path / "own.yaml")

    assert "-c" in said(*words[:2], "-c", "zinc", *words[2:])
    assert "-c" in said("-c", "zinc", *words)
    for name in ("a/b", "comparisons.md", "set.yaml", "compare.yaml"):
        assert f"'{name}'" in of_file(f"{name}: {{config: x}}\n")
    assert "'b'" in of_file("a: {config: x}\nb: {confg: x}\n")
    assert "--resume" in of_file("a: {config: x, resume: y}\n")
    assert "b: unknown option seeds" in of_file(
        "a: {config: quickstart}\nb: {config: quickstart, seeds: 2}\n"
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "compare.yaml").touch()
    assert "single comparison" in said(*words)
    (tmp_path / "out" / "compare.yaml").unlink()
    (tmp_path / "out" / "set.yaml").write_text("comparisons: [a, b]\n")
    assert "(a, b)" in said("-c", "quickstart")
    (tmp_path / "out" / "set.yaml").write_text("comparisons\n")
    assert "set.yaml is damaged" in said()


def test_a_set_is_for_compare_alone(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("paper_table", "configs/sets/paper_table.yaml", words[1]):
        assert "is a set of comparisons" in refused(capsys, main, "fit", "-c", name)
    assert "did you mean 'paper_table'" in refused(capsys, main, "fit", "-c", "paper_tabel")


@pytest.mark.usefixtures("nothing_starts")
def test_comparisons_that_only_lie_side_by_side_are_no_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "compare.yaml").touch()
    said = refused(capsys, main, "compare", "--seeds", "5", "-o", tmp_path)
    assert "which data" in said


def test_files_that_are_no_set(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text("model: {width: 8}\n")
    (tmp_path / "broken.yaml").write_text("model: {width: 8\n")
    for name in ("table", str(tmp_path / "plain.yaml"), str(tmp_path / "broken.yaml"), ""):
        assert find_set(name) is None


@pytest.mark.parametrize(
    "written",
    ["paper_table", "paper_table.yaml", "configs/paper_table", "configs/sets/paper_table.yaml"],
)
def test_bundled_sets_go_by_name(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = find_set(written)
    assert file is not None
    members = read_set(file)
    assert [one.name for one in members] == ["zinc-subset", "ogbg-molhiv", "zinc"]
    for one in members:
        own = {name: value for name, value in one.options.items() if name != "config"}
        FitConfig().with_options(own)
