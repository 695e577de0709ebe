"""The molecules that are worked on: real ones where they are, otherwise the bundled sample."""

from __future__ import annotations

import csv
import gzip
import itertools
import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import REPOSITORY
from benchmarks.rows import Which

FEW, LARGE, LARGE_ATOMS, MANY = 512, 96, 52, 10_000
_ATOM = re.compile(r"\[[^\]]+\]|Br|Cl|[BCNOPSFIbcnops]")


@dataclass(frozen=True)
class Molecules:
    """SMILES and where they are from.

    Attributes:
        source: In words.
        usual: Of drug-like size, in random order.
        large: `LARGE` molecules of `LARGE_ATOMS` atoms, or the largest that there are below.
        connected: The same without salts and other molecules of several pieces.
    """

    source: str
    usual: list[str]
    large: list[str]
    connected: list[str]

    def write(self, folder: Path, which: Which, few: int = FEW, rows: int = MANY) -> dict[str, str]:
        """Write the molecules of a row and return the options that name the files.

        Args:
            folder: Where to.
            which: ``few``: the first `few` of the usual ones; ``many``: `rows` usual ones, from the
                beginning again where there are fewer; ``large``; ``connected``.
            few: See there.
            rows: See there.
        """
        chosen = {
            "few": lambda: self.usual[:few],
            "large": lambda: self.large,
            "connected": lambda: self.connected,
            "many": lambda: list(itertools.islice(itertools.cycle(self.usual), rows)),
        }[which]()
        text, table = folder / "molecules.smi", folder / "molecules.csv"
        text.write_text("\n".join(chosen), encoding="utf-8")
        table.write_text("\n".join(["smiles", *chosen, ""]), encoding="utf-8")
        return {"smiles": str(text), "table": str(table)}


def find_molecules() -> Molecules:
    """Return ZINC-subset and molecules of ogbg-molhiv from GRAPHORMER_DATA, or the sample."""
    setting = os.environ.get("GRAPHORMER_DATA")
    if not setting:
        smiles = list(_smiles(REPOSITORY / "data" / "sample.csv.gz"))
        return _molecules("the bundled sample (data/sample.csv.gz)", smiles, smiles)
    data = Path(setting).expanduser()
    usual = []
    for split in ("train", "val", "test"):
        index = (data / "zinc" / f"{split}.index").read_text().strip()
        places = {int(place) for place in index.split(",")}
        rows = enumerate(_smiles(data / "zinc" / f"{split}.csv.gz"))
        usual += [text for place, text in rows if place in places]
    random.Random(0).shuffle(usual)
    molhiv = list(_smiles(data / "ogbg_molhiv" / "mapping" / "mol.csv.gz"))
    return _molecules("ZINC-subset; large ones of ogbg-molhiv", usual, molhiv)


def heavy_atoms(smiles: str) -> int:
    """Count the atoms that a SMILES writes, hydrogens left out."""
    return sum(not re.match(r"\[\d*H[+\]]", atom) for atom in _ATOM.findall(smiles))


def _molecules(source: str, usual: list[str], others: list[str]) -> Molecules:
    # The sort keeps the order of equal sizes, which is that of the data set.
    fitting = [text for text in others if heavy_atoms(text) <= LARGE_ATOMS]
    by_size = sorted(fitting, key=heavy_atoms, reverse=True)
    connected = [text for text in by_size if "." not in text]
    return Molecules(source, usual, by_size[:LARGE], connected[:LARGE])


def _smiles(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", newline="", encoding="utf-8") as table:
        for row in csv.DictReader(table):
            yield row["smiles"]
