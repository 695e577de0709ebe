"""SepNorm in message passing with a virtual node: PyG's GPS, three kinds of norm.

    python examples/sepnorm_pyg.py

PyG's `VirtualNode` puts one node after those of each graph: it is [CLS]. Trained on molecules of
the package's sample, read from the virtual node alone; some minutes on one core. It is a training
from which nothing follows for longer ones.
"""

import argparse
import csv
import gzip
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, GPSConv
from torch_geometric.transforms import VirtualNode
from torch_geometric.utils import from_smiles

from graphormer_sepnorm import replace_norms
from graphormer_sepnorm.compare.statistics import against, log_errors

WIDTH, LAYERS, ELEMENTS = 64, 3, 120
SAMPLE = Path(__file__).parents[1] / "data" / "sample.csv.gz"
# Norm of the virtual node, norm of the atoms, and whether they are one.
NORMS = {
    "one LayerNorm": ("ln", "ln", True),
    "SepNorm": ("bn", "ln", False),
    "one BatchNorm": ("bn", "bn", True),
}


class Network(nn.Module):
    """GPS (Rampášek et al. 2022), with its own BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.atoms, self.bonds = nn.Embedding(ELEMENTS, WIDTH), nn.Embedding(30, WIDTH)
        self.layers = nn.ModuleList()
        for _ in range(LAYERS):
            perceptron = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
            self.layers.append(GPSConv(WIDTH, GINEConv(perceptron), heads=4))
        self.value = nn.Linear(WIDTH, 1)

    def forward(self, data: Any) -> Tensor:
        """Return a value for each graph, ``[B]``."""
        nodes, bonds = self.atoms(data.x[:, 0]), self.bonds(data.edge_attr[:, 0])
        for layer in self.layers:
            nodes = layer(nodes, data.edge_index, data.batch, edge_attr=bonds)
        return self.value(nodes[data.ptr[1:] - 1]).squeeze(1)


def molecules(count: int) -> list[Data]:
    """Return the first molecules of the sample with a virtual node each."""
    add, found = VirtualNode(), []
    with gzip.open(SAMPLE, "rt") as file:
        for row, _ in zip(csv.DictReader(file), range(count), strict=False):
            graph = from_smiles(row["smiles"])
            graph.y = torch.tensor([float(row["penalized_logp"])])
            found.append(add(graph))
    return found


def error_after_training(kind: str, seed: int, epochs: int, data: list[Data]) -> float:
    """Train on four fifths; return the mean absolute error on the others."""
    [example] = DataLoader(data[:2], batch_size=2)
    torch.manual_seed(seed)
    model, held_out = Network(), len(data) // 5
    cls_norm, tok_norm, shared = NORMS[kind]
    replace_norms(model, cls_norm, tok_norm, shared=shared, virtual_nodes="last", example=example)
    loader = DataLoader(data[held_out:], batch_size=64, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, epochs * len(loader))
    for _ in range(epochs):
        for batch in loader:
            loss = (model(batch) - batch.y).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        [batch] = DataLoader(data[:held_out], batch_size=held_out)
        return (model.eval()(batch) - batch.y).abs().mean().item()


def main() -> None:
    """Compare the norms."""
    parser = argparse.ArgumentParser()
    for name, default in (("seeds", 4), ("epochs", 20), ("molecules", 2000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    data, errors = molecules(given.molecules), {}
    for kind in NORMS:
        values = [
            error_after_training(kind, seed, given.epochs, data) for seed in range(given.seeds)
        ]
        print(f"{kind:<14}", "  ".join(f"{value:.3f}" for value in values), flush=True)
        errors[kind] = dict(enumerate(log_errors(values, higher_is_better=False).tolist()))
    for kind, found in against(errors, "one LayerNorm").items():
        change, low, high = found.percent
        print(f"{kind} changes the error by {change:+.1f} % [{low:+.1f}, {high:+.1f}], "
              f"p {found.p_value:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
