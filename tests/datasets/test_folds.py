"""Folds of an ensemble's members: every molecule is held out once, and kin stay together."""

from pathlib import Path

import numpy as np
import pytest
from table_files import write_csv

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.splitting import without_large_groups
from graphormer_sepnorm.datasets.training_graphs import MemberFolds
from graphormer_sepnorm.errors import ConfigError, DataError

# Chains, and eight ring systems with three molecules each.
CHAINS = ["C" * length + end for length in range(2, 18) for end in ("O", "N")]
RINGS = ["c1ccccc1", "c1ccncc1", "C1CCCCC1", "c1ccsc1", "c1ccoc1", "C1CCNC1", "c1ccc2ccccc2c1"]
RINGED = [ring + tail for ring in [*RINGS, "C1CCOC1"] for tail in ("C", "CC", "CCC")]


def table(folder: Path, smiles: list[str], **options: object) -> MoleculeDataModule:
    rows = [(text, number / 7, number % 3) for number, text in enumerate(smiles)]
    path = write_csv(folder / "a.csv", rows, "smiles,y,w")
    options |= {"table": str(path), "root": str(folder / "root"), "target_columns": "y"}
    return MoleculeDataModule(**options)


def test_a_group_that_is_too_large_parts() -> None:
    groups = ["a"] * 6 + ["b"] * 3 + ["c"] * 3
    molecules = ["m0", "m0", *(f"m{number}" for number in range(2, 12))]
    apart = without_large_groups(groups, molecules, 2)  # half a fold is 3
    assert apart[:3] == ["a m0", "a m0", "a m2"]
    assert apart[6:] == groups[6:]


@pytest.mark.parametrize("split", ["random", "scaffold"])
def test_each_molecule_is_held_out_by_one_member(tmp_path: Path, split: str) -> None:
    smiles = CHAINS + RINGED
    plain = table(tmp_path, smiles, split=split)
    options = {"split": split, "member_folds": 3}
    members = [table(tmp_path, smiles, **options, member_fold=fold) for fold in range(3)]
    pool = np.concatenate([plain.indices("train"), plain.indices("validation")])
    held = [one.indices("validation") for one in members]
    assert sorted(np.concatenate(held)) == pool.tolist()
    assert min(map(len, held)) > len(pool) / 5
    # So that all train equally long, whatever the sizes of their folds.
    assert {one.numbers.trained_on for one in members} == {round(len(pool) * 2 / 3)}
    for one, own in zip(members, held, strict=True):
        assert sorted([*one.indices("train"), *own]) == pool.tolist()
        np.testing.assert_array_equal(one.indices("test"), plain.indices("test"))
        # What a model keeps of its data is that of all members, so that they can be joined.
        assert one.fit_vocabulary().to_plain() == members[0].fit_vocabulary().to_plain()
        assert one.target_scaling() == members[0].target_scaling()
        labels = np.asarray(plain.store.targets[pool], np.float64)
        assert one.target_scaling()[0] == [pytest.approx(labels.mean())]
        assert one.training_summary()["targets"][0]["labels"] == len(pool)
    texts = [*plain.splits.smiles["train"], *plain.splits.smiles["validation"]]
    dealt = members[0].numbers.assigned.tolist()
    rings = [{dealt[at] for at, text in enumerate(texts) if ring in text} for ring in RINGS]
    assert (max(map(len, rings)) <= 1) == (split == "scaffold")
    chains = {dealt[at] for at, text in enumerate(texts) if text in CHAINS}
    assert chains == {0, 1, 2}  # they are more than half a fold


def test_what_weighs_nothing_is_held_out_by_no_member(tmp_path: Path) -> None:
    options = {"weight_column": "w", "split": "random"}
    own = ({"member_folds": 3, "member_fold": fold} for fold in range(3))
    members = [table(tmp_path, CHAINS, **options, **one) for one in own]
    ensemble = table(tmp_path, CHAINS, **options)
    pool = np.concatenate([ensemble.indices("train"), ensemble.indices("validation")])
    weights = np.asarray(ensemble.store.weights[pool], np.float64)
    weighed = pool[weights > 0]
    # The scales are those of all members, so that they can be joined.
    assert {one.weight_scale() for one in members} == {1 / weights.mean()}
    mean = np.average(np.asarray(ensemble.store.targets[pool], np.float64)[:, 0], weights=weights)
    assert [one.target_scaling()[0] for one in members] == [[pytest.approx(mean)]] * 3
    ensemble.assign_members(MemberFolds(3))
    held = [one.indices("validation").tolist() for one in members]
    assert sorted(np.concatenate(held)) == weighed.tolist() == ensemble.numbers.validated.tolist()
    assert [one.tolist() for one in ensemble.numbers.of_members] == held
    others = np.setdiff1d(pool, weighed)  # of which all are as good as each other
    np.testing.assert_array_equal(ensemble.numbers.weighed(others), others)


def test_folds_are_for_tables_that_are_large_enough(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="zinc-subset has its own validation split"):
        MoleculeDataModule(dataset="zinc-subset", member_folds=3, member_fold=0)
    data = table(tmp_path, CHAINS[:12], split="random", member_folds=30, member_fold=0)
    with pytest.raises(DataError, match="cannot be assigned to 30 folds: give --ensemble_by seeds"):
        data.indices("train")
