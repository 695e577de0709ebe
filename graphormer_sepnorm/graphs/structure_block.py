"""What the computation of structure gives, whether in C or in numpy, for a block of graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Shares of paths are kept in fixed point. Sums of the same shares in another order differ in the
# last bits of a float64; rounded to this grid they are equal, and so are their types.
SHARE_UNIT = 1 << 30

# The first two pair types of every table.
SAME_ATOM, UNREACHABLE = 0, 1
UNREACHABLE_DISTANCE = -1

# Numbers of shortest paths are scaled before they overflow.
LARGEST_COUNT = 1e200


@dataclass(frozen=True)
class BlockStructure:
    """Structure of a block of graphs, laid out one graph after the other.

    Attributes:
        in_degree: int64 ``[sum n]``, distinct neighbours with a bond to the atom.
        out_degree: int64 ``[sum n]``, distinct neighbours the atom has a bond to.
        pair_type: int32 ``[sum n^2]``, type of each ordered pair, row-major within a graph. One
            part of it is the size of the smallest ring, of those that are the ring of some bond
            (below), that both atoms lie in; 0 if there is none, and for an atom with itself.
        ring_sizes: int64 ``[sum n, 2]``, of the rings of an atom's bonds the smallest and the
            largest; 0 for an atom in no ring. The ring of a bond i -> j is the shortest way back
            from j to i that does not take the bond itself, closed by it; its size is in atoms.
            Where several ways are equally short, each makes a ring.
    """

    in_degree: np.ndarray
    out_degree: np.ndarray
    pair_type: np.ndarray
    ring_sizes: np.ndarray


class ConflictingBonds(Exception):
    """Two different bonds from one atom to another.

    Attributes:
        atom: The first such atom of the block.
    """

    def __init__(self, atom: int) -> None:
        super().__init__(atom)
        self.atom = atom
