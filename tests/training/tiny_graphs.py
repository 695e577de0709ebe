"""Graphs small enough to train on in a moment."""

from __future__ import annotations

import torch
from torch_geometric.data import Data


def path_graphs(count: int, seed: int, targets: int = 1) -> list[Data]:
    """Paths of 2 to 9 atoms with random codes; each target is about the number of bonds."""
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for _ in range(count):
        atoms = int(torch.randint(2, 10, (), generator=generator))
        first = torch.arange(atoms - 1)
        graphs.append(
            Data(
                x=torch.randint(0, 4, (atoms, 1), generator=generator),
                edge_index=torch.stack(
                    [torch.cat([first, first + 1]), torch.cat([first + 1, first])]
                ),
                edge_attr=torch.randint(1, 4, (atoms - 1,), generator=generator).repeat(2),
                y=atoms - 1.0 + 0.1 * torch.randn(targets, generator=generator),
            )
        )
    return graphs
