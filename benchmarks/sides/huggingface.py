"""Graphormer of Hugging Face transformers 4.46.3, the last that ran; run in its own environment.

python -m benchmarks.sides.huggingface IN.csv OUT.csv MAX_PATH_LENGTH

is the plain loop with which one predicts with it: CSV in, CSV out.
"""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import torch
from rdkit import Chem
from torch import Tensor
from transformers import GraphormerConfig, GraphormerForGraphClassification
from transformers.models.deprecated.graphormer.collating_graphormer import (
    GraphormerDataCollator,
    preprocess_item,
)

from benchmarks.sides.networks import timed
from benchmarks.sides.protocol import Options, Work, in_batches, read_smiles, serve, to_batches
from benchmarks.sides.simple_graphs import simple_graph

# Its table of features has 512 rows for each column.
ATOM_ROWS, BOND_ROWS = 9 * 512, 3 * 512
BATCH_SIZE = 128  # of predictions


def slim(options: Options, atom_rows: int, bond_rows: int) -> GraphormerForGraphClassification:
    """Return the slim model: pre-norm, as the paper's first version."""
    dropout = options.get("dropout", 0.0)
    return GraphormerForGraphClassification(
        GraphormerConfig(
            num_classes=1,
            num_hidden_layers=12,
            embedding_dim=80,
            ffn_embedding_dim=80,
            num_attention_heads=8,
            pre_layernorm=True,
            multi_hop_max_dist=options["max_path_length"],
            dropout=dropout,
            attention_dropout=dropout,
            activation_dropout=0.0,  # ours has none there
            num_atoms=atom_rows,
            num_edges=bond_rows,
            num_in_degree=64,
            num_out_degree=64,
            num_edge_dis=40,
        )
    )


def molecule_item(smiles: str) -> dict[str, Any]:
    """Return what `preprocess_item` takes: nine features per atom and three per bond.

    They are those of OGB, with which its published models were trained.
    """
    molecule = Chem.MolFromSmiles(smiles)
    atoms = [
        (
            atom.GetAtomicNum(),
            int(atom.GetChiralTag()),
            atom.GetTotalDegree(),
            atom.GetFormalCharge() + 5,
            atom.GetTotalNumHs(),
            atom.GetNumRadicalElectrons(),
            int(atom.GetHybridization()),
            int(atom.GetIsAromatic()),
            int(atom.IsInRing()),
        )
        for atom in molecule.GetAtoms()
    ]
    edges, bonds = [], []
    for bond in molecule.GetBonds():
        begin, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        edges += [(begin, end), (end, begin)]
        bonds += [(int(bond.GetBondType()), int(bond.GetStereo()), int(bond.GetIsConjugated()))] * 2
    return {
        "node_feat": atoms,
        "edge_index": list(zip(*edges, strict=True)),
        "edge_attr": bonds,
        "num_nodes": len(atoms),
        "y": [0.0],
    }


def collate_smiles(smiles: list[str]) -> dict[str, Tensor]:
    """Return the batch of these molecules."""
    return GraphormerDataCollator()([preprocess_item(molecule_item(text)) for text in smiles])


def smiles_to_batches(options: Options) -> Work:
    """Text to batches that the model takes, all structure in them."""
    return to_batches(options, collate_smiles)


def _network(options: Options) -> tuple[GraphormerForGraphClassification, list[dict], int]:
    items = []
    for text in read_smiles(options):
        atoms, edges, bonds = simple_graph(text)
        item = {"node_feat": atoms, "edge_index": edges, "edge_attr": bonds, "y": [0.0]}
        items.append(preprocess_item({**item, "num_nodes": len(atoms)}))
    batches = [GraphormerDataCollator()(part) for part in in_batches(items, options["batch_size"])]
    for batch in batches:
        del batch["labels"]  # the loss is the same for all sides
    return slim(options, 64, 64), batches, len(items)


def train(options: Options) -> Work:
    """Training steps on the batches that the others have."""
    model, batches, molecules = _network(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    return timed(model, lambda batch: model(**batch).logits, batches, molecules, optimizer)


def forward(options: Options) -> Work:
    """Forward passes over the same batches."""
    model, batches, molecules = _network(options)
    return timed(model, lambda batch: model(**batch).logits, batches, molecules)


def predict(options: Options) -> Work:
    """The loop of `main`: CSV in, CSV out."""
    output = Path(options["scratch"]) / "huggingface.csv"
    script = ["-m", "benchmarks.sides.huggingface", options["table"], str(output)]
    return Work(
        command=[sys.executable, *script, str(options["max_path_length"])],
        facts={"molecules": len(read_smiles(options))},
    )


@torch.inference_mode()
def main(source: str, destination: str, max_path_length: str) -> None:
    """Predict the column ``smiles`` with an untrained slim model."""
    model = slim({"max_path_length": int(max_path_length)}, ATOM_ROWS, BOND_ROWS).eval()
    with open(source, newline="", encoding="utf-8") as table:
        smiles = [row["smiles"] for row in csv.DictReader(table)]
    with open(destination, "w", newline="", encoding="utf-8") as output:
        writer = csv.writer(output)
        writer.writerow(["smiles", "prediction"])
        for texts in in_batches(smiles, BATCH_SIZE):
            batch = collate_smiles(texts)
            del batch["labels"]
            values = model(**batch).logits[:, 0].tolist()
            writer.writerows(zip(texts, values, strict=True))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        serve(smiles_to_batches, train, forward, predict)
