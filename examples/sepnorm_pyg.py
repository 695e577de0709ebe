"""SepNorm in message passing with a virtual node: PyG's GPS or GIN, three kinds of norm.

    python examples/sepnorm_pyg.py
    python examples/sepnorm_pyg.py --layer gin --zinc ROOT --epochs 25 --seeds 1

PyG's `VirtualNode` puts one node after those of each graph: it is [CLS]. Trained on molecules of
the package's sample (some minutes on one core), or of ZINC-subset in a data root, and read from the
virtual node alone. Of short trainings nothing follows for longer ones.
"""

import argparse
from typing import Any

import pandas
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import BatchNorm, GINEConv, GPSConv
from torch_geometric.transforms import VirtualNode
from torch_geometric.utils import from_smiles

from graphormer_sepnorm import replace_norms
from graphormer_sepnorm.compare.statistics import against, log_errors
from graphormer_sepnorm.datasets.catalog import load_dataset
from graphormer_sepnorm.resources import sample_path

WIDTH, LAYERS, ELEMENTS = 64, 3, 120
# Norm of the virtual node, norm of the atoms, and whether they are one.
NORMS = {
    "one LayerNorm": ("ln", "ln", True),
    "SepNorm": ("bn", "ln", False),
    "one BatchNorm": ("bn", "bn", True),
}


class GINLayer(nn.Module):
    """GIN with bonds (Hu et al. 2020), its norm, and a residual connection."""

    def __init__(self, messages: nn.Module) -> None:
        super().__init__()
        self.messages, self.norm = messages, BatchNorm(WIDTH)

    def forward(self, nodes: Tensor, edges: Tensor, batch: Tensor, edge_attr: Tensor) -> Tensor:
        """Return the next nodes, ``[R, D]``."""
        return nodes + self.norm(self.messages(nodes, edges, edge_attr)).relu()


class Network(nn.Module):
    """GPS (Rampášek et al. 2022) with its own BatchNorm, or GIN."""

    def __init__(self, layer: str) -> None:
        super().__init__()
        self.atoms, self.bonds = nn.Embedding(ELEMENTS, WIDTH), nn.Embedding(30, WIDTH)
        self.layers = nn.ModuleList()
        for _ in range(LAYERS):
            perceptron = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
            messages = GINEConv(perceptron)
            made = GPSConv(WIDTH, messages, heads=4) if layer == "gps" else GINLayer(messages)
            self.layers.append(made)
        self.value = nn.Linear(WIDTH, 1)

    def forward(self, data: Any) -> Tensor:
        """Return a value for each graph, ``[B]``."""
        nodes, bonds = self.atoms(data.x[:, 0]), self.bonds(data.edge_attr[:, 0])
        for layer in self.layers:
            nodes = layer(nodes, data.edge_index, data.batch, edge_attr=bonds)
        return self.value(nodes[data.ptr[1:] - 1]).squeeze(1)


def molecules(count: int) -> tuple[list[Data], list[Data]]:
    """Return the first molecules of the sample with a virtual node each: to train and to test."""
    table = pandas.read_csv(sample_path(), nrows=count)
    found = [VirtualNode()(from_smiles(smiles)) for smiles in table["smiles"]]
    for graph, value in zip(found, table["penalized_logp"], strict=True):
        graph.y = torch.tensor([float(value)])
    return found[count // 5 :], found[: count // 5]


def of_zinc(root: str) -> tuple[list[Data], list[Data]]:
    """Return ZINC-subset's training and test molecules with a virtual node each."""
    splits = load_dataset("zinc-subset", root)

    def with_node(graph: Any) -> Any:
        graph.x = graph.x + 1  # 0 is the virtual node's
        return VirtualNode()(graph)

    return [with_node(one) for one in splits.train], [with_node(one) for one in splits.test]


def error_after_training(
    kind: str, seed: int, train: list[Data], test: list[Data], given: argparse.Namespace
) -> float:
    """Train; return the mean absolute error on the test molecules."""
    [example] = DataLoader(train[:2], batch_size=2)
    torch.manual_seed(seed)
    model, epochs = Network(given.layer), given.epochs
    cls_norm, tok_norm, shared = NORMS[kind]
    replace_norms(model, cls_norm, tok_norm, shared=shared, virtual_nodes="last", example=example)
    loader = DataLoader(train, batch_size=given.batch_size, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, epochs * len(loader))
    for _ in range(epochs):
        for batch in loader:
            loss = (model(batch) - batch.y.view(-1)).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        model.eval()
        errors = [(model(batch) - batch.y.view(-1)).abs() for batch in DataLoader(test, 256)]
        return torch.cat(errors).mean().item()


def main() -> None:
    """Compare the norms."""
    parser = argparse.ArgumentParser()
    counts = {"seeds": 4, "first_seed": 0, "epochs": 20, "batch_size": 64, "molecules": 2000}
    for name, default in counts.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--layer", choices=("gps", "gin"), default="gps")
    parser.add_argument("--zinc", metavar="ROOT")
    given = parser.parse_args()
    data = of_zinc(given.zinc) if given.zinc else molecules(given.molecules)
    errors, seeds = {}, range(given.first_seed, given.first_seed + given.seeds)
    for kind in NORMS:
        values = [error_after_training(kind, seed, *data, given) for seed in seeds]
        print(f"{kind:<14}", "  ".join(f"{value:.4f}" for value in values), flush=True)
        errors[kind] = dict(enumerate(log_errors(values, higher_is_better=False).tolist()))
    for kind, found in against(errors, "one LayerNorm").items() if given.seeds > 1 else ():
        change, low, high = found.percent
        print(f"{kind} changes the error by {change:+.1f} % [{low:+.1f}, {high:+.1f}], "
              f"p {found.p_value:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
