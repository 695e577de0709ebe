"""The command train.py compare with a set of comparisons, and its table."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
import yaml
from tiny_run import TINY, read_csv, refused, sample_table

from graphormer_sepnorm.cli import comparison_job
from graphormer_sepnorm.cli.configs import take_set
from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.compare import runner
from graphormer_sepnorm.compare.comparison_set import names_in, read_set

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
    assert said.endswith(f"to try them again: python train.py compare -o {tmp_path / 'out'}")
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


@pytest.mark.slow
def test_a_set_that_was_interrupted_early_is_continued_as_a_whole(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has not had its turn is written down before the first training, in the set's order."""
    path = tmp_path / "order.yaml"
    path.write_text(
        "z: {config: table_regression, model.layers: 1}\n"
        "a: {config: table_regression, model.layers: 2}"
    )
    monkeypatch.setattr(runner.Runner, "run", lambda self: False)
    status, _, err = run("-c", path, *words[2:], *ARMS, "-o", tmp_path / "out")
    assert status == 130
    assert err == (
        "train.py: z: interrupted, 0 of 8 runs are finished; continue with: python train.py "
        f"compare -o {tmp_path / 'out'} (with --report-only: a report on those that are)\n"
    )
    trained: list[Path] = []
    monkeypatch.setattr(
        comparison_job, "train_all", lambda *of, **options: trained.append(of[2]) or 0
    )
    assert run("-o", tmp_path / "out")[0] == 0
    assert trained == [tmp_path / "out" / "z", tmp_path / "out" / "a"]


@pytest.mark.usefixtures("nothing_starts")
def test_mistakes_with_sets_are_one_line(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: object) -> str:
        return refused(capsys, main, "compare", *arguments, *ARMS, "-o", tmp_path / "out")

    def of_file(text: str) -> str:
        (tmp_path / "own.yaml").write_text(text)
        return said("-c", tmp_path / "own.yaml")

    assert "leave the other -c out" in said(*words[:2], "-c", "zinc", *words[2:])
    assert "leave the other -c out" in said("-c", "zinc", *words)
    assert "comparisons 'a' and 'b' are the same" in of_file("a: {config: x}\nb: {config: x}\n")
    for name in ("a/b", "comparisons.md", "set.yaml", "compare.yaml"):
        assert f"'{name}' cannot be the name of a comparison" in of_file(f"{name}: {{config: x}}\n")
    assert "comparison 'b' does not say which" in of_file("a: {config: x}\nb: {confg: x}\n")
    assert "--resume is not for a comparison" in of_file("a: {config: x, resume: y}\n")
    for name, value in (
        ("seeds", "2"),
        ("seeds", "[0, 1]"),
        ("arms", "'sharenorm,sepnorm'"),
        ("jobs", "2"),
        ("arms", "{x: {model.norm: bn+bn}}"),
        ("baseline", "sharenorm"),
    ):
        wanted = f"{name} is the same for all comparisons: give --{name} on the command line"
        inside = of_file(f"a: {{config: x}}\nb: {{config: y, {name}: {value}}}\n")
        assert f"own.yaml, line 2, comparison 'b': {wanted}" in inside
        assert wanted in of_file(f"{name}: {value}\na: {{config: x}}\n")
    assert wanted in of_file("baseline:\na: {config: x}\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "compare.yaml").touch()
    assert "holds a single comparison" in said(*words)
    (tmp_path / "out" / "compare.yaml").unlink()
    (tmp_path / "out" / "set.yaml").write_text("comparisons: [a, b]\n")
    assert "holds a set of comparisons (a, b): leave -c out" in said("-c", "quickstart")
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
    assert "compare needs --arms" in said


def test_simple_models_are_for_a_comparison_of_a_set(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("a: {config: x, baselines: true}\nb: {config: x}\n")
    found = read_set(tmp_path / "own.yaml")
    assert found == {"a": ["--config=x", "--baselines=true"], "b": ["--config=x"]}


def test_words_that_name_no_set_stay(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text("model: {width: 8}\n")
    (tmp_path / "broken.yaml").write_text("model: {width: 8\n")
    plain, broken = tmp_path / "plain.yaml", tmp_path / "broken.yaml"
    given = ["-c", "table", f"--config={plain}", "-c", str(broken), "--model.width", "8", "-c"]
    assert take_set(given) == (given, None)


@pytest.mark.parametrize(
    "written",
    ["paper_table", "paper_table.yaml", "configs/paper_table", "configs/sets/paper_table.yaml"],
)
def test_bundled_sets_go_by_name(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    others, file = take_set(["--data.root", "D", "-c", written])
    assert others == ["--data.root", "D"]
    assert file is not None
    assert list(read_set(file)) == ["zinc-subset", "ogbg-molhiv", "zinc"]
