import json
from pathlib import Path
from typing import Any

import pytest

from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.errors import ConfigError


def test_options_of_a_table_go_to_plain_values_and_back() -> None:
    given = {"table": "/data/a.csv", "target_columns": ["a", "b"], "units": ["m", ""]}
    given |= {"split": "random", "split_fractions": [0.7, 0.2, 0.1], "standardize": ["fragment"]}
    given |= {"descriptor_columns": "temperature"}
    config = DataConfig(**given)
    plain = config.of_table()
    assert json.loads(json.dumps(plain)) == plain
    assert plain | given | {"descriptor_columns": ["temperature"]} == plain
    assert DataConfig(**plain) == config
    assert not {"root", "batch_size", "member_folds"} & {*plain}


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    config = DataConfig(table="~/a.csv", test_table=Path("c.csv"))  # type: ignore[arg-type]
    assert config.files == {"train": Path("/home/me/a.csv"), "test": Path("c.csv")}
    plain = config.of_table()
    assert (plain["table"], plain["test_table"]) == ("/home/me/a.csv", str(tmp_path / "c.csv"))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"task": "regresion"}, "--data.task is 'regresion'.*did you mean 'regression'"),
        ({"task": "multiclass"}, "--data.task multiclass"),
        ({"split": "time"}, "--data.split time needs --data.time_column"),
        ({"group_column": "g", "time_column": "t"}, "--data.split group takes no --data.time_c"),
        ({"split": "random", "group_column": "g"}, "random takes no --data.group_column"),
        ({"split_column": "set", "test_table": "c"}, "files takes no --data.split_column"),
        ({"standardize": ["salts"]}, "--data.standardize names 'salts'"),
        ({"positive": "yes"}, "--data.target_columns"),
        ({"positive": "yes", "task": "regression"}, "binary, and this is regression: leave one"),
        ({"split_fractions": (0.8, 0.1, 0.2)}, "--data.split_fractions"),
        ({"split_fractions": (0.9, 0.1, 0.0)}, "--data.split_fractions .* above 0"),
        ({"split_seed": 3}, "--data.split_seed 3 decides a random split, and this is scaffold"),
        ({"fold": 1}, "--data.folds and --data.fold: give both"),
        ({"folds": 5}, "--data.folds and --data.fold: .* train.py crossvalidate"),
        ({"folds": 5, "fold": 5}, "--data.fold is 5: of 5 folds"),
        ({"member_folds": 3}, "--data.member_folds and --data.member_fold: give both"),
        ({"folds": 5, "fold": 0, "split_column": "s"}, "--data.split column decides where they go"),
        ({"folds": 5, "fold": 0, "split_fractions": (0.7, 0.2, 0.1)}, "--data.split_fractions"),
        ({"target_columns": ("a", "b", "a")}, "--data.target_columns names a column twice"),
        ({"target_columns": 3}, "--data.target_columns is 3"),
        ({"target_columns": ("a",), "units": ("m", "s")}, "2 units for 1 target columns"),
    ],
)
def test_contradictions_are_one_line(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        DataConfig(table="a", **given).check_seed()
    assert "\n" not in str(caught.value)
