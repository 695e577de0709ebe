"""What the trees of a checkpoint must be, so that walking down them ends at a leaf."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.inference.kinds import requirement

# Where a checkpoint keeps a `Blend`.
BLEND = "blend"
_PLACE = f"{BLEND}.trees"
# The arrays of `BoostedTrees` and their kinds.
ARRAYS = {
    **dict.fromkeys(("feature", "left", "right", "roots", "trees"), "int32"),
    **dict.fromkeys(("threshold", "value", "start"), "float64"),
}
# Of a target: 28 bytes each are 4.5 MB. And steps from a root to a leaf.
MOST_NODES, DEEPEST = 160_000, 64


def check_trees(plain: dict[str, Any], targets: int) -> None:
    """Check that the arrays of `BoostedTrees`, of the right kinds each, fit together.

    Raises:
        CheckpointError: They do not.
    """
    arrays = {name: plain[name].cpu().numpy() for name in ARRAYS}
    feature, roots, trees = arrays["feature"], arrays["roots"], arrays["trees"]
    columns = plain["columns"]
    numbers = len(columns["descriptors"]) + len(columns.get("columns", ()))
    features = len(columns["environments"]) + numbers
    nodes = len(feature)

    require = requirement(_PLACE)
    for name, size in (
        *((name, nodes) for name in ("threshold", "left", "right", "value")),
        ("trees", targets),
        ("start", targets),
    ):
        require(len(arrays[name]) == size, f"has {len(arrays[name])} {name}, expected {size}")
    medians = len(columns["medians"])
    require(medians == numbers, f"has {medians} medians of its descriptors")
    for name in ("threshold", "value", "start"):
        require(np.isfinite(arrays[name]).all(), f"has a {name} that is not finite")
    require((trees >= 0).all(), "has a negative number of trees")
    require(trees.sum(dtype=np.int64) == len(roots), f"has {len(roots)} roots, not one a tree")
    require(
        nodes <= MOST_NODES * targets, f"has {nodes:,} nodes, more than {MOST_NODES:,} a target"
    )
    require(((feature >= -1) & (feature < features)).all(), f"has not {features} features")
    inner = np.flatnonzero(feature >= 0)
    children = np.concatenate([arrays["left"][inner], arrays["right"][inner]])
    require(
        ((children > np.tile(inner, 2)) & (children < nodes)).all(),
        "has a node that does not stand behind its parent",
    )
    require(((roots >= 0) & (roots < nodes)).all(), "has a root that is no node")
    # Each node is below one other at most: what is walked down is as large as what is written.
    times = np.bincount(np.concatenate([children, roots]), minlength=nodes)
    require((times <= 1).all(), "has a node with two parents")
    level = roots
    for _ in range(DEEPEST):
        level = level[feature[level] >= 0]
        level = np.concatenate([arrays["left"][level], arrays["right"][level]])
        if len(level) == 0:
            return
    raise CheckpointError(f"{_PLACE} has a tree deeper than {DEEPEST}")
