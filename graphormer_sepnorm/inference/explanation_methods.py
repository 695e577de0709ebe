"""Which atoms make a prediction: the ways to share it out over them.

They compare a molecule with itself, some atoms masked. A masked atom has the row of an unknown
atom, which is zero, in place of the rows of its features. It keeps its place: its degree, its bonds
and their kinds, its distances. What the network says when all atoms are masked is the baseline.

G graphs · M atoms of all of them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.inference.batching import by_size
from graphormer_sepnorm.model.graphormer import Graphormer

# Points of the path of integrated gradients; see docs/how-to/explain.md.
STEPS = 32


@dataclass(frozen=True)
class Subject:
    """Graphs, and the network whose prediction for them is explained.

    Attributes:
        network: In evaluation mode.
        target: Which of its outputs.
        sizes: int64 ``[G]``, atoms of each graph.
        fragments: Of each graph the atoms of each of its fragments, numbered in the graph.
        collate: Gives a batch of the graphs with these numbers, one of them several times perhaps.
        batch_size: Graphs computed at once, where a method makes many of one.
    """

    network: Graphormer
    target: int
    sizes: np.ndarray
    fragments: Sequence[Sequence[Sequence[int]]]
    collate: Callable[[Sequence[int]], GraphBatch]
    batch_size: int

    def outputs(self, graphs: Sequence[int], masks: Sequence[np.ndarray]) -> np.ndarray:
        """Return what the network says of graphs some of whose atoms are masked.

        Args:
            graphs: Their numbers; one may be there several times.
            masks: For each, which of its atoms are masked: bool ``[atoms]``.

        Returns:
            float64 ``[len(graphs)]``, standardised values or logits.
        """
        chosen = np.asarray(graphs, np.int64)
        outputs = np.empty(len(chosen))
        for places in by_size(self.sizes[chosen], self.batch_size):
            batch = self.collate(chosen[places].tolist())
            hidden = torch.from_numpy(np.concatenate([masks[place] for place in places]))
            with torch.inference_mode():
                values = self.network(_masked(batch, hidden.to(batch.atom_rows.device)))
            outputs[places] = _to_numpy(values[:, self.target])
        return outputs

    def with_all(self, masked: bool) -> np.ndarray:
        """Return what it says of the graphs with all atoms masked, or with none, ``[G]``."""
        masks = [np.full(size, masked) for size in self.sizes]
        return self.outputs(range(len(masks)), masks)


def integrated_gradients(subject: Subject) -> np.ndarray:
    """Return what each atom's features contribute: these, times their mean gradient.

    The mean is on the way from the baseline, where all atoms are masked, of the tokens as they
    enter the network. Sundararajan, Taly and Yan 2017, "Axiomatic Attribution for Deep Networks"
    (arXiv 1703.01365), Eq. 1, by Gauss-Legendre quadrature. Completeness: contributions and
    baseline add up to what the network says, but for the error of the quadrature.
    """
    network, batch = subject.network, subject.collate(range(len(subject.sizes)))
    with torch.no_grad():
        everything = torch.ones_like(batch.graph_of_atom, dtype=torch.bool)
        start = network.embedding(_masked(batch, everything))
        features = network.embedding(batch) - start
    points, weights = np.polynomial.legendre.leggauss(STEPS)
    mean = torch.zeros_like(features)
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        rows = (start + point * features).requires_grad_()
        hook = network.embedding.register_forward_hook(lambda *_, rows=rows: rows)
        try:
            outputs = network(batch)[:, subject.target]
        finally:
            hook.remove()
        # In evaluation no graph hears of another: the gradient of the sum is that of each.
        [gradient] = torch.autograd.grad(outputs.sum(), [rows])
        mean += weight * gradient
    return _to_numpy((features * mean).sum(1)[batch.num_graphs :])


def leave_one_fragment_out(subject: Subject) -> np.ndarray:
    """Return by how much the value is higher than without a fragment, shared out over its atoms.

    Fragments are rings and what is between them (`chem.fragments`); one is left out by masking it.
    After Wu et al. 2023, "Chemistry-intuitive explanation of graph neural networks for molecular
    property prediction with substructure masking" (Nature Communications 14, 2585).
    """
    graphs, masks, atoms_of = [], [], []
    first = 0
    for graph, (size, fragments) in enumerate(zip(subject.sizes, subject.fragments, strict=True)):
        for atoms in fragments:
            mask = np.zeros(size, dtype=bool)
            mask[list(atoms)] = True
            graphs.append(graph)
            masks.append(mask)
            atoms_of.append(first + np.asarray(atoms))
        first += size
    contributions = np.zeros(first)
    effects = subject.with_all(False)[graphs] - subject.outputs(graphs, masks)
    for atoms, effect in zip(atoms_of, effects, strict=True):
        contributions[atoms] = effect / len(atoms)
    return contributions


METHODS: dict[str, Callable[[Subject], np.ndarray]] = {
    method.__name__: method for method in (integrated_gradients, leave_one_fragment_out)
}


def default_method(norm: str) -> str:
    """Return the method that found the truth better for a norm (docs/how-to/explain.md).

    In evaluation BatchNorm is linear. LayerNorm is not, least of all near a masked atom, where the
    way of `integrated_gradients` begins.
    """
    return (integrated_gradients if norm.endswith("bn") else leave_one_fragment_out).__name__


def _masked(batch: GraphBatch, hidden: Tensor) -> GraphBatch:
    """Return the batch with some atoms masked; `hidden` is bool ``[M]``."""
    return replace(batch, atom_rows=batch.atom_rows.masked_fill(hidden[:, None], 0))


def _to_numpy(values: Tensor) -> np.ndarray:
    return values.detach().double().cpu().numpy()
