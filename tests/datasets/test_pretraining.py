"""Molecules without labels as a data set whose targets are descriptors and Morgan counts."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem

from graphormer_sepnorm.chem.fingerprints import morgan_counts
from graphormer_sepnorm.datasets import pretraining
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.pretraining import CLIPPED, _standardised, load_pretraining
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.resources import sample_path


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining, "cores", lambda: 1)


@pytest.fixture(scope="module")
def molecules() -> list[str]:
    lines = gzip.decompress(sample_path().read_bytes()).decode().splitlines()[1:151]
    return ["not a molecule", "C" * 101, *(line.split(",")[0] for line in lines)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root in which the descriptors of `molecules` are kept once they are computed."""
    return tmp_path_factory.mktemp("root")


def write(path: Path, molecules: list[str]) -> Path:
    path.write_text("\n".join(molecules) + "\n")
    return path


def test_targets_are_standardised_descriptors(
    tmp_path: Path, root: Path, molecules: list[str]
) -> None:
    splits = load_pretraining(write(tmp_path / "m.smi", molecules), root)
    # What is no molecule and what is too large are left out.
    assert sum(len(part) for part in splits.parts.values()) == 150
    texts = [text for part in splits.parts.values() for text in part.texts]
    targets = np.concatenate([part.y.numpy() for part in splits.parts.values()])
    assert np.nanmax(np.abs(targets)) <= CLIPPED + 1e-5
    at = splits.task.targets.index("MolWt")
    weights = np.array([Chem.Descriptors.MolWt(Chem.MolFromSmiles(text)) for text in texts])
    # Without outliers a z-score is the value, shifted and scaled.
    assert np.corrcoef(weights, targets[:, at])[0, 1] > 0.999
    environments = [name for name in splits.task.targets if name.startswith("morgan_")]
    counts = morgan_counts([Chem.MolFromSmiles(text) for text in texts]).toarray()
    at = splits.task.targets.index(environments[0])
    logarithms = np.log1p(counts[:, int(environments[0].removeprefix("morgan_"))])
    inside = np.abs(targets[:, at]) < CLIPPED - 1e-3
    assert np.corrcoef(logarithms[inside], targets[inside, at])[0, 1] > 0.9999


def test_environments_that_nearly_all_or_hardly_any_molecules_have_are_no_targets(
    tmp_path: Path, molecules: list[str]
) -> None:
    wet = [f"{smiles}.O" for smiles in molecules[2:112]]
    splits = load_pretraining(write(tmp_path / "m.smi", wet), tmp_path)
    counts = morgan_counts([Chem.MolFromSmiles(text) for text in wet]).toarray()
    share = (counts > 0).mean(axis=0)
    assert (share > 0.99).any()
    wanted = [f"morgan_{bit}" for bit in np.flatnonzero((share >= 0.01) & (share <= 0.99))]
    assert [name for name in splits.task.targets if name.startswith("morgan_")] == wanted


def test_an_interrupted_computation_goes_on_where_it_was(
    tmp_path: Path, root: Path, molecules: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "m.smi", molecules)
    plain = load_pretraining(path, root)
    monkeypatch.setattr(pretraining, "_CHUNK", 20)
    monkeypatch.setattr(pretraining, "_CHUNKS_BETWEEN_NOTES", 2)
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
    resumed = load_pretraining(path, tmp_path)
    assert len(calls) == 6 + 4  # 8 chunks, of which 4 were noted as done
    np.testing.assert_array_equal(resumed.train.y.numpy(), plain.train.y.numpy())


def test_a_place_that_cannot_be_written_is_one_line(
    tmp_path: Path, molecules: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "m.smi", molecules)
    with pytest.raises(DataError, match=r"cannot be written .*: give another --data"):
        load_pretraining(path, path)

    def full(*arguments: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pretraining.os, "posix_fallocate", full)
    with pytest.raises(DataError, match=r"\(No space left on device\): make room"):
        load_pretraining(path, tmp_path)


def test_a_byte_that_is_not_text_costs_its_molecule_alone(
    tmp_path: Path, molecules: list[str]
) -> None:
    path = write(tmp_path / "m.smi", molecules)
    path.write_bytes(path.read_bytes() + b"C\xe9O\n")
    splits = load_pretraining(path, tmp_path)
    assert sum(map(len, splits.parts.values())) == len(molecules) - 2  # as without it


def test_too_few_molecules_are_refused(tmp_path: Path, molecules: list[str]) -> None:
    with pytest.raises(DataError, match="50 of its 50 molecules can be used"):
        load_pretraining(write(tmp_path / "m.smi", molecules[2:52]), tmp_path)


def test_the_column_of_a_table_can_be_named(
    tmp_path: Path, root: Path, molecules: list[str]
) -> None:
    path = write(
        tmp_path / "m.csv", ["id,compound", *(f"{n},{m}" for n, m in enumerate(molecules))]
    )
    with pytest.raises(DataError, match=r"name it with --data\.smiles_column"):
        load_pretraining(path, root)
    options = {"dataset": "pretraining", "molecules": str(path), "root": str(root)}
    wrong = MoleculeDataModule(**options, smiles_column="id")
    with pytest.raises(DataError, match=r"0 of its 152 molecules can be used"):
        wrong.setup("fit")
    named = MoleculeDataModule(**options, smiles_column="compound")
    assert sum(len(part) for part in named.splits.parts.values()) == 150


def test_a_constant_number_of_many_molecules_is_no_target() -> None:
    values = np.full((300_000, 3), np.float32([412.37, 0.3, 1e4]))
    values[::2, 2] += 1
    scores, varying = _standardised(values)
    assert varying.tolist() == [False, False, True]
    np.testing.assert_allclose(scores[:4, 0], [1, -1, 1, -1], atol=1e-4)
