"""What trees see of a molecule: counts of its substructures, and RDKit's descriptors.

n molecules · F features: the counts that training knows, the descriptors, columns of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, hstack, vstack

from graphormer_sepnorm.chem.descriptors import compute_descriptors, quick_descriptor_names
from graphormer_sepnorm.chem.fingerprints import (
    HASHED,
    REDUCED,
    SUBSTRUCTURES,
    Substructures,
    hashed_counts,
    reduced_graphs,
    substructures,
)
from graphormer_sepnorm.chem.molecules import RDKIT_VERSION, parse_smiles
from graphormer_sepnorm.process import in_chunks

COUNTED = HASHED + REDUCED  # columns of counts
FEWEST = 3  # what is in fewer training molecules says nothing
LARGEST = 1e6  # some descriptors of charges are enormous where a denominator is nearly 0
_CHUNK = 250  # molecules that a process takes at once


@dataclass(frozen=True, eq=False)
class RawFeatures:
    """All counts and descriptors of some molecules.

    Attributes:
        counts: float64 ``[n, COUNTED]``, by `hashed_counts`, then by `reduced_graphs`.
        descriptors: float32 ``[n, K]``; nan where undefined. Columns of a table may stand behind
            them.
        substructures: What the counts are of, for a kernel; empty of some of the molecules.
    """

    counts: csr_array
    descriptors: np.ndarray
    substructures: Substructures = field(default_factory=dict)

    def with_columns(self, columns: np.ndarray | None) -> RawFeatures:
        """Return them with columns of a table, ``[n, C]``, nan = missing; None: there are none."""
        if columns is None:
            return self
        return replace(self, descriptors=np.hstack([self.descriptors, columns]))

    def take(self, molecules: np.ndarray) -> RawFeatures:
        """Return those of some molecules, by their indices, int64 ``[m]``."""
        return RawFeatures(self.counts[molecules], self.descriptors[molecules])


@dataclass(frozen=True)
class FeatureColumns:
    """Which columns trees were given, and what stands for a descriptor that is undefined.

    Attributes:
        environments: Which counts: below `COUNTED`, increasing.
        descriptors: Names.
        medians: Of each descriptor in training, then of each column of a table.
        rdkit: Release that computed them.
        columns: Names of columns of a table.
    """

    environments: tuple[int, ...]
    descriptors: tuple[str, ...]
    medians: tuple[float, ...]
    rdkit: str = RDKIT_VERSION
    columns: tuple[str, ...] = ()

    @classmethod
    def fit(cls, raw: RawFeatures, columns: Sequence[str] = ()) -> Self:
        """Choose the columns for training molecules; `columns` of a table follow descriptors."""
        molecules = np.bincount(raw.counts.indices, minlength=COUNTED)
        medians = np.zeros(raw.descriptors.shape[1])
        for index, column in enumerate(raw.descriptors.T):
            present = column[~np.isnan(column)].astype(np.float64)
            medians[index] = np.median(present) if len(present) else 0
        chosen = cls(
            tuple(np.flatnonzero(molecules >= FEWEST).tolist()),
            quick_descriptor_names(),
            tuple(medians.tolist()),
            columns=tuple(columns),
        )
        return replace(chosen, medians=tuple(chosen._clipped(medians).tolist()))

    def of(self, raw: RawFeatures) -> np.ndarray:
        """Return the columns, float32 ``[n, F]``: what trees compare is in single precision."""
        known = np.where(np.isnan(raw.descriptors), self.medians, raw.descriptors)
        return np.hstack(
            [
                raw.counts[:, list(self.environments)].toarray().astype(np.float32),
                self._clipped(known).astype(np.float32),
            ]
        )

    def _clipped(self, values: np.ndarray) -> np.ndarray:
        limits = np.repeat([LARGEST, np.inf], [len(self.descriptors), len(self.columns)])
        return np.clip(values, -limits, limits)


def compute_features(smiles: Sequence[str], names: Sequence[str] | None = None) -> RawFeatures:
    """Compute counts and descriptors; four to six milliseconds a molecule and core.

    A molecule that cannot be read, as some of ogbg-molhiv, has no counts, and all its descriptors
    are undefined. Without `names` those of `quick_descriptor_names` are taken. Many molecules are
    computed by a process on each core.
    """
    names = quick_descriptor_names() if names is None else names
    parts = [raw_features([], names), *in_chunks(partial(_of_chunk, names=names), smiles, _CHUNK)]
    return RawFeatures(
        csr_array(vstack([part.counts for part in parts])),
        np.concatenate([part.descriptors for part in parts]),
        {kind: [*chain(*(part.substructures[kind] for part in parts))] for kind in SUBSTRUCTURES},
    )


def _of_chunk(smiles: Sequence[str], names: Sequence[str]) -> RawFeatures:
    return raw_features([parse_smiles(text).molecule for text in smiles], names)


def raw_features(molecules: Sequence[Any], names: Sequence[str]) -> RawFeatures:
    """Return the features of molecules, with the descriptors of these names."""
    found = substructures(molecules)
    counts = hstack([hashed_counts(found), reduced_graphs(molecules)], format="csr")
    return RawFeatures(csr_array(counts), compute_descriptors(molecules, names), found)
