"""How well explanations find what is true of a molecule, where that is known.

python -m benchmarks.explain --data-root DIR [--molecules N] [--epochs N] [--norms ...]
python -m benchmarks.explain --data-root DIR --rings

Small networks learn Crippen's logP of ZINC-subset's training molecules (downloaded if DIR
lacks it). This logP is a sum over atoms, so it is known what each contributes: what explanations
say of test molecules is compared with that, for atoms and summed over fragments. Prints three
tables in Markdown.

With --rings it is the bundled model zinc that is explained, whose label takes 3.5 off for each atom
by which a ring is larger than six: do the atoms of such a ring stand out?
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from rdkit import Chem
from rdkit.Chem import rdMolDescriptors
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from benchmarks.markdown import table
from graphormer_sepnorm.chem.fragments import fragments_of
from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.chem.penalised_logp import penalised_logp
from graphormer_sepnorm.chem.zinc_features import ZINC_1
from graphormer_sepnorm.datasets.zinc import load_zinc
from graphormer_sepnorm.estimators import GraphormerRegressor
from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.graphs.packed_graphs import checked_graph
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.inference.explanation_methods import METHODS, Subject
from graphormer_sepnorm.inference.predictor import Predictor

NORMS = ("shared-ln", "bn+ln", "bn+bn")
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the atoms that are masked
TRUTH, ELEMENT = "the truth", "the element alone"
FREE = 6  # atoms of a ring that costs nothing


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
    parser.add_argument("--models", type=Path, help="folder that keeps the networks, or has them")
    parser.add_argument("--rings", action="store_true", help="judge the cost of large rings")
    options = parser.parse_args(argv)

    splits = load_zinc(options.data_root, subset=True)
    if options.rings:
        judge_rings(Predictor.load("zinc", "cpu"), smiles_of(splits.test, None), options.molecules)
        return
    training = smiles_of(splits.train, options.training)
    test = smiles_of(splits.test, options.molecules)
    molecules = [molecule_of(text) for text in test]
    truth = [crippen_contributions(molecule) for molecule in molecules]
    by_element = mean_by_element(training)
    others = {
        ELEMENT: [
            np.array([by_element.get(a.GetAtomicNum(), 0.0) for a in m.GetAtoms()])
            for m in molecules
        ],
        TRUTH: truth,
    }
    logp = np.array([one.sum() for one in truth])
    ranks: dict[str, list[str]] = {name: [] for name in [*METHODS, ELEMENT]}
    of_fragments: dict[str, list[str]] = {name: [] for name in ranks}
    areas: dict[str, list[str]] = {name: [] for name in [*METHODS, ELEMENT, TRUTH]}
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    for norm in options.norms:
        predictor = trained(norm, options.seed, training, options.epochs, options.models)
        explanations = []
        found = dict(others)
        for method in METHODS:
            started = time.perf_counter()
            explanations = predictor.explain(test, method=method).molecules
            seconds[method].append(1e3 * (time.perf_counter() - started) / len(test))
            found[method] = [one.contributions for one in explanations]
        predicted = np.array([one.prediction for one in explanations])
        error = ((predicted - logp) ** 2).sum() / ((logp - logp.mean()) ** 2).sum()
        print(f"{norm}: R2 {1 - error:.4f}, MAE {abs(predicted - logp).mean():.3f}", flush=True)
        for name in ranks:
            ranks[name].append(mean_and_interval(rank_correlations(found[name], truth)))
            sums = [fragment_sums(molecules, each) for each in (found[name], truth)]
            of_fragments[name].append(mean_and_interval(rank_correlations(*sums)))
            print(f"  {name}: {ranks[name][-1]}", file=sys.stderr, flush=True)
        for name in areas:
            areas[name].append(mean_and_interval(deletion_areas(predictor, test, found[name])))
    print(f"\nSpearman's rank correlation with the truth, {len(test)} molecules\n")
    print(table(["method", *options.norms, "ms a molecule"], named(ranks, seconds)))
    print("\nThe same of fragments, molecules of three and more\n")
    print(table(["method", *options.norms], named(of_fragments)))
    print("\nArea between the deletion curves, in logP\n")
    print(table(["method", *options.norms], named(areas)))


def judge_rings(predictor: Predictor, smiles: list[str], most: int) -> None:
    """Print what each method says of molecules with a large ring, beside as many without one."""
    large = [text for text in smiles if large_ring(molecule_of(text))][:most]
    others = [text for text in smiles if text not in set(large)][:most]
    molecules = [molecule_of(text) for text in large]
    rows = []
    for method in METHODS:
        cells = [method]
        for texts in (large, others):
            found = predictor.explain(texts, method=method).molecules
            label = np.mean([penalised_logp(molecule_of(text)) for text in texts])
            parts = ([one.baseline for one in found], [one.contributions.sum() for one in found])
            if texts is large:
                areas = ring_areas([one.contributions for one in found], molecules)
                cells.append(mean_and_interval(areas))
            cells += [
                f"{np.mean(part):.2f}" for part in ([one.prediction for one in found], *parts)
            ]
            cells[-3] += f" ({label:.2f})"
        rows.append(cells)
    what = ["prediction (label)", "baseline", "sum of contributions"]
    print(f"{len(large)} test molecules with a ring of more than {FREE}, {len(others)} without\n")
    print(
        table(
            ["method", "ROC-AUC of the ring's atoms", *what, *(f"without: {n}" for n in what)], rows
        )
    )


def large_ring(molecule: Chem.Mol) -> list[int]:
    """Return the atoms of the largest ring of more than six; empty where there is none."""
    information = molecule.GetRingInfo()
    largest = max(information.AtomRings(), key=len, default=())
    return list(largest) if len(largest) > FREE else []


def ring_areas(found: list[np.ndarray], molecules: list[Chem.Mol]) -> np.ndarray:
    """Return how well low contributions tell the atoms of the large ring from the others.

    The ROC-AUC in each molecule, ``[molecules]``: 0.5 by chance.
    """
    areas = []
    for values, molecule in zip(found, molecules, strict=True):
        inside = np.zeros(len(values), bool)
        inside[large_ring(molecule)] = True
        if not inside.all():
            areas.append(roc_auc_score(inside, -values))
    return np.array(areas)


def smiles_of(graphs: Iterable, count: int | None) -> list[str]:
    """Return SMILES of the first `count` graphs of ZINC, without stereochemistry."""
    assert ZINC_1.smiles_of is not None
    found = []
    for number, graph in enumerate(graphs):
        if number == count:
            break
        found.append(ZINC_1.smiles_of(checked_graph(graph, f"graph {number}")[0]))
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


def trained(norm: str, seed: int, smiles: list[str], epochs: int, folder: Path | None) -> Predictor:
    """Return a network that has learned logP, from the folder or trained anew."""
    path = None if folder is None else folder / f"{norm}-seed{seed}.ckpt"
    if path is None or not path.exists():
        logp = [crippen_contributions(molecule_of(text)).sum() for text in smiles]
        model = GraphormerRegressor(
            "quickstart", norm=norm, max_epochs=epochs, seed=seed, device="cpu"
        )
        model.fit(smiles, logp)
        if path is None:
            return model._predictor()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(model.checkpoint_)
    return Predictor.load(path, "cpu")


def rank_correlations(found: list[np.ndarray], truth: list[np.ndarray]) -> np.ndarray:
    """Return Spearman's correlation over the atoms of each molecule; 0: all are found equal."""
    each = [
        0.0 if np.ptp(one) == 0 else spearmanr(one, true)[0]
        for one, true in zip(found, truth, strict=True)
        if np.ptp(true) > 0
    ]
    return np.array(each)


