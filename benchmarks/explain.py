"""How well explanations find what is true of a molecule, where that is known.

python -m benchmarks.explain --data-root DIR [--molecules N] [--epochs N] [--norms ...]

Small networks learn Crippen's logP of ZINC-subset's training molecules (downloaded if DIR
lacks it). This logP is a sum over atoms, so it is known what each contributes: what explanations
say of test molecules is compared with that, for atoms and summed over fragments. Prints two tables
in Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from rdkit import Chem
from rdkit.Chem import rdMolDescriptors
from scipy.stats import spearmanr

from benchmarks.report import table
from graphormer_sepnorm.chem.fragments import fragments_of
from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.chem.zinc_features import ZINC_1
from graphormer_sepnorm.datasets.zinc import load_zinc
from graphormer_sepnorm.estimators import GraphormerRegressor
from graphormer_sepnorm.graphs.packed_graphs import checked_graph
from graphormer_sepnorm.inference.explain import METHODS
from graphormer_sepnorm.inference.predictor import Predictor

NORMS = ("shared-ln", "bn+ln", "bn+bn")
ELEMENT = "the element alone"


def main(argv: Sequence[str] | None = None) -> None:
    """Train, explain, compare, and print the tables."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.explain",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data-root", type=Path, required=True, help="folder with ZINC")
    parser.add_argument("--molecules", type=int, default=500, help="test molecules (500)")
    parser.add_argument("--training", type=int, help="training molecules (all 10,000)")
    parser.add_argument("--epochs", type=int, default=15, help="of training (15)")
    parser.add_argument("--seed", type=int, default=0, help="of the training (0)")
    parser.add_argument("--norms", nargs="+", default=NORMS)
    options = parser.parse_args(argv)

    splits = load_zinc(options.data_root, subset=True)
    training = smiles_of(splits.train, options.training)
    test = smiles_of(splits.test, options.molecules)
    molecules = [molecule_of(text) for text in test]
    truth = [crippen_contributions(molecule) for molecule in molecules]
    by_element = mean_by_element(training)
    elements = [
        np.array([by_element.get(a.GetAtomicNum(), 0.0) for a in m.GetAtoms()]) for m in molecules
    ]
    logp = np.array([one.sum() for one in truth])
    rows = {name: ([name], [name]) for name in [*METHODS, ELEMENT]}  # of atoms, of fragments
    for norm in options.norms:
        predictor = trained(norm, options.seed, training, options.epochs)
        predicted = predictor.predict(test).values[:, 0]
        error = ((predicted - logp) ** 2).sum() / ((logp - logp.mean()) ** 2).sum()
        print(f"{norm}: R2 {1 - error:.4f}, MAE {abs(predicted - logp).mean():.3f}", flush=True)
        for name, (of_atoms, of_fragments) in rows.items():
            found = elements
            if name in METHODS:
                explained = predictor.explain(test, method=name).molecules
                found = [one.contributions for one in explained]
            of_atoms.append(mean_and_interval(rank_correlations(found, truth)))
            sums = [fragment_sums(molecules, each) for each in (found, truth)]
            of_fragments.append(mean_and_interval(rank_correlations(*sums)))
    of_atoms, of_fragments = zip(*rows.values(), strict=True)
    print(f"\nSpearman's rank correlation with the truth, {len(test)} molecules\n")
    print(table(["method", *options.norms], of_atoms))
    print("\nThe same of fragments, molecules of three and more\n")
    print(table(["method", *options.norms], of_fragments))


def smiles_of(graphs: Iterable, count: int | None) -> list[str]:
    """Return SMILES of the first `count` graphs of ZINC, without stereochemistry."""
    back = ZINC_1.smiles_of
    assert back is not None
    found = [back(checked_graph(graph, "a graph of ZINC")[0]) for graph in islice(graphs, count)]
    return [text for text in found if text]


def molecule_of(smiles: str) -> Chem.Mol:
    """Return a molecule as a predictor reads it."""
    molecule = parse_smiles(smiles).molecule
    assert molecule is not None
    return molecule


def crippen_contributions(molecule: Chem.Mol) -> np.ndarray:
    """Return what each heavy atom with its hydrogens contributes to Crippen's logP, ``[atoms]``.

    Wildman and Crippen 1999 (J. Chem. Inf. Comput. Sci. 39, 868). The sum is RDKit's MolLogP.
    """
    with_hydrogens = Chem.AddHs(molecule)
    logp = [one for one, _ in rdMolDescriptors._CalcCrippenContribs(with_hydrogens)]
    heavy = molecule.GetNumAtoms()
    contributions = np.array(logp[:heavy])
    for hydrogen in range(heavy, len(logp)):
        [neighbour] = with_hydrogens.GetAtomWithIdx(hydrogen).GetNeighbors()
        contributions[neighbour.GetIdx()] += logp[hydrogen]
    return contributions


def fragment_sums(molecules: list[Chem.Mol], values: list[np.ndarray]) -> list[np.ndarray]:
    """Return the sums over the fragments of each molecule that has three of them or more."""
    return [
        np.array([own[list(atoms)].sum() for atoms in fragments])
        for own, fragments in zip(values, map(fragments_of, molecules), strict=True)
        if len(fragments) >= 3
    ]


def mean_by_element(smiles: Iterable[str]) -> dict[int, float]:
    """Return the mean contribution of the atoms of each element, by its number."""
    found: dict[int, list[float]] = {}
    for molecule in map(molecule_of, smiles):
        for atom, value in zip(molecule.GetAtoms(), crippen_contributions(molecule), strict=True):
            found.setdefault(atom.GetAtomicNum(), []).append(value)
    return {element: float(np.mean(values)) for element, values in found.items()}


def trained(norm: str, seed: int, smiles: list[str], epochs: int) -> Predictor:
    """Return a network that has learned logP."""
    logp = [crippen_contributions(molecule_of(text)).sum() for text in smiles]
    model = GraphormerRegressor("quickstart", norm=norm, max_epochs=epochs, seed=seed, device="cpu")
    return model.fit(smiles, logp)._predictor()


def rank_correlations(found: list[np.ndarray], truth: list[np.ndarray]) -> np.ndarray:
    """Return Spearman's correlation over the atoms of each molecule; 0: all are found equal."""
    each = [
        0.0 if np.ptp(one) == 0 else spearmanr(one, true)[0]
        for one, true in zip(found, truth, strict=True)
        if np.ptp(true) > 0
    ]
    return np.array(each)


def mean_and_interval(values: np.ndarray) -> str:
    """Return the mean over molecules and half its 95 % interval."""
    return f"{values.mean():.3f} ± {1.96 * values.std(ddof=1) / np.sqrt(len(values)):.3f}"


if __name__ == "__main__":
    main()
