"""Properties that every split of a table has."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_files import RINGS, SPLIT, failure, load, report_of, write_csv

from graphormer_sepnorm.datasets.splits import SPLITS, DatasetSplits
from graphormer_sepnorm.datasets.splitting import fold_split, random_split

SHARES = st.sampled_from([(0.8, 0.1, 0.1), (0.7, 0.1, 0.2), (0.5, 0.25, 0.25), (0.1, 0.1, 0.8)])
MOLECULES = st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), max_size=60)


@settings(deadline=None)
@given(MOLECULES, SHARES, st.integers(0, 9), st.randoms(use_true_random=False))
def test_random_split_is_a_partition_that_keeps_equal_molecules_together(
    molecules: list[str], shares: tuple[float, float, float], seed: int, shuffler: random.Random
) -> None:
    parts = random_split(molecules, shares, seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(molecules)))
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)
    members = [{molecules[at] for at in part} for part in parts]
    assert sum(map(len, members)) == len(set(molecules))
    # Each boundary is off by half of the largest group at most.
    largest = max(Counter(molecules).values(), default=0)
    assert abs(len(parts[0]) - shares[0] * len(molecules)) <= largest / 2 + 1e-9
    assert abs(len(parts[2]) - shares[2] * len(molecules)) <= largest / 2 + 1e-9
    # Not by the order of the rows.
    shuffled = list(molecules)
    shuffler.shuffle(shuffled)
    again = random_split(shuffled, shares, seed)
    assert [{shuffled[at] for at in part} for part in again] == members


def test_molecules_keep_their_places() -> None:
    """Another hash would be another split of everybody's table, under the same seed."""
    molecules = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CCNC1", "c1ccoc1"]
    molecules += ["c1ccsc1", "C1CC1", "C1COCCN1", "c1c[nH]cn1", "c1ccc2ccccc2c1"]
    places = [
        [part.tolist() for part in random_split(molecules, (0.6, 0.2, 0.2), seed)]
        for seed in (0, 1)
    ]
    assert places[0] == [[0, 3, 4, 5, 7, 9], [6, 8], [1, 2]]
    assert places[1] == [[0, 1, 5, 6, 8, 9], [3, 4], [2, 7]]


# Groups of which some are large, as scaffolds are.
GROUPS = st.lists(
    st.tuples(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), st.integers(1, 9)),
    min_size=8,
    max_size=40,
    unique_by=lambda group: group[0],
).map(lambda groups: [name for name, size in groups for _ in range(size)])


