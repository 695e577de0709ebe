"""Molecules without labels as a data set whose targets are descriptors and Morgan counts."""

import gzip
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from reference.molecules import sample_rows
from reference.processes import REPOSITORY, module_of

from graphormer_sepnorm import process
from graphormer_sepnorm.datasets import pretraining
from graphormer_sepnorm.datasets.catalog import load_dataset
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.pretraining import CLIPPED, load_pretraining
from graphormer_sepnorm.errors import DataError


@pytest.fixture(scope="module")
def molecules() -> list[str]:
    return ["not a molecule", "C" * 101, *(smiles for smiles, _ in sample_rows(150))]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root in which the descriptors of `molecules` are kept once they are computed."""
    return tmp_path_factory.mktemp("root")


def write(path: Path, molecules: list[str]) -> Path:
    path.write_text("\n".join(molecules) + "\n")
    return path


def test_targets_are_standardized_descriptors(tmp_path, root: Path, molecules: list[str]) -> None:
    splits = load_pretraining(write(tmp_path / "m.smi", molecules), root)
    # What is no molecule and what is too large are left out.
    assert sum(len(part) for part in splits.parts.values()) == 150
    texts = [text for part in splits.parts.values() for text in part.texts]
    targets = np.concatenate([part.y for part in splits.parts.values()])
    assert np.nanmax(np.abs(targets)) <= CLIPPED + 1e-5
    at = splits.task.targets.index("MolWt")
    weights = np.array([Chem.Descriptors.MolWt(Chem.MolFromSmiles(text)) for text in texts])
    # Without outliers a z-score is the value, shifted and scaled.
    assert np.corrcoef(weights, targets[:, at])[0, 1] > 0.999
    environments = [name for name in splits.task.targets if name.startswith("morgan_")]
    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2)
    molecules = map(Chem.MolFromSmiles, texts)
    counts = np.array([morgan.GetCountFingerprintAsNumPy(molecule) for molecule in molecules])
    at = splits.task.targets.index(environments[0])
    logarithms = np.log1p(counts[:, int(environments[0].removeprefix("morgan_"))])
    inside = np.abs(targets[:, at]) < CLIPPED - 1e-3
    assert np.corrcoef(logarithms[inside], targets[inside, at])[0, 1] > 0.9999


def test_an_interrupted_computation_continues_after_the_stored_parts(
    tmp_path: Path, root: Path, molecules: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "m.smi", molecules)
    plain = load_pretraining(path, root)
    monkeypatch.setattr(pretraining, "_PART", 40)
    monkeypatch.setattr(pretraining, "_CHUNK", 20)
    calls: list[int] = []
    whole = pretraining._of_chunk

    def failing(smiles: list[str]) -> tuple[np.ndarray, np.ndarray]:
        calls.append(len(smiles))
        if len(calls) == 6:
            raise KeyboardInterrupt
        return whole(smiles)

    monkeypatch.setattr(pretraining, "_of_chunk", failing)
    with pytest.raises(KeyboardInterrupt):
        load_pretraining(path, tmp_path)
    shown: list[str] = []
    monkeypatch.setattr(process.StatusLine, "is_due", lambda line: True)
    monkeypatch.setattr(process.StatusLine, "show", lambda line, text: shown.append(text))
    resumed = load_pretraining(path, tmp_path)
    assert len(calls) == 6 + 4  # of 8 chunks 4 were in stored parts
    assert shown[-1] == "descriptors: 152 of 152 molecules"
    np.testing.assert_array_equal(resumed.train.y, plain.train.y)


@pytest.mark.parametrize("size", [0, -9])
def test_a_part_that_is_cut_short_is_made_again(tmp_path, root, molecules, size):
    path = write(tmp_path / "m.smi", molecules)
    plain = load_pretraining(path, root)
    for part in root.glob("pretraining/*/*.npz"):
        part.write_bytes(part.read_bytes()[:size])
    again = load_pretraining(path, root)
    np.testing.assert_array_equal(again.train.y, plain.train.y)


def test_too_few_molecules_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.smi", [f"{'C' * n}O" for n in range(1, 51)])
    with pytest.raises(DataError, match="50 of its 50 molecules can be used: give 100"):
        load_pretraining(path, tmp_path)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, molecules, monkeypatch):
    path = write(tmp_path / "m.smi", molecules)
    with pytest.raises(DataError, match=r"cannot be written .*: give another --data"):
        load_pretraining(path, path)
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(pretraining.np, "savez_compressed", full)
    with pytest.raises(DataError, match=r"\(No space left on device\): make room"):
        load_pretraining(path, tmp_path)


def test_the_column_of_a_table_can_be_named(tmp_path, root: Path, molecules: list[str]) -> None:
    rows = [f"{n},{m}" for n, m in enumerate(molecules)]
    path = write(tmp_path / "m.csv", ["id,compound", *rows])
    options = {"dataset": "pretraining", "molecules": str(path), "root": str(root)}
    named = MoleculeDataModule(**options, smiles_column="compound")
    assert sum(len(part) for part in named.splits.parts.values()) == 150


def test_all_but_test_molecules_are_listed(tiny_molhiv: Path, tmp_path: Path, capsys) -> None:
    script = module_of(REPOSITORY / "data" / "make_pretraining_molecules.py")
    (tmp_path / "train.txt").write_text("CCN\nCCO\n")
    (tmp_path / "valid.csv.gz").write_bytes(gzip.compress(b"y,smiles\n1,CCCl\n2,\n"))
    smiles = load_dataset("ogbg-molhiv", tiny_molhiv).smiles
    output = tmp_path / "molecules.smi"
    files = [str(tmp_path / "train.txt"), str(tmp_path / "valid.csv.gz")]
    words = [str(output), "--zinc", *files, "--root", str(tiny_molhiv)]
    script.main(words)
    listed = output.read_text().splitlines()
    assert listed == ["CCN", "CCO", "CCCl", *smiles["train"], *smiles["validation"]]
    assert not set(listed) & set(smiles["test"])
    assert f"{len(listed)} molecules" in capsys.readouterr().out
    script.main([*words, "--draw", "3"])
    drawn = output.read_text().splitlines()
    assert len(drawn) == 3
    assert set(drawn) <= set(listed)
    (tmp_path / "more.csv").write_text(
        "smiles\nOCC\nC1CC\nC[C@H](N)O\nC[C@@H](F)O\n" + smiles["test"][0]
    )
    (tmp_path / "test.smi").write_text("CC(N)O\n")
    script.main(
        [*words, "--more", str(tmp_path / "more.csv"), "--without", str(tmp_path / "test.smi")]
    )
    once = output.read_text().splitlines()
    assert once[:3] == ["CCN", "CCO", "CCCl"]
    assert once[-1] == "C[C@H](O)F"
    assert len(once) == len({*once}) <= len(listed) + 1
