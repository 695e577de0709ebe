"""Which integer codes a model knows: codes seen in training get embedding rows, others row 0.

A code that did not occur in training has no trained embedding. All such codes share row 0, which
is the zero vector and stays it (`padding_idx`), so an unknown feature contributes nothing instead
of the random numbers its row was initialized with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.store import GraphStore

UNKNOWN_ROW = 0


@dataclass(frozen=True)
class Vocabulary:
    """The codes of each feature column that occur in training.

    Attributes:
        seen: One sorted tuple of codes per column.
    """

    seen: tuple[tuple[int, ...], ...]

    @classmethod
    def fit(cls, codes: np.ndarray) -> Vocabulary:
        """Collect the codes of an integer array of shape ``[n, columns]``."""
        return cls(tuple(tuple(np.unique(column).tolist()) for column in codes.T))

    @property
    def num_rows(self) -> int:
        """Rows of an embedding table that serves all columns, the unknown row included."""
        return 1 + sum(len(column) for column in self.seen)

    def rows(self, codes: np.ndarray) -> np.ndarray:
        """Map codes ``[n, columns]`` to embedding rows, int64 of the same shape.

        Raises:
            DataError: If the number of columns is not the one of the training data.
        """
        if codes.shape[1] != len(self.seen):
            raise DataError(
                f"graphs have {codes.shape[1]} feature columns, the model was trained on "
                f"{len(self.seen)}: use the featurizer (or the data set) it was trained with"
            )
        rows = np.full(codes.shape, UNKNOWN_ROW, dtype=np.int64)
        first = 1
        for column, seen in enumerate(self.seen):
            known = np.asarray(seen, dtype=np.int64)
            if len(known):
                place = np.searchsorted(known, codes[:, column]).clip(max=len(known) - 1)
                hit = known[place] == codes[:, column]
                rows[hit, column] = first + place[hit]
            first += len(known)
        return rows


@dataclass(frozen=True)
class GraphVocabulary:
    """The vocabularies of atoms and bonds together.

    Attributes:
        atoms: Of the columns of ``Data.x``.
        bonds: Of the columns of ``Data.edge_attr``.
    """

    atoms: Vocabulary
    bonds: Vocabulary

    @classmethod
    def fit(cls, store: GraphStore, indices: np.ndarray) -> GraphVocabulary:
        """Collect what occurs in the graphs `indices` (the training split) of `store`."""
        return cls(
            Vocabulary.fit(store.atom_codes_of(indices)),
            Vocabulary.fit(store.bond_codes_of(indices)),
        )

    @classmethod
    def from_data_list(cls, graphs: Sequence[Any]) -> GraphVocabulary:
        """Collect what occurs in some graphs of PyG, see `GraphBatch.from_data_list`."""
        return cls.fit(GraphStore.from_graphs(graphs, 1), np.arange(len(graphs)))

    def new_elements(self, atom_codes: np.ndarray) -> np.ndarray:
        """Return which atoms, bool ``[n]``, are of an element that did not occur in training.

        The first column of the codes has it. Such an atom is nothing at all to a model, so
        prediction refuses its molecule.
        """
        return ~np.isin(atom_codes[:, 0], self.atoms.seen[0])

    @cached_property
    def digest(self) -> str:
        """What tells it from others: rows of batches of another one mean other codes."""
        return hashlib.sha256(json.dumps(self.to_plain()).encode()).hexdigest()[:12]

    def to_plain(self) -> dict[str, list[list[int]]]:
        """Return lists of integers, for a checkpoint."""
        return {
            "atoms": [list(column) for column in self.atoms.seen],
            "bonds": [list(column) for column in self.bonds.seen],
        }

    @classmethod
    def from_plain(cls, plain: dict[str, list[list[int]]]) -> GraphVocabulary:
        """Make a vocabulary from what `to_plain` gave."""
        return cls(*(Vocabulary(tuple(map(tuple, plain[of]))) for of in ("atoms", "bonds")))
