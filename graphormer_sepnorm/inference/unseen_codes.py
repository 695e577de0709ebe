"""What of a molecule a model has never seen, in words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from graphormer_sepnorm.chem.featuriser import CodeTable, Featuriser
from graphormer_sepnorm.graphs.packed_graphs import MolecularGraph, PackedGraphs
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary, Vocabulary


class UnseenCodes:
    """Finds codes that did not occur in training; the first one of an atom says the element.

    Args:
        featuriser: Makes the graphs.
        vocabulary: What the network has seen; if it was fine-tuned, before that too.
        elements: Codes of the elements that it was fine-tuned on; None: all that it has seen.
    """

    def __init__(
        self,
        featuriser: Featuriser,
        vocabulary: GraphVocabulary,
        elements: Collection[int] | None,
    ) -> None:
        self._featuriser = featuriser
        self._vocabulary = vocabulary
        self._atoms = _lookup(vocabulary.atoms, featuriser.atom_tables)
        self._bonds = _lookup(vocabulary.bonds, featuriser.bond_tables)
        self._tuned_on = np.ones(len(self._atoms), dtype=bool)
        if elements is not None:
            self._tuned_on[:] = False
            self._tuned_on[[code for code in elements if code in vocabulary.atoms.seen[0]]] = True

    def find(self, graphs: PackedGraphs) -> list[int]:
        """Return the numbers of the graphs that have such codes; of most molecules none has."""
        of_atom = np.arange(len(graphs)).repeat(graphs.num_atoms)
        of_bond = np.arange(len(graphs)).repeat(graphs.num_bonds)
        atoms, bonds = self._unseen(graphs)
        new = atoms.any(axis=1) | ~self._tuned_on[graphs.atom_codes[:, 0]]
        return np.union1d(of_atom[new], of_bond[bonds.any(axis=1)]).tolist()

    def describe(self, graph: MolecularGraph, molecule: Any) -> tuple[str, str]:
        """Return why the model cannot understand a molecule, and what else is new to it.

        An element that did not occur in training is an error: the model would take the atom for
        nothing at all. Other codes are a warning, and so is an element that only what a fine-tuned
        network began with has seen. The graph is one that `find` has found.
        """
        atoms, bonds = self._unseen(graph)
        elements = self._vocabulary.new_elements(graph.atom_codes)
        if elements.any():
            what = self._elements(molecule, elements)
            return f"not understood by this model: {what} did not occur in its training data", ""
        words = [
            *_words(graph.atom_codes, atoms, self._featuriser.atom_tables),
            *_words(graph.bond_codes, bonds, self._featuriser.bond_tables),
        ]
        said = [f"not seen in training: {', '.join(words)}"] if words else []
        foreign = ~self._tuned_on[graph.atom_codes[:, 0]]
        if foreign.any():
            what = self._elements(molecule, foreign)
            said.append(f"not in its own training data, only in pre-training: {what}")
        return "", "; ".join(said)

    def _elements(self, molecule: Any, atoms: np.ndarray) -> str:
        """Return the elements of some atoms, bool ``[atoms]``, in words."""
        labels = self._featuriser.atom_labels(molecule)
        new = sorted({labels[atom] for atom in np.flatnonzero(atoms)})
        return ", ".join(
            "H (written as an atom, as deuterium is)" if one == "H" else one for one in new
        )

    def _unseen(self, graphs: MolecularGraph | PackedGraphs) -> tuple[np.ndarray, np.ndarray]:
        """Return which codes of atoms and bonds did not occur, bool, in the shape of the codes."""
        return (
            ~self._atoms[graphs.atom_codes, np.arange(graphs.atom_codes.shape[1])],
            ~self._bonds[graphs.bond_codes, np.arange(graphs.bond_codes.shape[1])],
        )


def _lookup(vocabulary: Vocabulary, tables: Sequence[CodeTable]) -> np.ndarray:
    """Return whether a code occurred in training, bool ``[largest code + 1, columns]``."""
    # One code more than there are values: some featurisers have a code for "none of these".
    known = np.zeros((max(len(table) for table in tables) + 1, len(tables)), dtype=bool)
    for column, seen in enumerate(vocabulary.seen):
        known[list(seen), column] = True
    return known


def _words(codes: np.ndarray, unseen: np.ndarray, tables: Sequence[CodeTable]) -> list[str]:
    found = []
    for column in np.flatnonzero(unseen.any(axis=0)).tolist():
        for code in np.unique(codes[unseen[:, column], column]).tolist():
            table = tables[column]
            value = table.values[code] if code < len(table) else "other"
            if isinstance(value, bool):
                found.append(table.name if value else f"not {table.name}")
            else:
                found.append(f"{table.name} {value}")
    return found