def deletion_areas(
    predictor: Predictor, smiles: list[str], contributions: list[np.ndarray]
) -> np.ndarray:
    """Return the mean distance of two curves for each molecule, ``[molecules]``.

    Both are what the network says when more and more atoms are masked: those first that are said to
    raise the value most, or those that lower it most. Without any truth: 0 on average for a random
    order. Petsiuk et al. 2018, "RISE" (arXiv 1806.07421), Section 4.1, has one of them.
    """
    featurised = predictor.featurise([parse_smiles(text) for text in smiles])
    assert featurised.graphs is not None
    store = GraphStore.from_graphs([featurised.graphs], predictor.model.config.max_path_length)
    sizes = featurised.graphs.num_atoms
    subject = Subject(predictor.model, 0, sizes, [], Collator(store, predictor.vocabulary), 128)
    graphs, masks = [], []
    for graph, values in enumerate(contributions):
        order = np.argsort(np.argsort(values, kind="stable"))
        for share in SHARES:
            masked = round(share * len(values))
            graphs += [graph, graph]
            masks += [order < masked, order >= len(values) - masked]
    values = subject.outputs(graphs, masks).reshape(len(contributions), len(SHARES), 2)
    return (values[..., 0] - values[..., 1]).mean(axis=1) * predictor.facts["target_std"][0]


def mean_and_interval(values: np.ndarray) -> str:
    """Return the mean over molecules and half its 95 % interval."""
    return f"{values.mean():.3f} ± {1.96 * values.std(ddof=1) / np.sqrt(len(values)):.3f}"


def named(
    rows: dict[str, list[str]], numbers: dict[str, list[float]] | None = None
) -> Iterable[list[str]]:
    """Return the rows of a table, with the means of some numbers in its last column."""
    for name, cells in rows.items():
        mean = (
            [] if numbers is None else [f"{np.mean(numbers[name]):.1f}" if name in numbers else ""]
        )
        yield [name, *cells, *mean]


if __name__ == "__main__":
    main()
