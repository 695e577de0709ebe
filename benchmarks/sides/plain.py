"""What the others are measured by: torch's own matrix product and import, RDKit's own parsing."""

from __future__ import annotations

import sys
import time

import torch
from rdkit import Chem

from benchmarks.sides.protocol import Options, Work, read_smiles, serve

MATRIX = 2048


def matrix_product(options: Options) -> Work:
    """A large float32 matrix product: what the arithmetic units of this machine reach.

    By MKL or by oneDNN, whichever is faster: on an AMD oneDNN is, twofold. torch takes it for
    float32 where the precision "medium" is allowed, which stays float32 on processors without
    matrix units for bfloat16.
    """
    left, right = torch.randn(MATRIX, MATRIX), torch.randn(MATRIX, MATRIX)

    def seconds(precision: str) -> float:
        torch.set_float32_matmul_precision(precision)
        product = left @ right
        start = time.perf_counter()
        torch.matmul(left, right, out=product)
        return time.perf_counter() - start

    exact = left.double() @ right.double()
    torch.set_float32_matmul_precision("medium")
    is_float32 = bool((left @ right - exact).norm() < 1e-5 * exact.norm())
    choices = ("highest", "medium") if is_float32 else ("highest",)
    torch.set_float32_matmul_precision(min(choices, key=seconds))
    return Work(lambda: left @ right, facts={"flops": 2 * MATRIX**3})


def parse(options: Options) -> Work:
    """SMILES to sanitised molecules, and nothing else."""
    smiles = read_smiles(options)

    def run() -> None:
        # Each is freed before the next one is made: held alive, they would be slower to make.
        for text in smiles:
            Chem.MolFromSmiles(text)

    return Work(run, facts={"molecules": len(smiles)})


def import_torch(options: Options) -> Work:
    """A process that imports torch and ends."""
    return Work(command=[sys.executable, "-c", "import torch"])


if __name__ == "__main__":
    serve(matrix_product, parse, import_torch)
