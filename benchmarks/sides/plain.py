"""What the others are measured by: torch's own matrix product and import, RDKit's own parsing."""

from __future__ import annotations

import sys

import torch
from rdkit import Chem

from benchmarks.sides.protocol import Options, Work, read_smiles, serve

MATRIX = 2048


def matrix_product(options: Options) -> Work:
    """A large float32 matrix product: what the arithmetic units of this machine reach."""
    left, right = torch.randn(MATRIX, MATRIX), torch.randn(MATRIX, MATRIX)
    return Work(lambda: left @ right, facts={"flops": 2 * MATRIX**3})


def parse(options: Options) -> Work:
    """SMILES to sanitised molecules, and nothing else."""
    smiles = read_smiles(options)
    return Work(
        lambda: [Chem.MolFromSmiles(text) for text in smiles], facts={"molecules": len(smiles)}
    )


def import_torch(options: Options) -> Work:
    """A process that imports torch and ends."""
    return Work(command=[sys.executable, "-c", "import torch"])


if __name__ == "__main__":
    serve({work.__name__: work for work in (matrix_product, parse, import_torch)})
