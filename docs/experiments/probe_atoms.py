"""Linear probes of frozen atoms: protocol "Atoms" of protocols.md.

    python docs/experiments/probe_atoms.py RUNS TABLES OUT.csv

RUNS/NAME/ARM/seed0 are the runs of P1, TABLES/NAME.csv their tables with the columns smiles and
split. Writes a row for each table, property and arm; `codes` is the probe on the atoms' codes.
"""

import csv
import sys
import warnings
from pathlib import Path

import numpy as np
from rdkit import Chem, RDLogger
from rdkit.Chem import AllChem, Lipinski
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from graphormer_sepnorm import Predictor
from graphormer_sepnorm.chem.features import OF_SMILES, get_featurizer
from graphormer_sepnorm.files import replacing

MOLECULES, RINGS = 400, range(3, 7)
ARMS = ("shared-ln", "shared-bn", "bn+ln", "ln+ln", "ln+bn", "bn+bn")


def properties(smiles: list[str]) -> dict[str, np.ndarray]:
    """Return charge, ring and role of each atom of molecules, one after the other."""
    found: dict[str, list[float]] = {"charge": [], "ring": [], "role": []}
    for text in smiles:
        molecule = Chem.MolFromSmiles(text)
        AllChem.ComputeGasteigerCharges(molecule)
        roles = np.zeros(molecule.GetNumAtoms(), int)
        for value, pattern in ((1, Lipinski.HDonorSmarts), (2, Lipinski.HAcceptorSmarts)):
            roles[[atom for (atom,) in molecule.GetSubstructMatches(pattern)]] += value
        rings = molecule.GetRingInfo()
        for atom in molecule.GetAtoms():
            size = rings.MinAtomRingSize(atom.GetIdx())
            found["charge"].append(atom.GetDoubleProp("_GasteigerCharge"))
            found["ring"].append(size if size in (0, *RINGS) else 7)
        found["role"] += roles.tolist()
    return {name: np.array(values) for name, values in found.items()}


def error(name: str, inputs: list[np.ndarray], labels: list[np.ndarray]) -> float:
    """Return the error on test atoms of a probe of training atoms; pairs of train and test."""
    if name == "charge":
        known = [np.isfinite(one) & (np.abs(one) < 10) for one in labels]
    else:
        known = [np.isin(one, labels[0]) for one in labels]
    (train, test), (taught, asked) = (
        [one[rows] for one, rows in zip(both, known, strict=True)] for both in (inputs, labels)
    )
    if name == "charge":
        left = asked - Ridge(1.0).fit(train, taught).predict(test)
        return float(np.mean(left**2) / np.var(asked))
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        probe = LogisticRegression(C=1.0, max_iter=500).fit(train, taught)
    return float(log_loss(asked, probe.predict_proba(test), labels=probe.classes_))


def main(runs: Path, tables: Path, out: Path) -> None:
    """Probe all networks."""
    RDLogger.DisableLog("rdApp.*")
    with replacing(out) as new, new.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("table", "property", "arm", "atoms", "error"))
        for table in sorted(tables.glob("*.csv")):
            with table.open(newline="", encoding="utf-8") as rows:
                given = [(row["smiles"], row["split"]) for row in csv.DictReader(rows)]
            halves = []
            for split in ("train", "test"):
                of_split = [smiles for smiles, own in given if own == split]
                chosen = np.random.default_rng(0).permutation(len(of_split))[:MOLECULES]
                halves.append([of_split[at] for at in chosen])
            embedded = {}
            for arm in ARMS:
                model = Predictor.load(runs / table.stem / arm / "seed0", "cpu")
                embedded[arm] = [model.embed(half, atoms=True) for half in halves]
            # Molecules that RDKit or a network cannot take are left out of all.
            fine = [
                [
                    not any(one[at].errors[row] for one in embedded.values())
                    for row in range(len(of))
                ]
                for at, of in enumerate(halves)
            ]
            halves = [
                [smiles for smiles, keep in zip(of, good, strict=True) if keep]
                for of, good in zip(halves, fine, strict=True)
            ]
            labels = [properties(of) for of in halves]
            make = get_featurizer(OF_SMILES)
            codes = []
            for of in halves:
                read = [make.prepare(Chem.MolFromSmiles(smiles)) for smiles in of]
                codes.append(
                    np.concatenate(
                        [make.featurize(one).atom_codes[make.atom_order(one)] for one in read]
                    )
                )
            spread = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(codes[0])
            inputs = {arm: [one.atoms for one in pair] for arm, pair in embedded.items()}
            inputs = {"codes": [spread.transform(one) for one in codes]} | inputs
            for arm, pair in inputs.items():
                scaler = StandardScaler().fit(pair[0])
                scaled = [scaler.transform(one) for one in pair]
                for name in labels[0]:
                    values = [one[name] for one in labels]
                    assert [len(one) for one in scaled] == [len(one) for one in values]
                    found = error(name, scaled, values)
                    writer.writerow((table.stem, name, arm, len(values[1]), f"{found:.6g}"))
            file.flush()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
