"""What many runs are planned to be, how that is kept, and how it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphormer_sepnorm.config import FitConfig, save_config
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.runs.plan import (
    ONE_MODEL,
    Arm,
    Comparison,
    CrossValidation,
    RunSpec,
    moved_options,
)

BASE = FitConfig().with_options({"model.layers": 2, "data.dataset": "sample", "data.root": "here"})


def norms(*names: str) -> tuple[Arm, ...]:
    return tuple(Arm(name, {"model.norm": name}) for name in names)


def comparison(*names: str, base: FitConfig = BASE, seeds: tuple[int, ...] = (0, 1)) -> Comparison:
    return Comparison(base, norms(*names), seeds, names[0])


def test_runs_of_a_comparison_are_planned_seed_by_seed(tmp_path: Path) -> None:
    base = BASE.with_options({"blend": True, "ensemble": 3, "baselines": True, "output": "x"})
    plan = comparison("sharenorm", "bn+bn", base=base, seeds=(3, 1))
    runs = plan.runs(tmp_path)
    assert [run.name for run in runs] == [
        "sharenorm seed 3",
        "bn+bn seed 3",
        "sharenorm seed 1",
        "bn+bn seed 1",
    ]
    last = runs[3]
    assert (last.arm, last.seed, last.directory) == ("bn+bn", 1, tmp_path / "bn+bn" / "seed1")
    assert last.log == tmp_path / "bn+bn" / "seed1.log"
    # Networks are compared, and simple models stand beside all of them.
    assert FitConfig().differences(last.config).keys() == {
        *("model.norm", "model.layers", "data.dataset", "data.root"),
        *("seed_everything", "keep"),
    }
    assert plan.configuration["baselines"]
    assert not plan.configuration["blend"]


def test_runs_of_a_cross_validation_are_planned_fold_by_fold(tmp_path: Path) -> None:
    base = BASE.with_options({"data.split_seed": 7, "seed_everything": 4, "ensemble": 2})
    plan = CrossValidation(base, ONE_MODEL, (4, 5), "", folds=2)
    runs = plan.runs(tmp_path)
    assert [run.name for run in runs] == [f"repeat {r} fold {f}" for r in (0, 1) for f in (0, 1)]
    last = runs[3]
    assert last.directory == tmp_path / "repeat1" / "fold1"
    assert last.columns == {"repeat": 1, "fold": 1}
    data = last.config.data
    assert (data.folds, data.fold, data.split_seed, last.seed) == (2, 1, 8, 5)
    assert last.config.ensemble == 2
    runs = replace(plan, arms=norms("sharenorm", "bn+bn"), baseline="bn+bn").runs(tmp_path)
    assert [run.name for run in runs[:2]] == [
        "sharenorm repeat 0 fold 0",
        "bn+bn repeat 0 fold 0",
    ]
    assert runs[1].columns == {"arm": "bn+bn", "repeat": 0, "fold": 0}
    assert runs[1].directory == tmp_path / "bn+bn" / "repeat0" / "fold0"


def test_plans_are_kept(tmp_path: Path) -> None:
    base = BASE.with_options({"model.betas": [0.9, 0.99], "data.target_columns": ["a", "b"]})
    arms = (*norms("sharenorm"), Arm("deep", {"model.layers": 24, "data.split": "random"}))
    plans = [
        Comparison(base, arms, (0, 1), "deep", threads=3, dataset_fingerprint="abc"),
        CrossValidation(base, ONE_MODEL, (0,), "", folds=4),
    ]
    for plan in plans:
        assert plan.read(tmp_path) is None
        plan.write(tmp_path)
        assert plan.read(tmp_path) == plan


def test_the_command_that_does_all_names_what_is_no_default() -> None:
    plan = replace(comparison("sharenorm", "sepnorm"), baseline="sepnorm")
    assert plan.base_options == (
        "--data.dataset=sample",
        "--data.root=here",
        "--model.layers=2",
        "--keep=none",
    )
    own = ["--arms", "sharenorm,sepnorm", "--seeds", "0,1", "--baseline", "sepnorm", "-o", "DIR"]
    assert plan.command_line() == ["python", "train.py", "compare", *plan.base_options, *own]
    plan = CrossValidation(BASE, (Arm("a", {}), Arm("b", {"ensemble": 2})), (0, 1), "a")
    own = ["--arms", "arms.yaml", "--folds", "5", "--repeats", "2", "-o", "DIR"]
    assert plan.command_line()[-8:] == own
    assert "--arms" not in replace(plan, arms=ONE_MODEL, baseline="").command_line()


@pytest.mark.parametrize(
    ("arms", "names"),
    [
        (norms("sepnorm", "bn+ln"), ["sepnorm", "bn+ln"]),
        ((Arm("a", {}), Arm("b", {"model.layers": 2})), ["'a'", "'b'"]),
        ((Arm("a", {"model.width": 8}), Arm("a", {"model.width": 16})), ["'a'"]),
        ((Arm("a", {"model.width": 8}), Arm("A", {"model.width": 16})), ["'A'"]),
        ((Arm("a/b", {}),), ["a/b"]),
        ((Arm("..", {}),), [".."]),
        ((Arm("results.json", {}),), ["results.json"]),
        ((Arm("a", {"model.widht": 8}),), ["'a'", "model.widht", "'width'"]),
        ((Arm("a", {"seeds": 3}),), ["'a'", "seeds"]),
        ((Arm("a", {"early_stopping": -1}),), ["'a'", "--early_stopping"]),
        (norms("sharenorm", "sepnrom"), ["'sepnrom'", "'sepnorm'"]),
    ],
)
def test_arms_that_cannot_be_compared(arms: tuple[Arm, ...], names: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        Comparison(BASE, arms, (0,), arms[0].name)
    assert all(name in str(error.value) for name in names)


def test_a_baseline_is_an_arm() -> None:
    with pytest.raises(ConfigError, match="'sepnorm'"):
        replace(comparison("sharenorm", "sepnorm"), baseline="sepnrom")


def test_arms_and_seeds_can_be_added() -> None:
    begun = comparison("sharenorm", "sepnorm")
    more = begun.with_more(begun.base, norms("bn+bn", "sepnorm"), (1, 5))
    assert [arm.name for arm in more.arms] == ["sharenorm", "sepnorm", "bn+bn"]
    assert more.seeds == (0, 1, 5)
    # However it is written.
    assert begun.with_more(begun.base, (Arm("sepnorm", {"model.norm": "bn+ln"}),), ()) == begun


def test_options_that_differ_are_refused_with_both_values() -> None:
    begun = comparison("sharenorm", "sepnorm")
    other = BASE.with_options({"model.layers": 3, "data.units": "m"})
    with pytest.raises(ConfigError) as error:
        begun.with_more(other, (), ())
    assert "--model.layers is 3 here and 2 in compare.yaml" in str(error.value)
    assert "--data.units is ['m'] here and not given in" in str(error.value)
    with pytest.raises(ConfigError, match=r"'sepnorm': --model.width is 8 here and 80 in"):
        begun.with_more(BASE, (Arm("sepnorm", {"model.width": 8, "model.norm": "sepnorm"}),), ())
    with pytest.raises(ConfigError, match="'sepnorm' and 'bn\\+ln'"):
        begun.with_more(BASE, norms("bn+ln"), ())
    cross = CrossValidation(BASE, ONE_MODEL, (0,), "")
    with pytest.raises(ConfigError, match="--seed_everything is 5 here and 0"):
        cross.with_more(BASE.with_options({"seed_everything": 5}), (), (5,))


def test_data_may_lie_elsewhere_later(tmp_path: Path) -> None:
    base = BASE.with_options({"data.dataset": "table", "data.table": "here/mine.csv"})
    begun = comparison("sharenorm", "sepnorm", base=base)
    moved = {"data.root": "there", "data.table": "there/mine.csv"}
    again = begun.with_more(base.with_options(moved), (), ())
    assert again.configuration["data"] == begun.configuration["data"] | {
        name.removeprefix("data."): value for name, value in moved.items()
    }
    before, after = begun.runs(tmp_path)[0], again.runs(tmp_path)[0]
    before.directory.mkdir(parents=True)
    save_config(before.config, before.files.configuration_file)
    assert moved_options(before) == []
    assert moved_options(after) == [f"--{name}={value}" for name, value in moved.items()]
    with pytest.raises(ConfigError, match=r"--data\.table"):
        begun.with_more(base.with_options({"data.table": "here/other.csv"}), (), ())


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "compare.yaml"
    for content in ("a: [", "[]", "arms: 3", "", "format_version: 2\narms: 3\nbase: {}\n"):
        path.write_text(content)
        with pytest.raises(ConfigError, match=r"compare\.yaml is damaged"):
            Comparison.read(tmp_path)
    comparison("sharenorm", "sepnorm").write(tmp_path)
    text = path.read_text()
    for version in ("1", "0", "new"):
        path.write_text(text.replace("format_version: 2", f"format_version: {version}"))
        with pytest.raises(ConfigError, match=f"is of format {version}"):
            Comparison.read(tmp_path)


def test_a_run_is_its_directory() -> None:
    one, other = (RunSpec("a", config, Path("a")) for config in (FitConfig(), BASE))
    assert {one} == {other}
