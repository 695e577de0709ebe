"""ZINC from made-up raw files: what is read, and what is said where something is wrong."""

from __future__ import annotations

import io
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rdkit import Chem
from tiny_raw_files import ZINC_INDICES, ZINC_SIZES, failure, zinc_molecule
from torch_geometric.data import Data
from torch_geometric.datasets import ZINC

from graphormer_sepnorm.datasets import load_dataset, sources, zinc
from graphormer_sepnorm.datasets.smiles_of_graphs import SmilesOfGraphs
from graphormer_sepnorm.datasets.zinc import _note
from graphormer_sepnorm.files import sha256_of

Write = Callable[..., Path]


def test_whole_set_is_read_as_written(tiny_zinc: Write) -> None:
    splits = load_dataset("zinc", tiny_zinc())
    assert [len(part) for part in splits.parts.values()] == list(ZINC_SIZES.values())
    for part, size in zip(splits.parts.values(), ZINC_SIZES.values(), strict=True):
        for number in range(size):
            molecule, graph = zinc_molecule(number), part[number]
            dense = torch.zeros_like(molecule["bond_type"], dtype=torch.int64)
            dense[graph.edge_index[0], graph.edge_index[1]] = graph.edge_attr
            assert torch.equal(dense, molecule["bond_type"].long())
            assert torch.equal(graph.x, molecule["atom_type"].long()[:, None])
            assert torch.equal(graph.y, molecule["logP_SA_cycle_normalized"])
    assert splits.name == "zinc"
    assert (splits.task.kind, splits.task.metric) == ("regression", "mae")
    assert splits.smiles is not None
    assert [len(texts) for texts in splits.smiles.values()] == list(ZINC_SIZES.values())


def test_smiles_are_written_when_they_are_asked_for() -> None:
    """Of one, of several, from the end; codes that make no molecule have none."""
    acid = Data(  # C, =O and O in the codes of ZINC
        x=torch.tensor([[0], [1], [1]]),
        edge_index=torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]]),
        edge_attr=torch.tensor([2, 2, 1, 1]),
        y=torch.zeros(1),
    )
    none = acid.clone()
    none.edge_attr = torch.full((4,), 3)
    texts = SmilesOfGraphs([acid, none], "zinc-1")
    assert len(texts) == 2
    assert [Chem.CanonSmiles(text) for text in texts] == ["O=CO", ""]
    assert (texts[-1], texts[:1]) == ("", [texts[0]])
    with pytest.raises(IndexError):
        texts[2]


@pytest.mark.parametrize("subset_only", [False, True])
def test_subset_follows_the_index_files(tiny_zinc: Write, subset_only: bool) -> None:
    splits = load_dataset("zinc-subset", tiny_zinc(subset_only))
    values = [[float(graph.y) for graph in part] for part in splits.parts.values()]
    assert values == [[p / 2 for p in positions] for positions in ZINC_INDICES.values()]


def test_quick_access_gives_what_pyg_gives(tiny_zinc: Write) -> None:
    root = tiny_zinc()
    ours = load_dataset("zinc", root).train
    theirs = ZINC(str(root / "ZINC"), split="train")
    assert isinstance(ours, ZINC)
    for graph, expected in zip(ours, theirs, strict=True):
        assert graph.keys() == expected.keys()
        assert all(torch.equal(graph[key], expected[key]) for key in expected.keys())  # noqa: SIM118
    # slices and index lists go through PyG's own code
    assert [float(g.y) for g in ours[2:4]] == [1.0, 1.5]
    assert [float(g.y) for g in ours[[5, 1]]] == [2.5, 0.5]


def test_missing_files_without_a_network(tmp_path: Path, network_attempts: list[str]) -> None:
    root = tmp_path / "mistyped" / "root"
    message = failure("zinc-subset", root)
    assert network_attempts == ["www.dropbox.com"]
    assert f"zinc-subset: no raw files in {root / 'ZINC' / 'raw'}" in message
    assert "tests have no network" in message
    for name in ("train.pickle", "val.pickle", "test.pickle", "molecules.zip", "test.index"):
        assert name in message
    assert not (tmp_path / "mistyped").exists()


def test_nothing_of_the_users_is_removed_where_one_file_is_missing(tiny_zinc: Write) -> None:
    root = tiny_zinc()
    raw = root / "ZINC" / "raw"
    (raw / "val.index").unlink()
    message = failure("zinc-subset", root)
    assert message.startswith(f"zinc-subset: val.index missing in {raw}")
    assert len(list(raw.iterdir())) == 5


