"""The molecules that are worked on: real ones where they are, otherwise the bundled sample."""

from __future__ import annotations

import csv
import gzip
import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import REPOSITORY

FEW, MANY = 512, 10_000


@dataclass(frozen=True)
class Molecules:
    """SMILES of drug-like size, in random order, and where they are from, in words."""

    source: str
    smiles: list[str]

    def write(self, folder: Path, count: int) -> dict[str, str]:
        """Write so many, from the beginning again where there are fewer; return the options."""
        chosen = list(itertools.islice(itertools.cycle(self.smiles), count))
        text, table = folder / "molecules.smi", folder / "molecules.csv"
        text.write_text("\n".join(chosen), encoding="utf-8")
        table.write_text("\n".join(["smiles", *chosen, ""]), encoding="utf-8")
        return {"smiles": str(text), "table": str(table)}


def find_molecules() -> Molecules:
    """Return those of ZINC-subset from GRAPHORMER_DATA, or the sample."""
    if not (setting := os.environ.get("GRAPHORMER_DATA")):
        smiles = list(_smiles(REPOSITORY / "data" / "sample.csv.gz"))
        return Molecules("the bundled sample (data/sample.csv.gz)", smiles)
    data = Path(setting).expanduser() / "zinc"
    smiles = []
    for split in ("train", "val", "test"):
        indices = {int(one) for one in (data / f"{split}.index").read_text().strip().split(",")}
        rows = enumerate(_smiles(data / f"{split}.csv.gz"))
        smiles += [text for index, text in rows if index in indices]
    random.Random(0).shuffle(smiles)
    return Molecules("ZINC-subset", smiles)


def _smiles(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", newline="", encoding="utf-8") as table:
        for row in csv.DictReader(table):
            yield row["smiles"]
