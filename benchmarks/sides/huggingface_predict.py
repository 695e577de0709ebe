"""The plain loop with which one predicts with Hugging Face's Graphormer: CSV in, CSV out.

python -m benchmarks.sides.huggingface_predict IN.csv OUT.csv MAX_PATH_LENGTH
"""

from __future__ import annotations

import csv
import sys

import torch

from benchmarks.sides.huggingface import (
    ATOM_COLUMNS,
    BOND_COLUMNS,
    ROWS_PER_COLUMN,
    collate_smiles,
    slim,
)
from benchmarks.sides.protocol import in_batches

BATCH_SIZE = 128


@torch.inference_mode()
def main(source: str, destination: str, max_path_length: str) -> None:
    """Predict the column ``smiles`` with an untrained slim model."""
    atom_rows, bond_rows = ROWS_PER_COLUMN * ATOM_COLUMNS, ROWS_PER_COLUMN * BOND_COLUMNS
    model = slim({"max_path_length": int(max_path_length)}, atom_rows, bond_rows).eval()
    with open(source, newline="", encoding="utf-8") as table:
        smiles = [row["smiles"] for row in csv.DictReader(table)]
    with open(destination, "w", newline="", encoding="utf-8") as output:
        writer = csv.writer(output)
        writer.writerow(["smiles", "prediction"])
        for texts in in_batches(smiles, BATCH_SIZE):
            batch = collate_smiles(texts)
            del batch["labels"]
            values = model(**batch).logits[:, 0].tolist()
            writer.writerows(zip(texts, values, strict=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
