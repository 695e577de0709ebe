"""Fingerprints: the substructures of molecules as bits, as numbers and as counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator, rdReducedGraphs

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Environments reach two bonds far (ECFP4) and are hashed to so many bits.
RADIUS, ENVIRONMENTS = 2, 2048
# Substructures that are counted without hashing to columns: Morgan environments of elements, and of
# pharmacophore features; pairs of atoms.
SUBSTRUCTURES = {
    "morgan": rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS),
    "feature morgan": rdFingerprintGenerator.GetMorganGenerator(
        radius=RADIUS, atomInvariantsGenerator=rdFingerprintGenerator.GetMorganFeatureAtomInvGen()
    ),
    "atom pairs": rdFingerprintGenerator.GetAtomPairGenerator(),
}
# By kind, those of each molecule as `substructures` has them.
Substructures = Mapping[str, Sequence[np.ndarray]]
_TIMES = 20  # bits of a number of `substructures` that count how often
# Columns that substructures are hashed to, all together, and columns of `reduced_graphs`.
_COLUMNS = {"morgan": ENVIRONMENTS, "feature morgan": 1024, "atom pairs": 2048}
HASHED, REDUCED = sum(_COLUMNS.values()), 315


def morgan_bits(molecules: Sequence[Chem.Mol | None]) -> np.ndarray:
    """Return which environments there are (Morgan or ECFP; Rogers and Hahn 2010), 64 in a number.

    uint64 ``[molecules, ENVIRONMENTS / 64]``. None for one that RDKit does not take, as a few of
    ogbg-molhiv: it has nothing.
    """
    make, none = SUBSTRUCTURES["morgan"].GetFingerprint, Chem.Mol()
    bits = [DataStructs.BitVectToBinaryText(make(molecule or none)) for molecule in molecules]
    return np.frombuffer(b"".join(bits), np.uint64).reshape(len(bits), ENVIRONMENTS // 64)


def substructures(molecules: Sequence[Chem.Mol | None]) -> Substructures:
    """Return, by kind, a number for each substructure of a molecule and each k from 1 to its count.

    Of each molecule int64 ``[...]``, so that counts are sets; None has none.
    """
    return {
        kind: [_keys(generator, molecule or Chem.Mol()) for molecule in molecules]
        for kind, generator in SUBSTRUCTURES.items()
    }


def _keys(generator: Any, molecule: Chem.Mol) -> np.ndarray:
    counts = generator.GetSparseCountFingerprint(molecule).GetNonzeroElements()
    hashes = np.fromiter(counts.keys(), np.int64, len(counts))
    times = np.fromiter(counts.values(), np.int64, len(counts))
    k = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    return (np.repeat(hashes, times) << _TIMES) + k


def hashed_counts(found: Substructures) -> csr_array:
    """Return how often substructures occur, hashed to columns, those of a kind after the other.

    float64 ``[molecules, HASHED]``, sparse: a molecule has a few dozen of a kind.
    """
    from scipy.sparse import csr_array, hstack  # slow to load, and networks need no counts

    counts = []
    for kind, width in _COLUMNS.items():
        hashes = np.concatenate([np.empty(0, np.int64), *found[kind]]) >> _TIMES
        if kind == "atom pairs":  # codes, most of whose low bits are alike
            hashes = ((hashes * 0x9E3779B1) & 0xFFFFFFFF) >> 8
        columns = (hashes % width).astype(np.int32)
        shape = len(found[kind]), width
        rows = np.repeat(np.arange(shape[0], dtype=np.int32), [len(own) for own in found[kind]])
        counts.append(csr_array((np.ones(len(rows)), (rows, columns)), shape=shape))
    return csr_array(hstack(counts, format="csr"))


def reduced_graphs(molecules: Sequence[Chem.Mol | None]) -> np.ndarray:
    """Return counts of pairs of pharmacophore features by distance, float32 ``[n, REDUCED]``.

    ErG, extended reduced graphs (Stiefl et al. 2006); of None all are 0. RDKit's depend on the
    order of the atoms, and are taken in the canonical one.
    """
    values = np.zeros((len(molecules), REDUCED), np.float32)
    for row, molecule in zip(values, molecules, strict=True):
        if molecule is not None and molecule.GetNumAtoms():
            order = np.argsort(Chem.CanonicalRankAtoms(molecule)).tolist()
            ordered = Chem.RenumberAtoms(molecule, order)
            Chem.GetSymmSSSR(ordered)
            row[:] = rdReducedGraphs.GetErGFingerprint(ordered)
    return values
