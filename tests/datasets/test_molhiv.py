"""ogbg-molhiv from made-up raw files."""

from pathlib import Path

import pytest
import torch
from tiny_raw_files import failure, write_gz

from graphormer_sepnorm.datasets import molhiv
from graphormer_sepnorm.datasets.catalog import load_dataset
from graphormer_sepnorm.datasets.molhiv import RAW_FILES, URL
from graphormer_sepnorm.files import sha256_of


def test_graphs_labels_and_smiles_follow_the_split(tiny_molhiv: Path) -> None:
    splits = load_dataset("ogbg-molhiv", tiny_molhiv)
    assert [*splits.smiles.values()] == [["C1CC1", "CCO", "CC.NN"], ["N"], ["CF"]]
    triangle, chain, fragments = splits.train
    assert triangle.edge_index.tolist() == [[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]]
    assert chain.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert torch.equal(chain.edge_attr[0::2], chain.edge_attr[1::2])
    assert fragments.edge_index.tolist() == [[0, 1, 2, 3], [1, 0, 3, 2]]
    (single,) = splits.validation
    assert single.x.shape == (1, 9)
    assert single.edge_index.shape == (2, 0)
    assert single.edge_attr.shape == (0, 3)
    assert single.y.tolist() == [1.0]
    assert (splits.task.kind, splits.task.metric) == ("binary", "auroc")


def test_archive_is_unpacked_in_place(tiny_molhiv: Path, tmp_path_factory, monkeypatch) -> None:
    import shutil

    bundle = tmp_path_factory.mktemp("served")
    shutil.copytree(tiny_molhiv / "ogbg_molhiv", bundle / "content" / "hiv")
    archive = shutil.make_archive(str(bundle / "hiv"), "zip", bundle / "content")

    def download_url(url: str, folder: str, log: bool = True) -> str:
        assert url == URL
        assert url.startswith("https://")
        return shutil.copy(archive, folder)

    monkeypatch.setattr("graphormer_sepnorm.datasets.molhiv.download_url", download_url)
    root = tmp_path_factory.mktemp("root")
    assert "raw/edge.csv.gz, raw/graph-label.csv.gz" in failure("ogbg-molhiv", root)
    for name in molhiv.PUBLISHED:
        monkeypatch.setitem(molhiv.PUBLISHED, name, sha256_of(bundle / "content" / "hiv" / name))
    assert len(load_dataset("ogbg-molhiv", root).train) == 3
    assert all((root / "ogbg_molhiv" / name).is_file() for name in RAW_FILES)


@pytest.mark.parametrize("name", RAW_FILES)
def test_truncated_raw_file_is_named(tiny_molhiv: Path, name: str) -> None:
    path = tiny_molhiv / "ogbg_molhiv" / name
    path.write_bytes(path.read_bytes()[:-9])
    assert f"{path} cannot be read (EOFError" in failure("ogbg-molhiv", tiny_molhiv)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("raw/edge.csv.gz", "0,1\n1,2\n0,1\n2,3\n0,1\n0,1\n1,2\n2,x", "cannot be read (ValueError"),
        ("raw/edge.csv.gz", "0,1\n1,3\n0,1\n2,3\n0,1\n0,1\n1,2\n2,0", "do not fit together"),
        ("raw/edge.csv.gz", "0,1\n1,2", "do not fit together"),
        ("raw/node-feat.csv.gz", "0,1\n1,2", "2 columns instead of 9"),
        ("raw/graph-label.csv.gz", "0\n1", "do not fit together"),
        ("split/scaffold/test.csv.gz", "4", "do not hold each of the 5 molecules of"),
        ("mapping/mol.csv.gz", "HIV_active,smiles,mol_id\n0,CCO,", "of the 1 molecules of"),
    ],
)
def test_contents_that_do_not_fit(tiny_molhiv: Path, name: str, text: str, expected: str) -> None:
    write_gz(tiny_molhiv / "ogbg_molhiv" / name, text)
    assert expected in failure("ogbg-molhiv", tiny_molhiv)
