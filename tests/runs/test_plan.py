"""What many runs are planned to be, how that is stored, and how it goes on."""

from pathlib import Path

import pytest

from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.runs.plan import COMPARISON, ONE_MODEL, Arm, Plan

BASE = FitConfig().with_options({"model.layers": 2, "data.dataset": "sample", "data.root": "here"})


def norms(*names: str) -> tuple[Arm, ...]:
    return tuple(Arm(name, {"model.norm": name}) for name in names)


def comparison(*names: str, base: FitConfig = BASE, seeds: tuple[int, ...] = (0, 1)) -> Plan:
    return Plan(base, norms(*names), seeds, names[0])


def test_runs_of_a_comparison_are_planned_seed_by_seed(tmp_path: Path) -> None:
    own = {"members": ["networks", "trees"], "ensemble": 3, "baselines": True, "output": "x"}
    base = BASE.with_options(own)
    plan = comparison("sharenorm", "bn+bn", base=base, seeds=(3, 1))
    runs = plan.runs(tmp_path)
    arms = ("sharenorm", "bn+bn")
    assert [run.name for run in runs] == [f"{arm} seed {seed}" for seed in (3, 1) for arm in arms]
    last = runs[3]
    assert (last.arm, last.seed, last.directory) == ("bn+bn", 1, tmp_path / "bn+bn" / "seed1")
    assert last.log == tmp_path / "bn+bn" / "seed1.log"
    # Networks are compared, as they are.
    assert FitConfig().differences(last.config).keys() == {
        *("model.norm", "model.layers", "data.dataset", "data.root"),
        *("seed_everything", "keep"),
    }
    assert not plan.configuration["baselines"]
    assert plan.configuration["members"] == ["networks"]


def test_plans_are_stored(tmp_path: Path) -> None:
    base = BASE.with_options({"model.betas": [0.9, 0.99], "data.target_columns": ["a", "b"]})
    arms = (*norms("sharenorm"), Arm("deep", {"model.layers": 24, "data.split": "random"}))
    for plan in (
        Plan(base, arms, (0, 1), "deep", threads=3, dataset_fingerprint="abc"),
        Plan(base, ONE_MODEL, (0,), "", folds=4),
    ):
        assert Plan.read(tmp_path / plan.file) is None
        plan.write(tmp_path)
        assert Plan.read(tmp_path / plan.file) == plan


@pytest.mark.parametrize(
    ("arms", "names"),
    [
        (norms("sepnorm", "bn+ln"), ["sepnorm", "bn+ln"]),
        ((Arm("a", {}), Arm("b", {"model.layers": 2})), ["'a'", "'b'"]),
        ((Arm("a", {"model.width": 8}), Arm("A", {"model.width": 16})), ["'a'"]),
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
        Plan(BASE, arms, (0,), arms[0].name)
    assert all(name in str(error.value) for name in names)


def test_a_plan_is_read_that_has_an_option_which_is_gone() -> None:
    stored = Path(__file__).parents[2] / "docs" / "experiments" / "compare" / "p1" / "CHEMBL204_Ki"
    assert "target_weights: null" in (stored / COMPARISON).read_text()
    assert Plan.read(stored / COMPARISON) is not None


def test_options_of_an_arm_that_differ_are_refused_with_both_values() -> None:
    wide = Arm("sepnorm", {"model.width": 8, "model.norm": "sepnorm"})
    with pytest.raises(ConfigError, match=r"'sepnorm': --model\.width is 8 here and 80 in"):
        comparison("sharenorm", "sepnorm").with_more(BASE, (wide,), ())


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / COMPARISON
    for content in ("a: [", "[]", "arms: 3", "", "format_version: 2\narms: 3\nbase: {}\n"):
        path.write_text(content)
        with pytest.raises(ConfigError, match=r"compare\.yaml is damaged"):
            Plan.read(path)
    comparison("sharenorm", "sepnorm").write(tmp_path)
    path.write_text(path.read_text().replace("format_version: 2", "format_version: 1"))
    with pytest.raises(ConfigError, match="is of format 1"):
        Plan.read(path)
