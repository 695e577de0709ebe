"""Lists molecules to pre-train on: ZINC's and ogbg-molhiv's training and validation molecules.

    python data/make_pretraining_molecules.py molecules.smi --zinc TRAIN VALID --root DIR

PyG's ZINC has graphs and no SMILES. TRAIN and VALID are the SMILES that these were made from, those
of the junction tree VAE (Jin et al. 2018, ``data/zinc/train.txt`` and ``valid.txt`` of its
repository): one on each line, or a table with a column of them. DIR is a data root, where
ogbg-molhiv is looked for, and downloaded to if it is not there. No test molecule of either is
taken.

    python data/make_pretraining_molecules.py molecules.smi --zinc TRAIN VALID --root DIR \
        --more OTHERS --without TEST

adds molecules of other files, and with either option lists each molecule once, by its canonical
SMILES. Those that are a test molecule of ogbg-molhiv or in the file TEST, that of ZINC, but for
stereochemistry, are left out.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from rdkit import Chem

from graphormer_sepnorm.chem.molecules import is_smiles, parse_smiles
from graphormer_sepnorm.datasets.catalog import load_dataset
from graphormer_sepnorm.errors import GraphormerError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.tables.columns import find_smiles_column
from graphormer_sepnorm.tables.opening import open_table


def listed(files: list[Path]) -> Iterator[str]:
    """Yield the SMILES of files, in their order.

    Raises:
        GraphormerError: It cannot be read, or has no SMILES.
    """
    for file in files:
        with open_table(file) as reader:
            column = find_smiles_column(reader.columns, None, reader.name, is_molecule=is_smiles)
            rows = (row for row in reader if not row.problem and row.cells[column])
            yield from (str(row.cells[column]) for row in rows)


def once(smiles: list[str], without: list[str]) -> list[str]:
    """Return canonical SMILES, each once, but not those that `without` has, stereo aside."""
    forbidden = {flat for _, flat in map(_canonical, without)}
    found = dict(map(_canonical, smiles))
    return [one for one, flat in found.items() if one and flat not in forbidden]


def _canonical(smiles: str) -> tuple[str, str]:
    """Return canonical SMILES, with stereo and without; empty where it cannot be read."""
    molecule = parse_smiles(smiles).molecule
    if molecule is None:
        return "", ""
    return Chem.MolToSmiles(molecule), Chem.MolToSmiles(molecule, isomericSmiles=False)


def main(arguments: list[str]) -> None:
    """Write the list and say how long it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="the file to write: a SMILES on each line")
    parser.add_argument("--zinc", type=Path, nargs="+", required=True, help="ZINC's SMILES")
    parser.add_argument("--root", type=Path, required=True, help="data root with ogbg-molhiv")
    parser.add_argument("--more", type=Path, nargs="+", default=[], help="further molecules")
    parser.add_argument("--without", type=Path, nargs="+", default=[], help="ZINC's test SMILES")
    parser.add_argument("--draw", type=int, help="only so many, at random, always the same ones")
    options = parser.parse_args(arguments)
    if options.draw is not None and options.draw < 1:
        parser.error(f"--draw is {options.draw}: it must be 1 or more")
    try:
        molhiv = load_dataset("ogbg-molhiv", options.root).smiles
        assert molhiv is not None
        smiles = [*listed(options.zinc), *molhiv["train"], *molhiv["validation"]]
        smiles += listed(options.more)
        if options.more or options.without:
            smiles = once(smiles, [*molhiv["test"], *listed(options.without)])
        if options.draw is not None and options.draw < len(smiles):
            smiles = random.Random(0).sample(smiles, options.draw)
        with replacing(options.output) as partial:
            partial.write_text("".join(f"{one}\n" for one in smiles), encoding="utf-8")
    except (GraphormerError, OSError) as error:
        raise SystemExit(f"{Path(__file__).name}: {error}") from error
    print(f"{options.output}: {len(smiles):,} molecules")


if __name__ == "__main__":
    main(sys.argv[1:])
