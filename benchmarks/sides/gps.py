"""GPS (Rampasek et al. 2022) as torch-geometric builds it, in the size of its published example.

Ten layers of width 64 with GINE messages and 4 heads of attention, a random-walk encoding of 20
steps in 8 of the channels. Dropout, where there is any, is the example's: 0.5 on attention weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINEConv, GPSConv, global_add_pool
from torch_geometric.transforms import AddRandomWalkPE

from benchmarks.sides.networks import training
from benchmarks.sides.protocol import Options, Work, in_batches, read_smiles, serve
from benchmarks.sides.simple_graphs import simple_graph

WIDTH, LAYERS, HEADS, WALK, ENCODING = 64, 10, 4, 20, 8
ATTENTION_DROPOUT = 0.5


class GPS(nn.Module):
    """GPS for graphs with one atom code, one bond code and a random-walk encoding."""

    def __init__(self, dropout: bool) -> None:
        super().__init__()
        self.atoms = nn.Embedding(64, WIDTH - ENCODING)
        self.bonds = nn.Embedding(64, WIDTH)
        self.walk_norm = nn.BatchNorm1d(WALK)
        self.walk = nn.Linear(WALK, ENCODING)
        attention = {"dropout": ATTENTION_DROPOUT if dropout else 0.0}
        self.layers = nn.ModuleList(
            GPSConv(WIDTH, GINEConv(self._mlp()), heads=HEADS, attn_kwargs=attention)
            for _ in range(LAYERS)
        )
        self.readout = nn.Sequential(
            nn.Linear(WIDTH, WIDTH // 2),
            nn.ReLU(),
            nn.Linear(WIDTH // 2, WIDTH // 4),
            nn.ReLU(),
            nn.Linear(WIDTH // 4, 1),
        )

    @staticmethod
    def _mlp() -> nn.Sequential:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, batch: Data) -> Tensor:
        """Return ``[B, 1]``."""
        walk = self.walk(self.walk_norm(batch["walk"]))
        x = torch.cat([self.atoms(batch["x"][:, 0]), walk], dim=1)
        bonds = self.bonds(batch["edge_attr"][:, 0])
        for layer in self.layers:
            x = layer(x, batch.edge_index, batch.batch, edge_attr=bonds)
        return self.readout(global_add_pool(x, batch.batch))


def train(options: Options) -> Work:
    """Training steps on the batches that the others have."""
    add_walk = AddRandomWalkPE(WALK, attr_name="walk")
    graphs = []
    for text in read_smiles(options):
        atoms, edges, bonds = (torch.from_numpy(part) for part in simple_graph(text))
        graphs.append(add_walk(Data(x=atoms, edge_index=edges, edge_attr=bonds)))
    batches = [Batch.from_data_list(part) for part in in_batches(graphs, options["batch_size"])]
    model = GPS(dropout=options["dropout"] > 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    return training(model, optimizer, model, batches, len(graphs))


if __name__ == "__main__":
    serve({"train": train})
