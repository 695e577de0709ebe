"""The embeddings that a model has after each layer, for [CLS] and a sample of the atoms.

G graphs · M sampled atoms · B graphs and A atoms of one batch · C channels
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.model.graphormer import Graphormer

MAX_ATOMS = 10_000
OUTPUT = "output"


@dataclass(frozen=True)
class LayerEmbeddings:
    """The embeddings at one place of a model.

    Attributes:
        name: ``layer 1`` and so on, or ``output``.
        graph_token: ``[G, C]``, [CLS] of each graph.
        atoms: ``[M, C]``, the sampled atoms; the same atoms at every place.
        graph_of_atom: int64 ``[M]``, row of `graph_token` that each belongs to.
    """

    name: str
    graph_token: np.ndarray
    atoms: np.ndarray
    graph_of_atom: np.ndarray


@dataclass(frozen=True)
class ModelEmbeddings:
    """The embeddings of some graphs throughout a model.

    Attributes:
        layers: One per encoder layer, in order, then the output. With ``norm_position: pre`` a
            layer gives the residual stream, which no norm has touched yet; the output is what the
            last norm made of it. With ``post`` the output is the last layer again.
        graph_ids: int64 ``[G]``, number of each graph in its store, in the order of the rows.
        num_atoms: int64 ``[G]``, atoms of each graph, sampled or not.
    """

    layers: tuple[LayerEmbeddings, ...]
    graph_ids: np.ndarray
    num_atoms: np.ndarray


def collect_embeddings(
    model: Graphormer,
    batches: Iterable[GraphBatch],
    *,
    max_atoms: int = MAX_ATOMS,
    seed: int = 0,
) -> ModelEmbeddings:
    """Run a model in evaluation mode and keep its embeddings.

    Which atoms are sampled depends on `seed`, `max_atoms` and the set of graphs alone: neither on
    the batches nor on the model, so that arms are compared on the same atoms.

    Args:
        model: The network (`GraphormerModule.model`), on any device. Left as it was found.
        batches: The graphs, on any device. [CLS] is kept for all of them: (layers + 1) * G * C
            numbers.
        max_atoms: Largest M. All atoms are kept if there are no more.
        seed: Of the sample.

    Returns:
        Rows in the order of the batches, in the floating type of the model (float32 at least).

    Raises:
        ValueError: If there is no graph, or `max_atoms` is below 1.
    """
    if max_atoms < 1:
        raise ValueError(f"max_atoms is {max_atoms}: it must be at least 1")
    names = [*(f"layer {place + 1}" for place in range(len(model.layers))), OUTPUT]
    device = next(model.parameters()).device
    tokens: list[list[np.ndarray]] = [[] for _ in names]
    graph_ids, num_atoms = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    sample = _AtomSample(len(names), max_atoms)
    num_graphs = 0
    with torch.no_grad(), _evaluating(model), _rows_after_layers(model.layers) as after_layers:
        for given in batches:
            batch = given.to(device)
            after_layers.clear()
            outputs = torch.cat(model.encode(batch))
            ids, graph_of_atom, real = _atoms_of(batch)
            atom_counts = np.bincount(graph_of_atom, minlength=batch.num_graphs)
            keys = _keys(ids, atom_counts, graph_of_atom, seed)
            chosen = sample.offer(keys, graph_of_atom + num_graphs)
            atom_rows = torch.from_numpy(batch.num_graphs + real[chosen]).to(device)
            places = [*after_layers, outputs]
            for kept, rows in zip(tokens, places, strict=True):
                kept.append(_to_numpy(rows[: batch.num_graphs]))
            sample.add([_to_numpy(rows[atom_rows]) for rows in places])
            graph_ids.append(ids)
            num_atoms.append(atom_counts)
            num_graphs += batch.num_graphs
    if num_graphs == 0:
        raise ValueError("there are no graphs whose embeddings could be collected")
    atoms, graph_of_atom = sample.result()
    return ModelEmbeddings(
        layers=tuple(
            LayerEmbeddings(name, np.concatenate(token), rows, graph_of_atom)
            for name, token, rows in zip(names, tokens, atoms, strict=True)
        ),
        graph_ids=np.concatenate(graph_ids),
        num_atoms=np.concatenate(num_atoms),
    )


class _AtomSample:
    """The atoms with the smallest keys of all that were offered, in the order of the offers.

    `offer` says which of the atoms of a batch are worth keeping, then `add` takes their rows.
    """

    def __init__(self, places: int, size: int) -> None:
        self._size = size
        self._bound = np.inf  # the atoms in the sample at the last tidying lie below it
        self._keys: list[np.ndarray] = []
        self._graphs: list[np.ndarray] = []
        self._rows: list[list[np.ndarray]] = [[] for _ in range(places)]
        self._held = 0

    def offer(self, keys: np.ndarray, graphs: np.ndarray) -> np.ndarray:
        chosen = np.flatnonzero(keys < self._bound)
        self._keys.append(keys[chosen])
        self._graphs.append(graphs[chosen])
        return chosen

    def add(self, rows: list[np.ndarray]) -> None:
        for kept, new in zip(self._rows, rows, strict=True):
            kept.append(new)
        self._held += len(rows[0])
        if self._held > 2 * self._size:
            self._tidy()

    def result(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the rows at each place, and the graph of each row."""
        self._tidy()
        return [rows for (rows,) in self._rows], self._graphs[0]

    def _tidy(self) -> None:
        keys = np.concatenate(self._keys)
        best = np.sort(np.argsort(keys, kind="stable")[: self._size])
        self._keys = [keys[best]]
        self._graphs = [np.concatenate(self._graphs)[best]]
        self._rows = [[np.concatenate(rows)[best]] for rows in self._rows]
        self._held = len(best)
        if self._held == self._size:
            self._bound = self._keys[0].max()


def _keys(ids: np.ndarray, counts: np.ndarray, graph_of_atom: np.ndarray, seed: int) -> np.ndarray:
    """Draw a random number per atom from (seed, number of its graph, place in its graph)."""
    keys = np.empty(len(graph_of_atom))
    start = np.cumsum(counts) - counts
    order = np.argsort(graph_of_atom, kind="stable")
    for number, first, count in zip(ids.tolist(), start.tolist(), counts.tolist(), strict=True):
        keys[order[first : first + count]] = np.random.default_rng([seed, number]).random(count)
    return keys


def _atoms_of(batch: GraphBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return graph numbers ``[B]``, and of the atoms without filler their graphs and rows."""
    graph_of_atom = batch.graph_of_atom.cpu().numpy()
    real = np.arange(len(graph_of_atom))
    if batch.real_atoms is not None:
        real = np.flatnonzero(batch.real_atoms.cpu().numpy())
    return batch.graph_ids.cpu().numpy(), graph_of_atom[real], real


def _to_numpy(rows: Tensor) -> np.ndarray:
    wide = rows if rows.dtype == torch.float64 else rows.float()
    # A copy: what is kept of a batch must not keep all of it alive.
    return wide.cpu().numpy().copy()


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Set evaluation mode, and each module's own mode again at the end."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def _rows_after_layers(layers: nn.ModuleList) -> Iterator[list[Tensor]]:
    """Give a list to which each layer appends the packed rows ``[B + A, C]`` it returns."""
    recorded: list[Tensor] = []

    def record(layer: nn.Module, arguments: Any, rows: Tensor) -> None:
        recorded.append(rows)

    handles = [layer.register_forward_hook(record) for layer in layers]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()
