"""What several comparisons say together: which files are read, and which arms are the same."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from example_results import binary, regression, written
from reference.tables import read_csv, write_csv

from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.compare.folds import Fold
from graphormer_sepnorm.compare.pooling import errors_of, pool
from graphormer_sepnorm.compare.statistics import pooled
from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import write_json
from graphormer_sepnorm.runs.plan import Arm, Plan, RunSpec


def cross_validation(directory: Path, values: dict[str, list[float]]) -> Path:
    """A cross-validation of arms with these test errors by fold, without its runs."""
    directory.mkdir()
    arms = tuple(Arm(norm, {"model.norm": norm}) for norm in values)
    base = replace(FitConfig(), data=replace(FitConfig().data, table="t.csv"))
    Plan(base, arms, (0,), arms[0].name, folds=3).write(directory)
    write_json(
        directory / "summary.json",
        {"task": {"kind": "regression", "targets": ["y"], "units": [""], "metric": "mae"}},
    )
    rows = [[norm, 0, *one] for norm, errors in values.items() for one in enumerate(errors)]
    write_csv(directory / "folds.csv", [["arm", "repeat", "fold", "test_mae"], *rows])
    return directory


def test_comparisons_and_cross_validations_are_pooled(tmp_path: Path, capsys) -> None:
    first, second = written(regression(), tmp_path / "a"), written(binary(), tmp_path / "b")
    third = cross_validation(
        tmp_path / "c", {"shared-ln": [0.5, 0.7, 0.6], "bn+ln": [0.4, 0.6, 0.5]}
    )
    settings = [errors_of(one)[1] for one in (first, second, third)]
    assert [errors.keys() for errors in settings] == [
        {"shared-ln", "bn+ln", "bn+bn"},
        {"shared-ln", "bn+ln"},
        {"shared-ln", "bn+ln"},
    ]
    assert settings[2]["bn+ln"] == pytest.approx({0: math.log(0.4 * 0.6 * 0.5) / 3})
    found = pool([first, second, third])
    assert [*found] == ["SepNorm vs ShareNorm", "bn+bn vs shared-ln"]
    assert found["SepNorm vs ShareNorm"][0] == pooled(settings, ["shared-ln"], ["bn+ln"])
    assert not train(["pool", *map(str, (first, second, third)), "-o", str(tmp_path / "p.csv")])
    row = read_csv(tmp_path / "p.csv")[0]
    change = found["SepNorm vs ShareNorm"][0].percent[0]
    assert float(row["change_percent"]) == pytest.approx(change)
    assert f"{change:.1f}".replace("-", "\N{MINUS SIGN}") in capsys.readouterr().out
    one, holm_p = found["SepNorm vs ShareNorm"]
    assert [float(row[name]) for name in ("p", "holm_p", "t_p")] == pytest.approx(
        [one.signs_p, holm_p, one.p_value]
    )


def test_arms_of_other_names_are_pooled_as_changes_from_the_baseline(tmp_path: Path) -> None:
    made = []
    for name in "ab":
        results = regression(arms=2)
        arms = tuple(
            replace(arm, name=name, options={"model.layers": layers})
            for arm, (name, layers) in zip(results.arms, {"six": 6, "ten": 10}.items(), strict=True)
        )
        results = replace(results, arms=arms, baseline="six", configuration={"model": {}})
        made.append(written(results, tmp_path / name))
    [(name, (one, _))] = pool(made).items()
    assert (name, one.settings, one.pairs) == ("ten vs six", 2, 6)
    # So are two norms that no contrast is of.
    errors = {"ln+ln": [0.5, 0.7, math.nan], "bn+ln": [0.4, 0.6, 0.5]}
    [(name, (one, _))] = pool([cross_validation(tmp_path / "folds", errors)]).items()
    assert (name, one.pairs) == ("bn+ln vs ln+ln", 1)  # by the folds that both have
    assert one.mean == pytest.approx(math.log(0.4 * 0.6 / 0.5 / 0.7) / 2)


def test_a_norm_that_is_configured_is_one_and_two_of_a_name_are_refused(tmp_path: Path) -> None:
    results = regression(arms=2)
    first, second = results.arms
    results = replace(results, configuration={"model": {"norm": "sharenorm"}})
    results = replace(results, arms=(replace(first, options={}), second))
    assert errors_of(written(results, tmp_path / "a"))[1].keys() == {"shared-ln", "bn+ln"}
    deep = replace(second, name="bn+ln", options={"model.norm": "bn+ln", "model.layers": 24})
    three = replace(results, arms=(first, second, deep))
    with pytest.raises(DataError, match="two arms have one norm"):
        errors_of(written(three, tmp_path / "b"))
    assert pool([tmp_path / "a"] * 2)["SepNorm vs ShareNorm"][0].settings == 1


def test_what_cannot_be_pooled_is_one_line(tmp_path: Path, capsys) -> None:
    two = str(written(regression(arms=2), tmp_path / "two"))
    for words in ([two, str(tmp_path / "none")], [two, "-o", str(tmp_path)]):
        assert train(["pool", *words])
        [line] = capsys.readouterr().err.splitlines()
        assert words[-1] in line
    folds = cross_validation(tmp_path / "c", {"shared-ln": [0.5, 0.7, 0], "bn+ln": [0.4, 0.6, 1]})
    with pytest.raises(DataError, match="'shared-ln' in fold 2"):
        errors_of(folds)
    with pytest.raises(DataError, match="no two arms"):
        pool([written(regression(arms=1), tmp_path / "one")])


def test_a_network_that_is_all_of_its_blend_stays_beside_it() -> None:
    run = RunSpec("", replace(FitConfig(), members=["networks", "trees"]), Path())
    fold = Fold(run, {"test_mae": 0.5, "network": {"test_mae": 0.5}}, {}, [])
    assert fold.baselines() == {"network alone": {"mae": 0.5}}
