"""ZINC from made-up raw files: what is read, and what is said where something is wrong."""

import dataclasses
import io
import pickle
import shutil
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from rdkit import Chem
from tiny_raw_files import ZINC_INDICES, ZINC_SIZES, failure, zinc_molecule
from torch_geometric.datasets import ZINC

from graphormer_sepnorm.datasets import zinc
from graphormer_sepnorm.datasets.catalog import load_dataset
from graphormer_sepnorm.datasets.lazy_graphs import RawGraphs, SmilesOfGraphs
from graphormer_sepnorm.datasets.zinc import _note
from graphormer_sepnorm.files import sha256_of
from graphormer_sepnorm.graphs.packed_graphs import MolecularGraph, packed_blocks


def test_whole_set_is_read_as_written(tiny_zinc: Path) -> None:
    splits = load_dataset("zinc", tiny_zinc)
    assert [len(part) for part in splits.parts.values()] == list(ZINC_SIZES.values())
    for part, size in zip(splits.parts.values(), ZINC_SIZES.values(), strict=True):
        for number in range(size):
            molecule, graph = zinc_molecule(number), part[number]
            dense = torch.zeros_like(molecule["bond_type"], dtype=torch.int64)
            dense[*graph.edge_index] = graph.edge_attr[:, 0]
            assert torch.equal(dense, molecule["bond_type"].long())
            assert torch.equal(graph.x, molecule["atom_type"].long()[:, None])
            assert torch.equal(graph.y, molecule["logP_SA_cycle_normalized"])
    assert splits.name == "zinc"
    assert (splits.task.kind, splits.task.metric) == ("regression", "mae")
    assert splits.smiles is not None
    assert [len(texts) for texts in splits.smiles.values()] == list(ZINC_SIZES.values())


def test_smiles_are_written_when_they_are_asked_for() -> None:
    """Of one, of several, from the end; codes that make no molecule have none."""
    acid = MolecularGraph(  # C, =O and O in the codes of ZINC
        np.array([[0], [1], [1]]),
        np.array([[0, 1, 0, 2], [1, 0, 2, 0]]),
        np.array([[2], [2], [1], [1]]),
    )
    none = dataclasses.replace(acid, bond_codes=np.full((4, 1), 3))
    (graphs,) = packed_blocks([none, acid])
    texts = SmilesOfGraphs(RawGraphs(lambda: graphs, [1, 0]), "zinc-1")
    assert len(texts) == 2
    assert [Chem.CanonSmiles(text) for text in texts] == ["O=CO", ""]
    assert (texts[-1], texts[:1]) == ("", [texts[0]])
    with pytest.raises(IndexError):
        texts[2]


def test_subset_follows_the_index_files(tiny_zinc: Path) -> None:
    splits = load_dataset("zinc-subset", tiny_zinc)
    values = [[float(graph.y) for graph in part] for part in splits.parts.values()]
    assert values == [[p / 2 for p in positions] for positions in ZINC_INDICES.values()]


def test_download_is_put_in_place(tiny_zinc: Path, tmp_path_factory, monkeypatch) -> None:
    served = tiny_zinc / "ZINC" / "raw"

    def download(self: ZINC) -> None:
        for path in served.iterdir():
            (Path(self.raw_dir) / path.name).write_bytes(path.read_bytes())

    monkeypatch.setattr(ZINC, "download", download)
    root = tmp_path_factory.mktemp("root")
    said = "train.index, val.index, test.index not as published: the SHA-256 is another one"
    assert said in failure("zinc", root)
    for name in zinc.PUBLISHED:
        monkeypatch.setitem(zinc.PUBLISHED, name, sha256_of(served / name))
    assert len(load_dataset("zinc", root).train) == ZINC_SIZES["train"]
    names = {path.name for path in (root / "ZINC" / "raw").iterdir()}
    assert names == {".download.lock", *(path.name for path in served.iterdir())}


class Stored:
    """Pickled as torch pickles the numbers of a tensor: as a file of its own."""

    def __reduce__(self) -> tuple:
        file = io.BytesIO()
        torch.save([print], file)
        return torch.storage._load_from_bytes, (file.getvalue(),)


class Malicious:
    """Pickled as a tensor is, with numbers that are more than that."""

    def __reduce__(self) -> tuple:
        return torch._utils._rebuild_tensor_v2, (Stored(), 0, (1,), (1,), False, OrderedDict())


PRINT, INSIDE = pickle.dumps([print]), pickle.dumps([{"atom_type": Malicious()}] * 4)


@pytest.mark.parametrize(
    ("name", "file", "content", "said"),
    [
        ("zinc", "test.pickle", pickle.dumps([{"atoms": 3}]), "cannot be read (KeyError: 'atom_"),
        # Which would run code, be it inside a tensor.
        ("zinc", "train.pickle", PRINT, "cannot be read (UnpicklingError: it asks for b"),
        ("zinc-subset", "val.pickle", INSIDE, "or val.index cannot be read (UnpicklingError: a"),
        ("zinc-subset", "train.index", b"0,8\n", "cannot be read (IndexError"),  # past the end
        ("zinc-subset", "train.index", b"0,2,5,71", "is cut short"),  # PyG would read 0, 2, 5, 7
    ],
)
def test_raw_file_of_wrong_contents_is_named(tiny_zinc, name, file, content, said):
    root = tiny_zinc
    (root / "ZINC" / "raw" / file).write_bytes(content)
    message = failure(name, root)
    assert f"{file} {said}" in message


def test_what_is_known_does_not_depend_on_place_or_time_and_is_not_read_again(
    tiny_zinc: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tiny_zinc
    first = load_dataset("zinc", root)
    assert capsys.readouterr().err.count("Reading") == 3
    moved = tmp_path_factory.mktemp("moved") / "root"
    shutil.copytree(root, moved, copy_function=shutil.copyfile)
    second = load_dataset("zinc", moved)
    assert second.fingerprint == first.fingerprint
    assert [len(part) for part in second.parts.values()] == list(ZINC_SIZES.values())
    assert capsys.readouterr().err == "", "raw files were read"
    assert second.test[1].y == first.test[1].y
    assert capsys.readouterr().err.count("Reading") == 1
    (moved / "ZINC" / "zinc.json").write_text("{")
    assert len(load_dataset("zinc", moved).test) == ZINC_SIZES["test"]


def test_training_set_that_is_not_the_published_one_is_noted() -> None:
    assert "another draw" in _note(10_000, 24, subset=True)
    assert "1 of the 220,011 published" in _note(220_010, 24, subset=False)
    assert not _note(10_000, 29, True) + _note(8, 24, True) + _note(220_011, 24, False)
