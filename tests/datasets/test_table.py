"""A user's table as a data set: columns, labels, rows that cannot be used, messages."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rdkit import Chem
from table_files import RINGS, SPLIT, everything, failure, load, plain_rows, report_of, write_csv

from graphormer_sepnorm.chem.features import OF_SMILES, get_featurizer
from graphormer_sepnorm.datasets import lazy_graphs
from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs
from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs

# What a table becomes.


def test_graphs_are_the_featurizers(tmp_path: Path) -> None:
    splits = load(write_csv(tmp_path / "my.table.csv", plain_rows()), **SPLIT)
    assert splits.name == "my.table"
    assert splits.feature_version == splits.featurizer == "molecule-1"
    task = splits.task
    assert (task.kind, task.targets, task.metric) == ("regression", ("value",), "mae")
    featurize = get_featurizer("molecule-1").featurize
    labels = dict(plain_rows())
    met = []
    for name, part in splits.parts.items():
        assert len(part) == len(splits.smiles[name]) > 0
        for data, smiles in zip(part, splits.smiles[name], strict=True):
            graph = featurize(Chem.MolFromSmiles(smiles))
            np.testing.assert_array_equal(data.x.numpy(), graph.atom_codes)
            np.testing.assert_array_equal(data.edge_index.numpy(), graph.edge_index)
            np.testing.assert_array_equal(data.edge_attr.numpy(), graph.bond_codes)
            assert data.y.dtype == torch.float32
            assert data.y.tolist() == [labels[smiles]]
            assert float(data.weight) == 1
            met.append(smiles)
    assert sorted(met) == sorted(labels)


def test_several_targets_with_missing_labels_and_weights(tmp_path: Path) -> None:
    cells = ["1", "", "NA", "n/a", "NaN", "-", "null", "None", "2.5e1", " 3 ", "-4", "5"]
    rows = [(s, cell, n, n / 4) for n, (s, cell) in enumerate(zip(RINGS, cells, strict=True))]
    path = write_csv(tmp_path / "a.csv", rows, "smiles,first,second,importance")
    options = {"target_columns": ("second", "FIRST"), "units": ("kg", "")}
    splits = load(path, weight_column="importance", **options, **SPLIT)
    assert splits.task.targets == ("second", "first")
    assert splits.task.units == ("kg", "")
    found = dict(everything(splits))
    firsts = [1, *[float("nan")] * 7, 25, 3, -4, 5]
    for n, smiles in enumerate(RINGS):
        np.testing.assert_array_equal(found[smiles], np.float32([n, firsts[n]]))
    for name, part in splits.parts.items():
        for smiles, data in zip(splits.smiles[name], part, strict=True):
            assert data.weight.tolist() == [RINGS.index(smiles) / 4]
            assert data.y.shape == (2,)


@pytest.mark.parametrize(
    ("labels", "given", "kind"),
    [
        (["0", "1"], "auto", "binary"),
        (["1.0", "0.0"], "auto", "binary"),
        (["0", "1"], "regression", "regression"),
        (["0", "2"], "auto", "regression"),
        (["0", "1"], "binary", "binary"),
    ],
)
def test_kind_of_task(tmp_path: Path, labels: list[str], given: str, kind: str) -> None:
    rows = [(smiles, labels[n % 2]) for n, smiles in enumerate(RINGS)]
    splits = load(write_csv(tmp_path / "a.csv", rows), task=given, **SPLIT)
    assert splits.task.kind == kind
    assert splits.task.metric == ("auroc" if kind == "binary" else "mae")


def test_semicolons_go_with_decimal_commas(tmp_path: Path) -> None:
    values = ["0.5", "-1.25", ">1.5", "1.234", "2", "0.1", "1e-1", "3.5", "<0.5", "7", "8.25", "9"]
    rows = [(RINGS[n], y, y.lstrip("<->"), y.lstrip("<>")) for n, y in enumerate(values)]
    options = {"weight_column": "w", "descriptor_columns": ("x",), "target_columns": ("y",)}
    points = write_csv(tmp_path / "a.csv", rows, "smiles,y,w,x")
    commas = tmp_path / "b.csv"
    commas.write_text(points.read_text().replace(",", ";").replace(".", ","))
    one, other = (load(path, **options, **SPLIT) for path in (points, commas))
    for name in SPLITS:
        (first,), (second,) = (list(of.parts[name].packed()) for of in (one, other))
        for field in ("targets", "weights", "bounds", "extra"):
            np.testing.assert_array_equal(getattr(first, field), getattr(second, field), field)


def test_salts_are_a_warning(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "c.csv", [*plain_rows(), ("CCN.Cl", 1.5), ("CCN.Br", 2)])
    warned = report_of(load(path, **SPLIT)).warnings
    assert any(one.startswith("2 of the molecules are of several pieces") for one in warned)
    warned = report_of(load(path, standardize=("fragment",), **SPLIT)).warnings
    assert not any("pieces" in one for one in warned)


def test_separate_files(tmp_path: Path) -> None:
    """Columns may stand in another order; bad rows are named with their file."""
    rows = plain_rows()
    turned = [(v, n, s) for n, (s, v) in enumerate(rows[6:9])]
    paths = [
        write_csv(tmp_path / "a.csv", rows[:6]),
        write_csv(tmp_path / "b.csv", turned, "value,x,smiles"),
        write_csv(tmp_path / "c.csv", [*rows[9:], ("C1", 3)], "SMILES,Value"),
    ]
    splits = load(paths[0], validation_table=paths[1], test_table=paths[2])
    assert [*splits.smiles.values()] == [[*RINGS[:6]], [*RINGS[6:9]], [*RINGS[9:]]]
    assert dict(everything(splits)) == {smiles: [value] for smiles, value in rows}
    (bad,) = report_of(splits).invalid
    assert (bad.file, bad.row, bad.line) == (str(paths[2]), 4, 5)


def test_of_separate_files_only_that_of_training_needs_weights(tmp_path: Path) -> None:
    rows = plain_rows()
    paths = [
        write_csv(tmp_path / "a.csv", [(*row, 2) for row in rows[:6]], "smiles,value,w"),
        write_csv(tmp_path / "b.csv", [(*row, "") for row in rows[6:9]], "smiles,value,w"),
        write_csv(tmp_path / "c.csv", [(*row, "?") for row in rows[9:]], "smiles,value,w"),
    ]
    options = {"validation_table": paths[1], "test_table": paths[2], "weight_column": "w"}
    options["target_columns"] = ("value",)
    splits = load(paths[0], **options)
    assert splits.train.weights.tolist() == [2.0] * 6
    assert splits.validation.weights.tolist() == [1.0] * 3
    # Members of an ensemble may be trained on the validation file too.
    write_csv(paths[1], [(*row, n) for n, row in enumerate(rows[6:9])], "smiles,value,W")
    assert load(paths[0], **options).validation.weights.tolist() == [0.0, 1.0, 2.0]


def test_many_graphs_are_made_with_what_stands_beside_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_graphs, "AT_ONCE", 5)
    random = np.random.default_rng(0)
    given = {"targets": (12, 2), "weights": 12, "columns": (12, 3), "bounds": (12, 4)}
    arrays = {name: random.random(shape).astype(np.float32) for name, shape in given.items()}
    graphs = LazyGraphs(RINGS, featurizer=get_featurizer(OF_SMILES), **arrays)
    made = PackedGraphs.concatenate([*graphs.packed()])
    assert made.num_atoms.tolist() == [graph.num_nodes for graph in graphs]
    for name, array in arrays.items():
        beside = made.extra if name == "columns" else getattr(made, name)
        np.testing.assert_array_equal(beside, array)


# Rows that cannot be used.

BAD_ROWS = {
    "C1CC,1,1": ("unreadable structure", "'C1CC' is not a valid molecule: unclosed ring"),
    ",1,1": ("no structure", "the SMILES is empty"),
    "n.d.,1,1": ("no structure", "the SMILES is empty"),
    "CC name,1,1": ("unreadable structure", "has a space in it"),
    "CC,,1": ("no label", "no label in value"),
    "CC,~10,1": ("unusable label", "value is '~10': not a number, nor true or false"),
    "CC,inf,1": ("unusable label", "value is inf: too large"),
    "CC,1,": ("unusable weight", "the weight is missing"),
    "CC,1,-0.5": ("unusable weight", "the weight is -0.5: it must be 0 or more"),
    "CC,1,much": ("unusable weight", "the weight is 'much': not a number"),
    "CC,1": ("unusable weight", "the weight is missing"),
    "CC": ("no label", "no label in value"),
    "CC,1,1,1": ("malformed", "4 cells"),
}


def test_each_bad_row_is_left_out_with_its_reason(tmp_path: Path) -> None:
    good = [f"{smiles},{value},1" for smiles, value in plain_rows()]
    bad_table = tmp_path / "bad.csv"
    bad_table.write_text("\n".join(["smiles,value,w", *good, *BAD_ROWS]) + "\n")
    splits = load(bad_table, weight_column="w", **SPLIT)
    report = report_of(splits)
    assert sorted(smiles for smiles, _ in everything(splits)) == sorted(RINGS)
    assert (len(report.invalid), report.to_plain()["valid"]) == (len(BAD_ROWS), len(RINGS))
    found = zip(report.invalid, BAD_ROWS.items(), strict=True)
    for n, (bad, (text, (kind, reason))) in enumerate(found):
        assert (bad.row, bad.line) == (len(RINGS) + 1 + n, len(RINGS) + 2 + n)
        assert bad.file == str(bad_table)
        assert bad.smiles == text.split(",")[0]
        assert bad.kind == kind
        assert reason in bad.reason
        assert "\n" not in bad.reason
    assert sum(report.to_plain()["reasons"].values()) == len(BAD_ROWS)
    assert report.to_plain()["reasons"]["unreadable structure"] == 2


def test_labels_of_binary_tasks_are_0_or_1(tmp_path: Path) -> None:
    rows = [(smiles, n % 2) for n, smiles in enumerate(RINGS)] + [("CC", 0.5)]
    path = write_csv(tmp_path / "a.csv", rows)
    splits = load(path, task="binary", **SPLIT)
    assert [row.reason for row in report_of(splits).invalid] == ["value is 0.5: not 0 or 1"]
    assert load(path, task="auto", **SPLIT).task.kind == "regression"


def test_row_with_one_of_two_labels_is_used(tmp_path: Path) -> None:
    rows = [(s, v, "", "train") for s, v in plain_rows()]
    rows += [("CC", "", 2, "train"), ("CCC", "", "", "train"), ("CN", 1, 1, "test")]
    path = write_csv(tmp_path / "a.csv", [*rows, ("CCl", 1, "", "val")], "smiles,a,b,set")
    options = {"target_columns": ("a", "b"), "split_column": "set"}
    report = report_of(splits := load(path, **options))
    assert [row.reason for row in report.invalid] == ["no label in any of the 2 target columns"]
    assert {"CC", "CN", "CCl"} < {smiles for smiles, _ in everything(splits)}
    assert report.to_plain()["targets"][1]["splits"]["train"]["labels"] == 1
    assert report.warnings[0] == "all training labels of b are 2: there is nothing to learn"
    assert report.warnings[1:] == ("b has no label in the validation split",)
    path.write_text(path.read_text().replace("CC,,2,train", "CC,,2,test"))
    assert "b has no label in the training split: leave it out of" in failure(path, **options)


# Tables that cannot be used at all.


def test_table_without_usable_rows(tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "a.csv", [("C1CC", 1), ("xx", 2)])
    message = failure(rows)
    assert "all 2 rows cannot be used, the first is row 1, line 2: 'C1CC' is not" in message
    empty = write_csv(tmp_path / "b.csv", [])
    assert "has no rows" in failure(empty, target_columns=("value",))


def test_split_without_molecules(tmp_path: Path) -> None:
    same = write_csv(tmp_path / "a.csv", [("C" * n, n * n) for n in range(1, 20)])
    assert "split of 1 different scaffolds leaves none for" in failure(same)
    few = write_csv(tmp_path / "b.csv", [*plain_rows(2), ("CC", "")])
    message = failure(few, split="random")
    assert "(2 train, 0 validation, 0 test)" in message


@pytest.mark.parametrize("given", [("train",), ("train", "validation"), ("train", "test")])
@pytest.mark.parametrize("split", ["column", "files"])
def test_validation_and_test_may_be_empty_where_they_are_given(tmp_path, split, given):
    rows = [(s, v, given[n % len(given)]) for n, (s, v) in enumerate(plain_rows())]
    if split == "column":
        splits = load(write_csv(tmp_path / "a.csv", rows, "smiles,value,set"), split_column="set")
    else:
        train, *others = (
            write_csv(tmp_path / f"{name}.csv", [row[:2] for row in rows if row[2] == name])
            for name in given
        )
        own = dict(zip((f"{name}_table" for name in given[1:]), others, strict=True))
        splits = load(train, split="files", **own)
    assert dict(everything(splits)) == {smiles: [value] for smiles, value in plain_rows()}
    empty = [name for name, part in splits.parts.items() if not len(part)]
    assert empty == [name for name in ("validation", "test") if name not in given]
    warnings = report_of(splits).warnings
    assert [one.partition(":")[0] for one in warnings] == [f"no {n} split" for n in empty]


def test_one_class_is_not_enough(tmp_path: Path) -> None:
    sets = ("train", "valid", "test")
    rows = [(s, 0 if n % 3 == 2 else n // 3 % 2, sets[n % 3]) for n, s in enumerate(RINGS)]
    path = write_csv(tmp_path / "a.csv", rows, "smiles,active,set")
    assert report_of(load(path, split_column="set")).warnings == ()
    path = write_csv(tmp_path / "b.csv", [(*row[:2], sets[row[1]]) for row in rows], "smiles,y,set")
    message = failure(path, split_column="set")
    assert "training labels of y are 0: classification needs both classes" in message


# The fingerprint.


def test_fingerprint_follows_contents_and_options_but_not_the_place(tmp_path: Path) -> None:
    rows = plain_rows()
    path = write_csv(tmp_path / "a.csv", rows)
    moved = write_csv(tmp_path / "b.csv", rows)
    relabeled = write_csv(tmp_path / "c.csv", [(s, v + 1) for s, v in rows])
    both = write_csv(tmp_path / "d.csv", [(s, v, v) for s, v in rows], "smiles,value,w")

    def print_of(path: Path, **options: Any) -> str:
        return load(path, **{**SPLIT, **options}).fingerprint

    files = {"split": "files", "validation_table": moved}
    first = print_of(path)
    assert first == print_of(moved) == print_of(path, target_columns=("value",), units=("m",))
    assert first == print_of(path, on_invalid="error", smiles_column="smiles", task="regression")
    others = [first, print_of(relabeled), print_of(both, target_columns=("w",))]
    for changed in ({"split_seed": 1}, {"split": "scaffold"}):
        others.append(print_of(path, **changed))
    others += [print_of(path, **files, test_table=test) for test in (moved, relabeled)]
    assert len(set(others)) == len(others) == 7


# Real tables.


def test_moleculenet(data_source: Path) -> None:
    splits = load(data_source / "moleculenet" / "esol.csv")
    assert (splits.name, splits.task.targets) == ("esol", ("logSolubility",))
    assert sum(len(part) for part in splits.parts.values()) == 1128
    labels = np.concatenate([part.y[:, 0] for part in splits.parts.values()])
    assert labels.mean(dtype=np.float64) == pytest.approx(-3.0501, abs=1e-4)
    report = report_of(splits)
    assert report.invalid == []
    plain = report.to_plain()
    assert all(leak["molecules"] == leak["scaffolds"] == 0 for leak in plain["leakage"])
    # A known blemish of the set.
    assert (plain["duplicates"]["molecules"], plain["duplicates"]["rows"]) == (11, 22)
