"""What exchanging one part of a molecule does to its prediction: the matched pairs of a series.

    python examples/matched_pairs.py esol TABLE.csv [LABEL]

TABLE.csv has a column `smiles`, LABEL is one of measured values. Matched pairs differ in one part
at one place (Hussain and Rea 2010), at most 13 heavy atoms and fewer than the core. Their changes
are written to pairs.csv, and the mean of the most frequent exchanges is printed.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pandas
from rdkit import Chem
from rdkit.Chem import rdMMPA

from graphormer_sepnorm import Predictor

HYDROGEN, MOST_ATOMS = "[H][*:1]", 13


def _heavy_atoms(part: str) -> int:
    return Chem.MolFromSmiles(part, sanitize=False).GetNumHeavyAtoms()


def cuts(smiles: str) -> Iterator[tuple[str, str]]:
    """Yield core and part for each bond that is cut."""
    molecule = Chem.MolFromSmiles(smiles)
    for _, both in rdMMPA.FragmentMol(molecule, maxCuts=1, maxCutBonds=200, resultsAsMols=False):
        part, *cores = sorted(both.split("."), key=_heavy_atoms)  # a salt gives three
        if len(cores) == 1 and _heavy_atoms(part) < min(_heavy_atoms(cores[0]), MOST_ATOMS + 1):
            yield cores[0], part


def matched_pairs(smiles: list[str]) -> Iterator[tuple[int, int, str, str, str]]:
    """Yield both molecules' numbers, the core, and the part of each, the smaller one first."""
    numbers = {Chem.CanonSmiles(text): number for number, text in enumerate(smiles)}
    parts: dict[str, dict[str, int]] = defaultdict(dict)
    for text, number in numbers.items():
        for core, part in cuts(text):
            parts[core][part] = number
    for core, of_core in parts.items():
        whole = Chem.MolFromSmiles(core.replace("[*:1]", "[H]"))
        if whole is not None and (text := Chem.MolToSmiles(whole)) in numbers:
            of_core[HYDROGEN] = numbers[text]
    known = set()  # molecules may match in several ways: the largest core comes first
    for core in sorted(parts, key=_heavy_atoms, reverse=True):
        ordered = sorted(parts[core].items(), key=lambda one: (_heavy_atoms(one[0]), one[0]))
        for (part, first), (other, second) in combinations(ordered, 2):
            if first != second and (pair := frozenset((first, second))) not in known:
                known.add(pair)
                yield first, second, core, part, other


def main(model: str, table: str, label: str | None = None) -> None:
    """Predict a table, write its pairs, and print the exchanges that most of them have."""
    rows = pandas.read_csv(table)
    said = Predictor.load(model).predict(rows["smiles"].fillna("").tolist())
    good = [number for number, error in enumerate(said.errors) if not error]
    values = {"predicted": said.values[good, 0]}
    if label:
        values[label] = rows[label].to_numpy(float)[good]
    exchanges = defaultdict(list)
    with open("pairs.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles_1", "smiles_2", "core", "part_1", "part_2", *values])
        for first, second, *parts in matched_pairs([said.smiles[number] for number in good]):
            change = [of[second] - of[first] for of in values.values()]
            exchanges[f"{parts[1]} to {parts[2]}"].append(change)
            writer.writerow([*(said.smiles[good[end]] for end in (first, second)), *parts, *change])
    for name, changes in sorted(exchanges.items(), key=lambda one: -len(one[1]))[:10]:
        print(f"{name}  {len(changes):,} pairs", *values, np.nanmean(changes, axis=0).round(3))


if __name__ == "__main__":
    main(*sys.argv[1:])
