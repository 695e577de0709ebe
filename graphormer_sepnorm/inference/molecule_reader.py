"""From parsed molecules to the graphs that a model was trained on, and what is new to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from graphormer_sepnorm.chem.features import get_featurizer
from graphormer_sepnorm.chem.featurizer import CodeTable, Featurizer
from graphormer_sepnorm.chem.molecules import ParsedMolecule, count_pieces
from graphormer_sepnorm.chem.standardize import STEPS, standardized
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.graphs.packed_graphs import MolecularGraph, PackedGraphs
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary, Vocabulary
from graphormer_sepnorm.inference.table_job import MAX_ATOMS


class Featurized(NamedTuple):
    """What became of n molecules."""

    graphs: PackedGraphs  # of those that the model understands, in their order
    places: np.ndarray  # int64 [len(graphs)], which of the molecules these are
    errors: list[str]  # [n], the reason why a molecule has no graph, or the empty string
    warnings: list[str]  # [n], what to know about its graph; mostly the empty string


class MoleculeReader:
    """Makes graphs for a model.

    Args:
        facts: What its checkpoint knows.
        vocabulary: The codes that it has seen; if it was fine-tuned, before that too.
        refuse_new_elements: See `Predictor`.

    Attributes:
        steps: What is done to a molecule first, see `standardized`.

    Raises:
        ConfigError: It was trained by features that this version does not make.
        CheckpointError: It is of a step of `standardized` that there is no more.
    """

    def __init__(
        self, facts: dict[str, Any], vocabulary: GraphVocabulary, refuse_new_elements: bool
    ) -> None:
        self.steps = tuple(facts.get("standardize", ()))
        if unknown := [step for step in self.steps if step not in STEPS]:
            raise CheckpointError(
                f"it standardizes molecules by {listed(unknown)}, as this version does not: train "
                "again, with other data.standardize"
            )
        self._refuse_new_elements = refuse_new_elements
        self._dataset, self._vocabulary = facts["dataset"], vocabulary
        summary = facts.get("training_summary") or {}
        self._largest_seen = summary["atoms"]["max"] if "atoms" in summary else None
        self._only_connected = summary.get("connected", False)
        self._featurizer: Featurizer | None = None
        if facts["featurizer"] is None:
            return
        self._featurizer = made = get_featurizer(facts["featurizer"])
        self._atoms = _seen_codes(vocabulary.atoms, made.atom_tables)
        self._bonds = _seen_codes(vocabulary.bonds, made.bond_tables)
        # Elements that it was fine-tuned on; of others all that it has seen.
        elements = summary.get("elements")
        self._tuned_on = np.full(len(self._atoms), elements is None)
        if elements is not None:
            self._tuned_on[[code for code in elements if code in vocabulary.atoms.seen[0]]] = True

    @property
    def featurizer(self) -> Featurizer:
        """What makes graphs of molecules.

        Raises:
            CheckpointError: The model was trained on graphs that are not made from SMILES.
        """
        if self._featurizer is None:
            raise CheckpointError(
                f"this model was trained on the graphs of {self._dataset}, which are not made from "
                "SMILES: evaluate it with train.py test, or from Python give graphs to "
                "predict_graphs"
            )
        return self._featurizer

    def prepared(self, molecules: Sequence[ParsedMolecule]) -> Sequence[ParsedMolecule]:
        """Return the molecules in the form that the model was trained on, see `standardized`."""
        return [standardized(one, self.steps) for one in molecules] if self.steps else molecules

    def with_remarks(
        self, molecules: Sequence[ParsedMolecule], warnings: Sequence[str]
    ) -> tuple[str, ...]:
        """Return warnings with what was not read of each molecule."""
        both = zip((one.remark for one in molecules), warnings, strict=True)
        return tuple("; ".join(filter(None, texts)) for texts in both)

    def atom_order(self, molecule: Any) -> np.ndarray:
        """Return which atom of its graph each atom of a molecule is, int64 ``[atoms]``."""
        return np.asarray(self.featurizer.atom_order(molecule), dtype=np.int64)

    def featurize(
        self, molecules: Sequence[ParsedMolecule], max_atoms: int = MAX_ATOMS
    ) -> Featurized:
        """Return the graphs of the molecules that the model understands."""
        errors, warnings = [parsed.reason for parsed in molecules], [""] * len(molecules)
        for place, parsed in enumerate(molecules):
            atoms = 0 if parsed.molecule is None else parsed.molecule.GetNumAtoms()
            if atoms > max_atoms:
                errors[place] = f"too large: {atoms} atoms, the limit is {max_atoms} (--max_atoms)"
        places = [place for place, parsed in enumerate(molecules) if not errors[place]]
        readable: list[Any] = [molecules[place].molecule for place in places]
        graphs, reasons = self.featurizer.featurize_many(readable)
        for place, reason in zip(places, reasons, strict=True):
            errors[place] = reason
        places = [place for place in places if not errors[place]]
        new = self._with_unseen_codes(graphs)
        for number, place in enumerate(places):
            molecule: Any = molecules[place].molecule
            atoms = int(graphs.num_atoms[number])
            remarks: list[str] = []
            if number in new:
                errors[place], remark = self._what_is_new(graphs[number], molecule)
                remarks.append(remark)
            if self._largest_seen is not None and atoms > self._largest_seen:
                largest = f"the largest molecule in training had {self._largest_seen}"
                remarks.append(f"{atoms} atoms; {largest}")
            if self._only_connected and (pieces := count_pieces(molecule)) > 1:
                remarks.append(f"{pieces} pieces; molecules in training had one")
            warnings[place] = "" if errors[place] else "; ".join(filter(None, remarks))
        understood = [number for number, place in enumerate(places) if not errors[place]]
        if len(understood) < len(graphs):
            graphs = graphs.take(np.array(understood, np.int64))
        return Featurized(graphs, np.array(places, np.int64)[understood], errors, warnings)

    def _with_unseen_codes(self, graphs: PackedGraphs) -> set[int]:
        """Return the indices of the graphs that have such codes; of most molecules none has."""
        of_atom = np.arange(len(graphs)).repeat(graphs.num_atoms)
        of_bond = np.arange(len(graphs)).repeat(graphs.num_bonds)
        atoms, bonds = self._unseen(graphs)
        new = atoms.any(axis=1) | ~self._tuned_on[graphs.atom_codes[:, 0]]
        return {*of_atom[new].tolist(), *of_bond[bonds.any(axis=1)].tolist()}

    def _what_is_new(self, graph: MolecularGraph, molecule: Any) -> tuple[str, str]:
        """Return why the model cannot understand a molecule, and what else is new to it.

        An element that did not occur in training is an error: the model would take the atom for
        nothing at all. Other codes are a warning, and so is an element that only what a fine-tuned
        network began with has seen.
        """

        def named(atoms: np.ndarray) -> str:
            labels = self.featurizer.atom_labels(molecule)
            found = sorted({labels[atom] for atom in np.flatnonzero(atoms)})
            hydrogen = "H (written as an atom, as deuterium is)"
            return ", ".join(hydrogen if label == "H" else label for label in found)

        elements = self._vocabulary.new_elements(graph.atom_codes)
        if elements.any():
            what = f"{named(elements)} did not occur in its training data"
            reason = f"not understood by this model: {what}"
            return (reason, "") if self._refuse_new_elements else ("", reason)
        atoms, bonds = self._unseen(graph)
        words = [
            *_words(graph.atom_codes, atoms, self.featurizer.atom_tables),
            *_words(graph.bond_codes, bonds, self.featurizer.bond_tables),
        ]
        remarks = [f"not seen in training: {', '.join(words)}"] if words else []
        foreign = ~self._tuned_on[graph.atom_codes[:, 0]]
        if foreign.any():
            remarks.append(f"not in its own training data: {named(foreign)}")
        return "", "; ".join(remarks)

    def _unseen(self, graphs: MolecularGraph | PackedGraphs) -> tuple[np.ndarray, np.ndarray]:
        """Return which codes of atoms and bonds did not occur, bool, in the shape of the codes."""
        return (
            ~self._atoms[graphs.atom_codes, np.arange(graphs.atom_codes.shape[1])],
            ~self._bonds[graphs.bond_codes, np.arange(graphs.bond_codes.shape[1])],
        )


def _seen_codes(part: Vocabulary, tables: Sequence[CodeTable]) -> np.ndarray:
    """Return whether a code occurred in training, bool ``[largest code + 1, columns]``."""
    # One code more than there are values: some have a code for "none of these".
    known = np.zeros((max(len(table) for table in tables) + 1, len(tables)), dtype=bool)
    for column, (seen, _) in enumerate(zip(part.seen, tables, strict=True)):
        known[list(seen), column] = True
    return known


def _words(codes: np.ndarray, unseen: np.ndarray, tables: Sequence[CodeTable]) -> list[str]:
    found = []
    for column in np.flatnonzero(unseen.any(axis=0)).tolist():
        table = tables[column]
        for code in np.unique(codes[unseen[:, column], column]).tolist():
            value = table.values[code] if code < len(table) else "other"
            words = f"{table.name} {value}"
            if isinstance(value, bool):
                words = table.name if value else f"not {table.name}"
            found.append(words)
    return found