@settings(deadline=None)
@given(GROUPS, st.integers(2, 8), st.integers(0, 9), st.randoms(use_true_random=False))
def test_each_row_is_in_the_test_split_of_one_fold(groups, folds, seed, shuffler):
    tested: list[int] = []
    sizes = []
    shuffled = [*range(len(groups))]
    shuffler.shuffle(shuffled)
    for fold in range(folds):
        parts = fold_split(groups, folds, fold, seed)
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(groups)))
        assert all(part.tolist() == sorted(part.tolist()) for part in parts)
        members = [{groups[at] for at in part} for part in parts]
        assert not members[0] & members[1]
        assert not members[2] & (members[0] | members[1])
        tested += parts[2].tolist()
        sizes.append(len(parts[2]))
        # A tenth of what is left, or one group where all are larger.
        room = max(1, (len(groups) - len(parts[2])) // 10)
        assert len(parts[1]) > 0
        assert len(parts[1]) <= room or len(members[1]) == 1
        # Not by the order of the rows.
        again = fold_split([groups[at] for at in shuffled], folds, fold, seed)
        assert [{groups[shuffled[at]] for at in part} for part in again] == members
    assert sorted(tested) == list(range(len(groups)))
    assert max(sizes) - min(sizes) <= max(Counter(groups).values())


def test_folds_of_molecules_keep_their_places() -> None:
    groups = ["a", "a", "a", "b", "b", "c", "d", "e", "f", "g"]
    folds = [[part.tolist() for part in fold_split(groups, 3, fold, 0)] for fold in range(3)]
    assert folds == [
        [[3, 4, 5, 7, 8], [9], [0, 1, 2, 6]],
        [[0, 1, 2, 5, 7, 9], [6], [3, 4, 8]],
        [[0, 1, 2, 3, 4, 8], [6], [5, 7, 9]],
    ]


def values(splits: DatasetSplits) -> dict[str, list[float]]:
    return {name: part.y[:, 0].tolist() for name, part in splits.parts.items()}


@settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    choice=st.lists(st.sampled_from(range(len(RINGS))), min_size=12, max_size=30),
    split=st.sampled_from(["random", "scaffold", "column"]),
    shuffler=st.randoms(use_true_random=False),
)
def test_each_usable_row_is_in_exactly_one_split(
    tmp_path: Path, choice: list[int], split: str, shuffler: random.Random
) -> None:
    # All twelve molecules, some more often, one row that cannot be used, a label of its own each.
    drawn = [*range(len(RINGS)), *choice]
    sets = ["train", "Valid", "TEST"]
    rows = [(RINGS[at], n + 0.5, sets[n % 3]) for n, at in enumerate(drawn)]
    rows.append(("C1CC", 99, "train"))
    shuffler.shuffle(rows)
    path = write_csv(tmp_path / "table.csv", rows, "smiles,value,set")
    column = "set" if split == "column" else None
    options = {"task": "regression", "target_columns": "value", "split_column": column}
    splits = load(path, **{**SPLIT, **options, "split": split})

    found = report_of(splits).splits
    met = sorted(row.number for part in found.values() for row in part)
    assert met == [number for number, row in enumerate(rows, start=1) if row[1] != 99]
    for name, part in splits.parts.items():
        # SMILES, labels and order of rows belong together.
        numbers = [row.number for row in found[name]]
        assert numbers == sorted(numbers)
        assert [rows[n - 1][0] for n in numbers] == splits.smiles[name]
        assert [rows[n - 1][1] for n in numbers] == part.y[:, 0].tolist()
        if split == "column":
            assert {rows[n - 1][2] for n in numbers} == {sets[SPLITS.index(name)]}
    kin = {"random": "canonical", "scaffold": "scaffold"}.get(split, "number")
    groups = [{getattr(row, kin) for row in part} for part in found.values()]
    assert sum(map(len, groups)) == len(set().union(*groups))


@pytest.mark.parametrize("split", ["random", "scaffold"])
def test_folds_of_a_table(tmp_path: Path, split: str) -> None:
    rows = [(smiles, 2 * at + copy) for at, smiles in enumerate(RINGS) for copy in (0, 1)]
    path = write_csv(tmp_path / "a.csv", rows)
    options = {"split": split, "task": "regression", "split_seed": 3}
    found = [load(path, **options, folds=4, fold=fold) for fold in range(4)]
    tested = [value for splits in found for value in values(splits)["test"]]
    assert sorted(tested) == [float(value) for _, value in rows]
    for number, splits in enumerate(found):
        assert report_of(splits).split == f"fold {number} of 4 ({split}, seed 3)"
    other = load(path, **options | {"split_seed": 4}, folds=4, fold=0)
    assert len({splits.fingerprint for splits in (*found, other)}) == 5
    assert values(other)["test"] != values(found[0])["test"]


def test_too_many_folds(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [(f"c1ccccc1{'C' * n}", n + 0.5) for n in range(8)])
    said = failure(path, task="regression", folds=9, fold=0, split="random")
    assert "8 different molecules cannot be assigned to 9 folds" in said
    rings = write_csv(tmp_path / "b.csv", [("C1CC1", 0.5), ("C1CCC1", 1.5)])
    said = failure(rings, task="regression", folds=2, fold=0)
    assert "leaves none for train" in said
