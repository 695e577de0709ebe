from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphormer_sepnorm.datasets.user_table.options import TableOptions
from graphormer_sepnorm.errors import ConfigError

ALL = {
    "table": "/data/a.csv",
    "validation_table": None,
    "test_table": None,
    "smiles_column": "mol",
    "sheet": "Results",
    "header_row": 3,
    "target_columns": ["a", "b"],
    "weight_column": "w",
    "task": "regression",
    "units": ["m", ""],
    "split": "random",
    "split_column": None,
    "split_fractions": [0.7, 0.2, 0.1],
    "split_seed": 4,
    "folds": None,
    "fold": None,
    "on_invalid": "error",
    "standardise": ["fragment"],
    "descriptors": "rdkit",
    "descriptor_columns": ["temperature"],
    "id_column": "compound",
    "group_column": None,
    "time_column": None,
    "duplicates": "mean",
    "positive": None,
    "class_weight": None,
}


def test_a_path_may_begin_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    options = TableOptions.from_data_options({"table": "~/a.csv"})
    assert options.table == Path("/home/me/a.csv")


def test_options_go_to_plain_values_and_back() -> None:
    options = TableOptions.from_data_options(ALL)
    assert options.table == Path("/data/a.csv")
    assert options.task == "regression"
    assert options.target_columns == ("a", "b")
    plain = options.to_plain()
    assert json.loads(json.dumps(plain)) == plain == ALL
    assert TableOptions.from_data_options(plain) == options


def test_folds_go_to_plain_values_and_back() -> None:
    """By scaffold, too, they have a seed."""
    options = TableOptions(Path("/a.csv"), folds=5, fold=4, split_seed=3)
    assert options.resolved_split == "scaffold"
    plain = options.to_plain()
    assert (plain["folds"], plain["fold"], plain["split_seed"]) == (5, 4, 3)
    assert TableOptions.from_data_options(plain) == options


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = TableOptions(Path("a.csv"), Path("b.csv"), Path("c.csv"))
    plain = options.to_plain()
    names = ("table", "validation_table", "test_table")
    assert [plain[name] for name in names] == [str(tmp_path / f"{n}.csv") for n in "abc"]


def test_nothing_said_has_defaults() -> None:
    given = {"table": "a.csv", "target_columns": None, "units": None}
    assert TableOptions.from_data_options(given) == TableOptions(Path("a.csv"))


@pytest.mark.parametrize(
    ("given", "split"),
    [
        ({}, "scaffold"),
        ({"split_column": "set"}, "column"),
        ({"group_column": "series"}, "group"),
        ({"time_column": "date"}, "time"),
        ({"validation_table": Path("b"), "test_table": Path("c")}, "files"),
        ({"split": "random"}, "random"),
        ({"split": "column", "split_column": "set"}, "column"),
    ],
)
def test_auto_split(given: dict[str, Any], split: str) -> None:
    assert TableOptions(Path("a"), **given).resolved_split == split


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"task": "regresion"},
            r"--data.task is 'regresion' \(did you mean 'regression'\?\): .*bin",
        ),
        ({"task": "multiclass"}, "multiclass is for one column, whose values are the classes"),
        ({"task": "multiclass", "target_columns": ("a", "b")}, "multiclass is for one column"),
        ({"split": "tme"}, r"--data.split is 'tme'.*: it must be one of auto, random, scaffold"),
        ({"split": "time"}, "--data.split time needs --data.time_column"),
        ({"split": "group"}, "--data.split group needs --data.group_column"),
        ({"group_column": "g", "time_column": "t"}, "--data.split group takes no --data.time_c"),
        ({"split": "random", "group_column": "g"}, "random takes no --data.group_column"),
        ({"duplicates": "first"}, "--data.duplicates is 'first'"),
        ({"class_weight": "even"}, "--data.class_weight is 'even'"),
        ({"positive": "yes"}, "--data.target_columns"),
        ({"positive": "yes", "task": "regression"}, "--data.task regression"),
        ({"on_invalid": "stop"}, "--data.on_invalid is 'stop'.*: it must be one of skip, error"),
        (
            {"split_fractions": (0.8, 0.1, 0.2)},
            r"--data.split_fractions is \[0.8, 0.1, 0.2\]: .*1$",
        ),
        ({"split_fractions": (0.9, 0.1, 0.0)}, "each above 0, that add up to 1"),
        ({"split_fractions": (0.9, 0.1)}, "shares of training, validation and test"),
        ({"validation_table": Path("b")}, "give --data.test_table too"),
        ({"test_table": Path("b")}, "give --data.validation_table too"),
        ({"split": "files"}, "all three of --data.table, --data.validation_table and"),
        ({"split": "column"}, "--data.split column needs --data.split_column"),
        ({"split": "random", "split_column": "set"}, "random takes no --data.split_column"),
        (
            {"split": "random", "validation_table": Path("b"), "test_table": Path("c")},
            "random takes no --data.validation_table",
        ),
        (
            {"split_column": "set", "validation_table": Path("b"), "test_table": Path("c")},
            "--data.split files takes no --data.split_column",
        ),
        ({"split_seed": 3}, "--data.split_seed 3 decides a random split, and this is scaffold"),
        ({"fold": 1}, "--data.fold 1 is one of how many"),
        ({"folds": 1, "fold": 0}, "--data.folds is 1: it must be 2 or more"),
        ({"folds": 5}, "--data.folds 5 needs --data.fold, 0 to 4, .*: train.py crossvalidate"),
        ({"folds": 5, "fold": 5}, "--data.fold is 5: of 5 folds it must be from 0 to 4"),
        ({"folds": 5, "fold": -1}, "--data.fold is -1: of 5 folds"),
        ({"folds": 5, "fold": 0, "split_column": "set"}, "--data.split column says where they go"),
        (
            {"folds": 5, "fold": 0, "validation_table": Path("b"), "test_table": Path("c")},
            "--data.split files says where they go",
        ),
        (
            {"folds": 5, "fold": 0, "split_fractions": (0.7, 0.2, 0.1)},
            "leave --data.split_fractions out",
        ),
        ({"target_columns": ("a", "b", "a")}, "--data.target_columns names 'a' twice"),
        ({"target_columns": ("a",), "units": ("m", "s")}, "2 units for 1 target columns"),
    ],
)
def test_contradictions_are_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        TableOptions(Path("a"), **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("T [K]", ("T [K]",)),
        ("pH,T [K]", ("pH", "T [K]")),
        ("[pH,T [K]]", ("pH", "T [K]")),
        (["T [K]"], ("T [K]",)),
    ],
)
def test_a_name_may_end_with_a_bracket(given: Any, names: tuple[str, ...]) -> None:
    options = TableOptions.from_data_options({"table": "a.csv", "descriptor_columns": given})
    assert options.descriptor_columns == names