def test_download_is_put_in_place(
    tiny_zinc: Write, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tiny_zinc() / "ZINC" / "raw"

    def download(self: ZINC) -> None:
        for path in served.iterdir():
            (Path(self.raw_dir) / path.name).write_bytes(path.read_bytes())

    monkeypatch.setattr(ZINC, "download", download)
    root = tmp_path_factory.mktemp("root")
    said = "train.index, val.index, test.index not as published: the SHA-256 is another one"
    assert said in failure("zinc", root)
    assert list(root.iterdir()) == []
    for name in zinc.PUBLISHED:
        monkeypatch.setitem(zinc.PUBLISHED, name, sha256_of(served / name))
    assert len(load_dataset("zinc", root).train) == ZINC_SIZES["train"]
    names = sorted(path.name for path in (root / "ZINC" / "raw").iterdir())
    assert names == sorted(path.name for path in served.iterdir())


def test_incomplete_download_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ZINC, "download", lambda self: (Path(self.raw_dir) / "train.pickle").write_bytes(b"")
    )
    assert "val.pickle, test.pickle" in failure("zinc", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_raw_files_of_the_subset_are_not_taken_for_the_whole_set(tiny_zinc: Write) -> None:
    root = tiny_zinc(subset_only=True)
    message = failure("zinc", root)
    assert "train.pickle holds the molecules of zinc-subset only" in message
    assert len(load_dataset("zinc-subset", root).train) == len(ZINC_INDICES["train"])


def test_truncated_raw_file_is_named(tiny_zinc: Write) -> None:
    root = tiny_zinc()
    path = root / "ZINC" / "raw" / "val.pickle"
    path.write_bytes(path.read_bytes()[:-200])
    for name in ("zinc", "zinc-subset"):
        assert f"{name}: {path}" in failure(name, root)
    assert not list((root / "ZINC").rglob("*.pt")), "half-made files were left"


class Stored:
    """Pickled as torch pickles the numbers of a tensor: as a file of its own."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __reduce__(self) -> tuple:
        file = io.BytesIO()
        torch.save(self.value, file)
        return torch.storage._load_from_bytes, (file.getvalue(),)


@pytest.mark.parametrize(
    ("name", "file", "content", "said"),
    [
        ("zinc", "test.pickle", pickle.dumps([{"atoms": 3}]), "cannot be read (KeyError: 'atom_t"),
        # Which would run code, be it inside a tensor.
        (
            "zinc",
            "train.pickle",
            pickle.dumps([print]),
            "cannot be read (UnpicklingError: it asks for b",
        ),
        (
            "zinc-subset",
            "val.pickle",
            pickle.dumps(Stored([print])),
            "or val.index cannot be read (UnpicklingError: a",
        ),
        ("zinc-subset", "train.index", b"0,8\n", "cannot be read (IndexError"),  # past the end
        ("zinc-subset", "train.index", b"0,2,5,71", "is cut short"),  # PyG would read 0, 2, 5, 7
    ],
)
def test_raw_file_of_wrong_contents_is_named(
    tiny_zinc: Write, name: str, file: str, content: bytes, said: str
) -> None:
    root = tiny_zinc()
    (root / "ZINC" / "raw" / file).write_bytes(content)
    assert f"{file} {said}" in failure(name, root)


@pytest.mark.parametrize("damage", ["truncated", "one bit", "removed", "stamp"])
def test_damaged_processed_file_is_made_again(
    tiny_zinc: Write, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tiny_zinc()
    before = load_dataset("zinc-subset", root)
    processed = root / "ZINC" / "subset" / "processed"
    victim = processed / ("source.json" if damage == "stamp" else "train.pt")
    content = bytearray(victim.read_bytes())
    if damage == "removed":
        victim.unlink()
    elif damage == "one bit":
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)
    else:
        victim.write_bytes(content[: len(content) // 2])
    capsys.readouterr()
    after = load_dataset("zinc-subset", root)
    why = "(again: its processed files are stale or damaged"
    assert f"Preparing zinc-subset from {root / 'ZINC' / 'raw'} {why}" in capsys.readouterr().err
    assert after.fingerprint == before.fingerprint
    assert [float(g.y) for g in after.train] == [float(g.y) for g in before.train]
    load_dataset("zinc-subset", root)
    assert capsys.readouterr().err == "", "prepared a third time"


def test_changed_raw_files_are_noticed(tiny_zinc: Write) -> None:
    root = tiny_zinc()
    before = load_dataset("zinc-subset", root)
    (root / "ZINC" / "raw" / "test.index").write_text("1\n")
    after = load_dataset("zinc-subset", root)
    assert [float(g.y) for g in after.test] == [0.5]
    assert after.fingerprint != before.fingerprint


def test_processed_files_of_other_origin_are_not_used(tiny_zinc: Write) -> None:
    root = tiny_zinc()

    def spoil(graph):  # type: ignore[no-untyped-def]
        graph.y = graph.y + 100
        return graph

    ZINC(str(root / "ZINC"), subset=True, pre_transform=spoil)
    assert float(load_dataset("zinc-subset", root).train[0].y) == 0.0


def test_fingerprint_does_not_depend_on_place_or_time(
    tiny_zinc: Write, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tiny_zinc()
    first = load_dataset("zinc-subset", root)
    moved = tmp_path_factory.mktemp("moved") / "root"
    shutil.copytree(root, moved, copy_function=shutil.copyfile)
    capsys.readouterr()
    second = load_dataset("zinc-subset", moved)
    assert second.fingerprint == first.fingerprint
    assert capsys.readouterr().err == "", "the copied processed files were not used"


def test_unchanged_raw_files_are_not_read_again(
    tiny_zinc: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tiny_zinc()
    load_dataset("zinc-subset", root)
    read = []

    def record(path: Path) -> str:
        read.append(path.suffix)
        return sha256(path)

    sha256 = sources.sha256_of
    monkeypatch.setattr(sources, "sha256_of", record)
    load_dataset("zinc-subset", root)
    assert set(read) == {".pt"}


def test_unwritable_folder_is_one_line(tiny_zinc: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tiny_zinc()

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryDirectory", refuse)
    message = failure("zinc-subset", root)
    assert "cannot be written (Permission denied" in message
    assert "Permission denied" in message


@pytest.mark.parametrize(
    ("atoms", "molecules", "subset", "said"),
    [
        (24, 10_000, True, "another draw"),
        (29, 10_000, True, ""),
        (24, 8, True, ""),
        (24, 220_010, False, "Of the 220,011 published training molecules 1 is missing"),
        (24, 220_011, False, ""),
    ],
)
def test_training_set_that_is_not_the_published_one_is_noted(
    atoms: int, molecules: int, subset: bool, said: str
) -> None:
    graph = Data(x=torch.zeros(atoms, 1))
    note = _note([graph] * molecules, subset)
    assert said in note
    assert bool(said) is bool(note)
