"""The store on disk: built once, never used when stale or damaged, never left half written."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from reference.molecules import TIED, graph, molecule
from reference.structures import assert_same_stores

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs import packed_graphs
from graphormer_sepnorm.graphs import store as store_module
from graphormer_sepnorm.graphs.store import GraphStore

KEY = {"source": "abc", "features": "test-1"}


def graphs():
    return [molecule(smiles, y) for y, smiles in enumerate(("CCO", "N", TIED["caffeine"], "C.C"))]


def names_in(folder: Path) -> list[str]:
    """What lies in a folder, but for the lock that processes wait at."""
    return [path.name for path in folder.iterdir() if path.suffix != ".lock"]


def counted() -> Mock:
    """Gives the graphs and counts how often it was asked."""
    return Mock(side_effect=graphs)


def assert_is_rebuilt(directory: Path, key: dict = KEY, hops: int = 5) -> None:
    """Opening the store builds it anew, once, and whole."""
    build = counted()
    opened = GraphStore.open_or_build(directory, key, build, hops)
    assert build.call_count == 1
    assert_same_stores(opened, GraphStore.from_graphs(graphs(), hops))
    GraphStore.open_or_build(directory, key, build, hops)
    assert build.call_count == 1


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A complete store; the folder above it may not be there before the first build."""
    directory = tmp_path / "stores" / "test"
    GraphStore.open_or_build(directory, KEY, graphs, 5)
    return directory


def test_a_full_disk_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError("1000000 requested and 131056 written")  # as numpy says it, without a number

    monkeypatch.setattr(store_module.np, "save", full)
    with pytest.raises(DataError, match=r"\(No space left on device\): make room"):
        GraphStore.open_or_build(tmp_path / "store", KEY, graphs, 5)
    assert names_in(tmp_path) == []


def test_builds_once(tmp_path, caplog):
    build = counted()
    directory = tmp_path / "deep" / "below" / "store"
    with caplog.at_level(logging.WARNING):
        first = GraphStore.open_or_build(directory, KEY, build, 5)
        second = GraphStore.open_or_build(directory, KEY, build, 5)
    assert build.call_count == 1
    assert not caplog.records
    assert_same_stores(first, GraphStore.from_graphs(graphs(), 5))
    assert_same_stores(second, first)
    assert isinstance(second.pair_type, np.memmap)
    assert not second.pair_type.flags.writeable
    assert names_in(directory.parent) == ["store"]


@pytest.mark.parametrize("what", ["source", "another entry", "max_path_length", "code"])
def test_rebuilds_when_it_was_made_from_something_else(directory, what, monkeypatch, caplog):
    key, hops = dict(KEY), 5
    if what == "max_path_length":
        hops = 6
    elif what == "code":
        monkeypatch.setattr(store_module, "STRUCTURE_VERSION", 10**6)
    else:
        key[what] = "changed"
    (directory.parent / ".test.partial").mkdir()  # of a process that was killed
    assert_is_rebuilt(directory, key, hops)
    assert "built again" in caplog.text
    assert str(directory) in caplog.text
    assert names_in(directory.parent) == ["test"]


@pytest.mark.parametrize("array", ["pair_type", "targets", "bounds"])
@pytest.mark.parametrize("how", ["truncated", "removed", "flipped"])
def test_rebuilds_when_an_array_is_damaged(directory, array, how, caplog):
    path = directory / f"{array}.npy"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 0x80] * (how == "flipped")))
    if how == "removed":
        path.unlink()
    assert_is_rebuilt(directory)
    assert path.name in caplog.text


@pytest.mark.parametrize("content", [None, "", "{}", "\x00\xff", "[]", "one checksum missing"])
def test_rebuilds_when_the_record_is_damaged(directory, content):
    path = directory / "store.json"
    record = json.loads(path.read_text())
    if content is None:
        path.unlink()
    elif content == "one checksum missing":
        del record["checksums"]["pair_type"]
        path.write_text(json.dumps(record))
    else:
        path.write_bytes(content.encode("latin-1"))
    assert_is_rebuilt(directory)


@pytest.mark.parametrize("moment", ["reading", "writing"])
def test_an_exception_leaves_nothing_half_written(tmp_path, monkeypatch, moment):
    def failing():
        yield from graphs()
        if moment == "reading":
            raise KeyboardInterrupt

    if moment == "writing":
        save = np.save

        def failing_save(path, array):
            if Path(path).name == "targets.npy":
                raise KeyboardInterrupt
            save(path, array)

        monkeypatch.setattr(np, "save", failing_save)
    with pytest.raises(KeyboardInterrupt):
        GraphStore.open_or_build(tmp_path / "store", KEY, failing, 5)
    assert names_in(tmp_path) == []
    monkeypatch.undo()
    assert GraphStore.open_or_build(tmp_path / "store", KEY, graphs, 5).num_graphs == 4


def test_data_sets_with_empty_arrays(tmp_path):
    """No bonds, no targets: arrays without entries cannot be mapped from every kind of file."""
    lonely = [graph(1, []), graph(2, [])]
    for data in lonely:
        data.y = None
    first = GraphStore.open_or_build(tmp_path / "store", KEY, lambda: lonely, 5)
    second = GraphStore.open_or_build(tmp_path / "store", KEY, counted(), 5)
    assert_same_stores(first, second)
    assert second.targets.shape == (2, 0)


def test_selection_of_codes():
    store = GraphStore.from_graphs(graphs(), 5)
    given = graphs()
    assert store.are_connected([0, 1, 2])
    assert not store.are_connected([1, 3])  # the last one is of two pieces
    assert np.array_equal(store.num_atoms(np.array([2, 0])), [14, 3])
    codes = np.concatenate([given[2].x, given[0].x])
    assert np.array_equal(store.atom_codes_of([2, 0]), codes)
    for index, data in enumerate(given):
        own = {tuple(row) for row in data.edge_attr.tolist()}
        assert {tuple(row) for row in store.bond_codes_of([index]).tolist()} == own


@pytest.mark.parametrize("largest", [255, 256, 70_000, 2**40])
@pytest.mark.parametrize("smallest", [0, -1])
def test_codes_of_any_size_survive_narrow_storage(largest, smallest, monkeypatch):
    monkeypatch.setattr(packed_graphs, "_BLOCK_PAIRS", 1)
    one, other = graph(2, [(0, 1)]), graph(2, [(0, 1)])
    one.x[0, 0], other.x[1, 0] = largest, smallest
    store = GraphStore.from_graphs([one, other], 5)
    assert store.atom_codes[:, 0].tolist() == [largest, 0, 0, smallest]


def test_those_that_build_at_once_build_once(tmp_path):
    """Threads: each has a lock of its own on the file, as a process would."""
    build = counted()

    def opened(_: int) -> GraphStore:
        return GraphStore.open_or_build(tmp_path / "store", KEY, build, 5)

    with ThreadPoolExecutor(4) as pool:
        stores = [*pool.map(opened, range(4))]
    assert build.call_count == 1
    for store in stores:
        assert_same_stores(store, GraphStore.from_graphs(graphs(), 5))
    assert names_in(tmp_path) == ["store"]
