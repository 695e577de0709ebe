"""What the package stored about the pairs of a graph, in a form to compare with the literal one."""

import math
from fractions import Fraction

import numpy as np

from graphormer_sepnorm.graphs.store import _ARRAYS, GraphStore
from graphormer_sepnorm.graphs.structure import SHARE_UNIT

# Shares are rounded to this grid (and float64 sums before that are off by much less).
GRID = Fraction(1, SHARE_UNIT)


def assert_same_stores(one: GraphStore, other: GraphStore) -> None:
    """The same arrays, and of the same types."""
    for name in _ARRAYS:
        a, b = getattr(one, name), getattr(other, name)
        assert a.dtype == b.dtype, name
        assert np.array_equal(a, b, equal_nan=name == "targets"), name
    assert one.max_path_length == other.max_path_length


def pair_types(store: GraphStore, index: int) -> np.ndarray:
    """Types of the ordered pairs of a graph, [n, n]."""
    n = int(store.num_atoms(np.array([index]))[0])
    start = int(store.first_pair[index])
    return np.asarray(store.pair_type[start : start + n * n]).reshape(n, n).astype(int)


def type_shares(store: GraphStore, number: int) -> dict[tuple[int, tuple[int, ...]], Fraction]:
    """Share of the paths of a type by (hop, bond codes)."""
    part = slice(store.type_start[number], store.type_start[number + 1])
    entries = zip(
        store.type_hop[part].tolist(),
        store.type_kind[part].tolist(),
        store.type_share[part].tolist(),
        strict=True,
    )
    result: dict[tuple[int, tuple[int, ...]], Fraction] = {}
    for hop, kind, share in entries:
        key = (hop, tuple(store.bond_kinds[kind].tolist()))
        assert key not in result, "an entry stands twice"
        result[key] = share * GRID
    return result


def type_distance(store: GraphStore, number: int) -> float:
    """Distance of a type; math.inf if unreachable."""
    distance = int(store.type_distance[number])
    return math.inf if distance < 0 else distance


def assert_shares(stored: dict, truth: dict) -> None:
    """The same keys, the same shares within the grid."""
    assert stored.keys() == {key for key, share in truth.items() if share > 0}
    for key, share in stored.items():
        assert abs(share - truth[key]) <= GRID, key
