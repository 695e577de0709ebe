"""The real data against the numbers in its README, and its graphs against those of its SMILES."""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphormer_sepnorm.chem.features import get_featurizer
from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.datasets.catalog import load_dataset
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs


def statistics(graphs: Any, correction: int) -> list[float]:
    """Graphs, mean nodes and edges, mean and deviation of y.

    The README's deviations divide by n - 1 for the subset (correction 1), by n for the whole set.
    """
    of_all = PackedGraphs.concatenate([*graphs.packed()])
    sizes = [round(float(of.mean()), 3) for of in (of_all.num_atoms, of_all.num_bonds)]
    y = of_all.targets.astype(np.float64)
    return [len(graphs), *sizes, round(float(y.mean()), 4), round(float(y.std(ddof=correction)), 4)]


def expected(*numbers: float) -> Any:
    return pytest.approx(numbers, abs=1.01e-4)


def test_zinc_subset_statistics(zinc_subset: DatasetSplits) -> None:
    assert statistics(zinc_subset.train, 1) == expected(10_000, 23.145, 49.790, -0.0017, 2.0291)
    assert statistics(zinc_subset.validation, 1) == expected(1_000, 23.083, 49.692, 0.0315, 1.9856)
    assert statistics(zinc_subset.test, 1) == expected(1_000, 23.117, 49.720, 0.0124, 2.0180)
    assert "another draw" in zinc_subset.note


@pytest.mark.slow
def test_whole_zinc(real_data_root_full: Path, zinc_subset: DatasetSplits) -> None:
    zinc = load_dataset("zinc", real_data_root_full)
    assert statistics(zinc.train, 0) == expected(220_010, 23.155, 49.813, 0.0000, 2.0488)
    assert statistics(zinc.validation, 0) == expected(24_445, 23.131, 49.757, -0.0078, 2.0598)
    assert statistics(zinc.test, 0) == expected(5_000, 23.101, 49.660, 0.0345, 1.9879)
    everything = [PackedGraphs.concatenate([*part.packed()]) for part in zinc.parts.values()]
    sizes = [part.num_atoms for part in everything]
    assert [(int(s.min()), int(s.max())) for s in sizes] == [(6, 38), (6, 38), (8, 37)]
    # all 28 atom types occur in training, and the bond codes are 1 to 3
    assert np.unique(everything[0].atom_codes).tolist() == list(range(28))
    assert np.unique(everything[0].bond_codes).tolist() == [1, 2, 3]
    # the subset is these molecules, at the positions in the index files
    for part, name in (("train", "train"), ("validation", "val"), ("test", "test")):
        text = (real_data_root_full / "ZINC" / "raw" / f"{name}.index").read_text()
        for i, position in enumerate(list(map(int, text.split(",")))[:200]):
            mine, whole = zinc_subset.parts[part][i], zinc.parts[part][position]
            assert all(
                torch.equal(mine[k], whole[k]) for k in ("x", "edge_index", "edge_attr", "y")
            )


def test_molhiv_statistics(molhiv: DatasetSplits) -> None:
    counts = [len(part) for part in molhiv.parts.values()]
    assert counts == [32_901, 4_113, 4_113]
    everything = [PackedGraphs.concatenate([*part.packed()]) for part in molhiv.parts.values()]
    assert [int(part.targets.sum()) for part in everything] == [1_232, 81, 130]
    assert {*np.unique(everything[0].targets)} == {0.0, 1.0}
    atoms, bonds = (
        sum(int(getattr(part, name).sum()) for part in everything)
        for name in ("num_atoms", "num_bonds")
    )
    assert atoms / 41_127 == pytest.approx(25.51, abs=0.005)
    assert bonds / 2 / 41_127 == pytest.approx(27.47, abs=0.005)


def test_molhiv_files_are_read_as_ogb_reads_them(molhiv, real_data_root):
    from ogb.io.read_graph_raw import read_csv_graph_raw

    folder = real_data_root / "ogbg_molhiv"
    noise = io.StringIO()
    with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
        theirs = read_csv_graph_raw(str(folder / "raw"), add_inverse_edge=True)
    for name, file in (("train", "train"), ("validation", "valid"), ("test", "test")):
        path = folder / "split" / "scaffold" / f"{file}.csv.gz"
        positions = np.loadtxt(path, dtype=np.int64)
        for i in range(0, len(positions), 40):
            ours, ogbs = molhiv.parts[name][i], theirs[positions[i]]
            assert np.array_equal(ours.x, ogbs["node_feat"])
            assert np.array_equal(ours.edge_index, ogbs["edge_index"])
            assert np.array_equal(ours.edge_attr, ogbs["edge_feat"])


def test_features_from_smiles_are_the_stored_ones(molhiv):
    """Equal for 40,735 of 41,127 (99.0 %); the rest are mostly metal complexes and odd valences."""
    featurize = get_featurizer(molhiv.featurizer).featurize
    equal = total = 0
    for split, graphs in molhiv.parts.items():
        assert len(graphs) == len(molhiv.smiles[split])
        for number in range(0, len(graphs), 40):
            stored, parsed = graphs[number], parse_smiles(molhiv.smiles[split][number])
            total += 1
            if parsed.molecule is None:
                continue
            made = featurize(parsed.molecule)
            assert made.num_atoms == stored.num_nodes
            assert np.array_equal(made.atom_codes[:, 0], stored.x[:, 0])  # elements
            equal += (
                np.array_equal(made.atom_codes, stored.x)
                and np.array_equal(made.bond_codes, stored.edge_attr)
                and np.array_equal(made.edge_index, stored.edge_index)
            )
    assert total > 1000
    assert equal / total > 0.985
