"""The embeddings of molecules in a trained network: of [CLS], and if asked for of the atoms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graphormer_sepnorm.chem.molecules import MAX_ATOMS, ParsedMolecule
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs
from graphormer_sepnorm.inference.batching import BATCH_SIZE, by_size, in_chunks
from graphormer_sepnorm.inference.featurise import with_remarks


@dataclass(frozen=True)
class Embeddings:
    """One row per molecule given, in the same order.

    Attributes:
        smiles: As given; empty where molecules were given.
        read_as: What the model read, in whose order the atoms stand, of a model that standardises
            molecules; else empty, and it is `smiles`.
        values: float32 ``[n, C]``, the graph token ([CLS]) after the last norm, from which
            predictions are read, if `note` does not say otherwise; nan where there is an error.
        errors: Why there is no embedding; the empty string where there is one.
        warnings: What to know about it; mostly the empty string.
        atoms: float32 ``[sum of atoms, C]``, the atoms after the last norm, molecule after
            molecule, those of a molecule in the order of its SMILES; None if not asked for. A
            molecule with an error has none.
        first_atom: int64 ``[n + 1]``: molecule i has the atoms from ``first_atom[i]`` to
            ``first_atom[i + 1]``.
        note: What to know about [CLS] of this network: that predictions are read from the atoms
            alone; mostly the empty string.
    """

    smiles: tuple[str, ...]
    values: np.ndarray
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    atoms: np.ndarray | None = None
    first_atom: np.ndarray | None = None
    note: str = ""
    read_as: tuple[str, ...] = ()

    @property
    def numbers(self) -> np.ndarray:
        """What a table holds of them: the values."""
        return self.values

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """What a table says beside them: nothing."""
        return ((),) * len(self.values)


class Embedder:
    """Gives the embeddings of molecules, if asked for of atoms too, where a predictor gives values.

    Args:
        predictor: A `Predictor`, whose file imports this one.
        atoms: Whether embeddings of the atoms are wanted.

    Attributes:
        columns: What the channels of [CLS] are called in a table.
        text_columns: Names of what is said beside them: none.
        note: What to know about [CLS] of this network; mostly the empty string.
    """

    text_columns: tuple[str, ...] = ()

    def __init__(self, predictor: Any, atoms: bool = False) -> None:
        _ = predictor.reader.featuriser  # or it takes no molecules
        config = predictor.model.config
        self.task, self.device, self.width = predictor.task, predictor.device, config.width
        self.columns = tuple(f"cls_{channel}" for channel in range(self.width))
        self.note = ""
        if not config.reads_graph_token:
            self.note = "this model reads its predictions from the atoms, not from [CLS]: take the "
            self.note += f"{config.readout} of theirs (from Python atoms=True)"
        self._atoms = atoms
        self._predictor = predictor

    def embed(
        self,
        smiles: str | Sequence[str],
        batch_size: int = BATCH_SIZE,
        max_atoms: int = MAX_ATOMS,
    ) -> Embeddings:
        """See `Predictor.embed`."""
        given, parts = in_chunks(
            smiles,
            lambda molecules, *_: self.predict_molecules(molecules, batch_size, max_atoms),
        )
        counts = [np.diff(part.first_atom) for part in parts if part.first_atom is not None]
        return Embeddings(
            given,
            np.concatenate([part.values for part in parts]),
            tuple(error for part in parts for error in part.errors),
            tuple(warning for part in parts for warning in part.warnings),
            np.concatenate([part.atoms for part in parts]) if self._atoms else None,  # type: ignore[misc]
            _starts(np.concatenate(counts)) if self._atoms else None,
            self.note,
            tuple(text for part in parts for text in part.read_as),
        )

    def predict_molecules(
        self,
        molecules: Sequence[ParsedMolecule],
        batch_size: int = BATCH_SIZE,
        max_atoms: int = MAX_ATOMS,
    ) -> Embeddings:
        """Return the embeddings of molecules that are parsed already; see `Predictor.embed`."""
        reader = self._predictor.reader
        molecules = reader.prepared(molecules)
        values = np.full((len(molecules), self.width), np.nan, np.float32)
        of_atoms = [values[:0]] * len(molecules)
        graphs, places, errors, warnings = reader.featurise(molecules, max_atoms)
        if graphs is not None:
            for numbers in by_size(graphs.num_atoms, batch_size):
                values[places[numbers]], atoms = self._encode(graphs.take(numbers))
                if atoms is None:
                    continue
                ends = np.cumsum(graphs.num_atoms[numbers])[:-1]
                for place, rows in zip(places[numbers], np.split(atoms, ends), strict=True):
                    of_atoms[place] = rows[reader.atom_order(molecules[place].molecule)]
        for place in places[~np.isfinite(values[places]).all(axis=1)].tolist():
            values[place], warnings[place], of_atoms[place] = np.nan, "", values[:0]
            errors[place] = "the model gives no finite embedding for it"
        return Embeddings(
            (),
            values,
            tuple(errors),
            with_remarks(molecules, warnings),
            np.concatenate([values[:0], *of_atoms]) if self._atoms else None,
            _starts(list(map(len, of_atoms))) if self._atoms else None,
            read_as=tuple(one.standard for one in molecules) if reader.steps else (),
        )

    @torch.inference_mode()
    def _encode(self, graphs: PackedGraphs) -> tuple[np.ndarray, np.ndarray | None]:
        token, atoms = self._predictor.model.encode(self._predictor.collate(graphs))
        of_atoms = atoms.float().cpu().numpy() if self._atoms else None
        return token.float().cpu().numpy(), of_atoms


def _starts(counts: Any) -> np.ndarray:
    """Return where each of some parts begins, and where the last one ends."""
    return np.cumsum([0, *counts], dtype=np.int64)
