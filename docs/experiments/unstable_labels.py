"""Lists the molecules of ZINC-subset whose label depends on the order of their atoms.

    python docs/experiments/unstable_labels.py ROOT docs/experiments/zinc-subset-unstable.csv

The label's cycle term takes the longest cycle of one cycle basis (`data/penalized_logp.py`), which
in bridged rings depends on the atoms' numbers. A molecule is listed if any of 100 random orders of
its atoms, by one seed, gives another longest cycle beyond six atoms: nothing of a model decides.
"""

import sys
from pathlib import Path

import networkx
import numpy as np

from graphormer_sepnorm.datasets.catalog import load_dataset
from graphormer_sepnorm.files import write_columns

ORDERS, FREE = 100, 6


def terms(edges: np.ndarray, atoms: int, rng: np.random.Generator) -> set[int]:
    """Return the values of the cycle term under random orders of the atoms."""
    found = set()
    for _ in range(ORDERS):
        order = rng.permutation(atoms)[edges]
        graph = networkx.Graph(order.T[rng.permutation(edges.shape[1])].tolist())
        longest = max(map(len, networkx.cycle_basis(graph)), default=0)
        found.add(max(longest - FREE, 0))
    return found


def main(root: str, out: Path) -> None:
    """Write the list."""
    splits, rng = load_dataset("zinc-subset", root), np.random.default_rng(0)
    rows = []
    for split in ("validation", "test"):
        for number, graph in enumerate(splits.parts[split]):
            found = sorted(terms(graph.edge_index.numpy(), graph.num_nodes, rng))
            if len(found) > 1:
                rows.append((split, number, " ".join(map(str, found))))
    columns = ("split", "number", "cycle_terms")
    write_columns(out, dict(zip(columns, zip(*rows, strict=True), strict=True)))
    print({split: sum(row[0] == split for row in rows) for split in ("validation", "test")})


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
