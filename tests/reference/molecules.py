"""Graphs for the tests: molecules by name, made by RDKit here and not by the package's code."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import torch
from rdkit import Chem
from torch_geometric.data import Data

from graphormer_sepnorm.resources import sample_path

# No pair of atoms of these has two shortest paths (rings are odd and not fused).
TIE_FREE = {
    "alanine": "CC(N)C(=O)O",
    "isobutane": "CC(C)C",
    "cyclopentane": "C1CCCC1",
    "thiophene": "c1ccsc1",
    "chloroform": "ClC(Cl)Cl",
    "cyclopropyl methyl sulfone": "CS(=O)(=O)C1CC1",
}
# Pairs with several shortest paths: even rings, fused rings, cages.
TIED = {
    "benzene": "c1ccccc1",
    "pyridine": "c1ccncc1",
    "naphthalene": "c1ccc2ccccc2c1",
    "caffeine": "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "cubane": "C12C3C4C1C5C2C3C45",
    "adamantane": "C1C2CC3CC1CC(C2)C3",
}

# Buckminsterfullerene, all of its atoms alike.
C60 = (
    "C12=C3C4=C5C6=C1C7=C8C9=C1C%10=C%11C(=C29)C3=C2C3=C4C4=C5C5=C9C6=C7C6=C7C8=C1C1=C8C%10=C%10"
    "C%11=C2C2=C3C3=C4C4=C5C5=C%11C%12=C(C6=C95)C7=C1C1=C%12C5=C%11C4=C3C3=C5C(=C81)C%10=C23"
)


def spellings(smiles: str, count: int) -> list[str]:
    """Other SMILES of the same molecule, its atoms in any order."""
    return [*Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(smiles), count, randomSeed=1)]


def molecule(smiles: str, y: float = 0.0) -> Data:
    """Two atom features (element, hydrogens), two bond features (Kekulé order, ring)."""
    mol = Chem.MolFromSmiles(smiles)
    Chem.Kekulize(mol)
    x = [[atom.GetAtomicNum(), atom.GetTotalNumHs()] for atom in mol.GetAtoms()]
    edges, codes = [], []
    for bond in mol.GetBonds():
        ends = (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
        code = [int(bond.GetBondTypeAsDouble()), int(bond.IsInRing())]
        edges += [ends, ends[::-1]]
        codes += [code, code]
    return Data(
        x=torch.tensor(x),
        edge_index=torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T.contiguous(),
        edge_attr=torch.tensor(codes, dtype=torch.long).reshape(-1, 2),
        y=torch.tensor([y]),
    )


def graph(
    num_atoms: int, bonds: Sequence[tuple[int, int]], codes: Sequence[int] | None = None
) -> Data:
    """A graph of undirected bonds, with one atom feature (0) and one bond feature."""
    codes = [0] * len(bonds) if codes is None else codes
    edges = [pair for i, j in bonds for pair in ((i, j), (j, i))]
    return directed_graph(num_atoms, edges, [code for code in codes for _ in range(2)])


def directed_graph(
    num_atoms: int, edges: Sequence[tuple[int, int]], codes: Sequence[int] | None = None
) -> Data:
    """A graph of directed bonds, with one atom feature (0) and one bond feature."""
    codes = [0] * len(edges) if codes is None else codes
    return Data(
        x=torch.zeros(num_atoms, 1, dtype=torch.long),
        edge_index=torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T.contiguous(),
        edge_attr=torch.tensor(codes, dtype=torch.long).reshape(-1, 1),
        y=torch.zeros(1),
    )


def renumbered(data: Data, order: torch.Tensor) -> Data:
    """The same graph with atom ``order[i]`` standing at place i."""
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    return Data(
        x=data.x[order], edge_index=place[data.edge_index], edge_attr=data.edge_attr, y=data.y
    )


def shuffled_bonds(data: Data, order: torch.Tensor) -> Data:
    """The same graph with its directed bonds listed in another order."""
    return Data(
        x=data.x, edge_index=data.edge_index[:, order], edge_attr=data.edge_attr[order], y=data.y
    )


def sample_rows(count: int | None = None) -> list[list[str]]:
    """SMILES and labels of the first molecules of the bundled sample."""
    lines = gzip.decompress(sample_path().read_bytes()).decode().splitlines()
    return [line.split(",") for line in lines[1:][:count]]


def zinc_validation(root: Path, number: int) -> list[Data]:
    """The first molecules of the validation split of ZINC-subset."""
    from graphormer_sepnorm.datasets.catalog import load_dataset

    split = load_dataset("zinc-subset", root).validation
    return [split[i] for i in range(number)]
