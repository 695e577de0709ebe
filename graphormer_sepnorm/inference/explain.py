"""Contributions of the atoms of a molecule to its prediction.

They come of comparing a molecule with itself, some atoms masked. A masked atom has the row of an
unknown atom, which is zero, instead of the rows of its features. It keeps its position: its degree,
its bonds and their kinds, its distances. The output with all atoms masked is the baseline.

G graphs · M atoms of all of them
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphormer_sepnorm.chem.drawing import draw_contributions, full_color
from graphormer_sepnorm.chem.molecules import ParsedMolecule
from graphormer_sepnorm.chem.scaffolds import fragments_of
from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs
from graphormer_sepnorm.inference.batching import by_size, in_chunks
from graphormer_sepnorm.model.graphormer import Graphormer

# Points of the path of integrated gradients; see docs/how-to/explain.md.
STEPS = 32


@dataclass(frozen=True)
class Subject:
    """Graphs, and the network whose prediction for them is explained."""

    network: Graphormer  # in evaluation mode
    target: int  # which of its outputs
    sizes: np.ndarray  # int64 [G], atoms of each graph
    fragments: Sequence[Sequence[Sequence[int]]]  # of each graph, the atoms of each of them
    # Gives a batch of the graphs with these indices, one of them several times perhaps.
    collate: Callable[[Sequence[int]], GraphBatch]
    batch_size: int  # graphs computed at once, where a method makes many of one

    def outputs(self, graphs: Sequence[int], masks: Sequence[np.ndarray]) -> np.ndarray:
        """Return the outputs for graphs some of whose atoms are masked.

        Args:
            graphs: Their indices; one may be there several times.
            masks: For each, which of its atoms are masked: bool ``[atoms]``.

        Returns:
            float64 ``[len(graphs)]``, standardized values or logits.
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
        """Return the outputs for the graphs with all atoms masked, or with none, ``[G]``."""
        masks = [np.full(size, masked) for size in self.sizes]
        return self.outputs(range(len(masks)), masks)


def integrated_gradients(subject: Subject) -> np.ndarray:
    """Return the contribution of each atom's features: these, times their mean gradient.

    The mean is over the straight path of the input tokens from the baseline, where all atoms are
    masked. Sundararajan, Taly and Yan 2017, "Axiomatic Attribution for Deep Networks" (arXiv
    1703.01365), Eq. 1, by Gauss-Legendre quadrature. Completeness: contributions and baseline add
    up to the output, but for the error of the quadrature.
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

    Fragments are rings and what is between them (`chem.scaffolds`); one is left out by masking it.
    After Wu et al. 2023, "Chemistry-intuitive explanation of graph neural networks for molecular
    property prediction with substructure masking" (Nature Communications 14, 2585).
    """
    graphs, masks, members = [], [], []
    for graph, (size, fragments) in enumerate(zip(subject.sizes, subject.fragments, strict=True)):
        first = int(subject.sizes[:graph].sum())
        for atoms in fragments:
            graphs.append(graph)
            masks.append(np.isin(np.arange(size), atoms))
            members.append(first + np.asarray(atoms))
    contributions = np.zeros(subject.sizes.sum())
    effects = subject.with_all(False)[graphs] - subject.outputs(graphs, masks)
    for atoms, effect in zip(members, effects, strict=True):
        contributions[atoms] = effect / len(atoms)
    return contributions


METHODS: dict[str, Callable[[Subject], np.ndarray]] = {
    method.__name__: method for method in (integrated_gradients, leave_one_fragment_out)
}


def _masked(batch: GraphBatch, hidden: Tensor) -> GraphBatch:
    """Return the batch with some atoms masked; `hidden` is bool ``[M]``."""
    return replace(batch, atom_rows=batch.atom_rows.masked_fill(hidden[:, None], 0))


def _to_numpy(values: Tensor) -> np.ndarray:
    return values.detach().double().cpu().numpy()


@dataclass(frozen=True, eq=False)
class Explanation:
    """What the atoms of a molecule contribute to its prediction.

    Attributes:
        smiles: As given; of SDF records canonical.
        read_as: What the model read, whose atoms the contributions are of: `smiles`, or that of the
            standardized molecule.
        molecule: As RDKit reads that; None where it cannot be read.
        prediction: Of the model: real unit or probability; nan where there is an error.
        value: Of its network, which is explained: real unit or log-odds; the mean of the members of
            an ensemble, without the trees of a blend.
        baseline: The value when all atoms are unknown.
        contributions: float64 ``[atoms]``, in the order of `read_as`.
        fragments: The atoms of each fragment (`fragments_of`).
        warning: What to know about the prediction; mostly the empty string.
        error: Why there is none; the empty string where there is one.
        id: What a table calls the molecule; may be empty.
    """

    smiles: str
    read_as: str = ""
    molecule: Any = None
    prediction: float = np.nan
    value: float = np.nan
    baseline: float = np.nan
    contributions: np.ndarray = field(default_factory=lambda: np.empty(0))
    fragments: tuple[tuple[int, ...], ...] = ()
    warning: str = ""
    error: str = ""
    id: str = ""

    @property
    def rest(self) -> float:
        """The difference between the value and baseline plus contributions."""
        return float(self.value - self.baseline - self.contributions.sum())

    @property
    def of_fragments(self) -> np.ndarray:
        """The sum of the contributions of each fragment, float64 ``[fragments]``."""
        return np.array([self.contributions[list(atoms)].sum() for atoms in self.fragments])

    def _repr_svg_(self) -> str | None:
        """Draw the molecule with its atoms colored; a notebook shows it."""
        if self.error:
            return None
        largest = full_color([self.contributions])
        return draw_contributions(self.molecule, self.contributions, largest)


@dataclass(frozen=True, eq=False)
class Explanations:
    """One explanation per molecule given, in the same order.

    Attributes:
        target: What is predicted.
        unit: Of the contributions.
        method: By which they were found.
        coverage: What of the prediction they do not cover; mostly the empty string.
        molecules: The explanations.
    """

    target: str
    unit: str
    method: str
    coverage: str
    molecules: tuple[Explanation, ...]


class Explainer:
    """Gives explanations where a predictor gives values.

    Args:
        predictor: A `Predictor`, whose file imports this one.
        target: Which of its targets; None: the only one.
        method: One of `METHODS`; None: the one that found the truth better in networks of this norm
            (docs/how-to/explain.md).

    Attributes:
        predictor: That one.
        unit: Of the contributions.
        target_unit: Of the prediction, another one where log-odds or logarithms are explained.
        coverage: See `Explanations`.

    Raises:
        ConfigError: There is no such target or method, or none of several targets is named.
    """

    def __init__(
        self, predictor: Any, target: str | None = None, method: str | None = None
    ) -> None:
        task = predictor.task
        _ = predictor.reader.featurizer  # or there is nothing to explain
        # In evaluation BatchNorm is linear. LayerNorm is not, least of all near a masked atom,
        # where the way of integrated gradients begins.
        on_the_way = predictor.model.config.norm.endswith("bn")
        best = integrated_gradients if on_the_way else leave_one_fragment_out
        self.method = best.__name__ if method is None else method
        if self.method not in METHODS:
            raise ConfigError(
                f"there is no method {self.method!r}{did_you_mean(self.method, METHODS)}; there "
                f"are: {', '.join(METHODS)}"
            )
        self.predictor = predictor
        self._number = number = task.number_of(target, "explain")
        self.target = task.targets[number]
        self.unit = self.target_unit = task.units[number]
        self._scale, self._shift = 1.0, 0.0
        if task.kind == "binary":
            self.unit = "log-odds"
        else:
            self._scale = float(predictor.facts["target_std"][number])
            self._shift = float(predictor.facts["target_mean"][number])
        if self.target in task.logarithmic:
            self.unit = f"of ln {self.target_unit}".strip()
        # Copies: gradients by the weights would be work for nothing, and those of others stay.
        self._networks = [
            copy.deepcopy(network).requires_grad_(False) for network in predictor.networks
        ]
        others, extra, blend = [], listed(predictor.extra_inputs), predictor.blend
        if blend is not None and blend.known[number]:
            others.append(f"the {'trees and kernel' if blend.kernel else 'trees'} of the blend")
        known = predictor.uncertainty
        if known is not None and known.calibrated_by(number) != "none":
            others.append("calibration")
        without = f"explained is the value of the network, without {', '.join(others)}"
        inside = f"the effect of {extra} is in the baseline, not in atoms"
        self.coverage = "; ".join([without] * bool(others) + [inside] * bool(extra))

    def explain(
        self, smiles: tuple[Any, ...], batch_size: int, max_atoms: int, columns: np.ndarray
    ) -> Explanations:
        """See `Predictor.explain`; `columns` as for `Predictor.predict_molecules`."""
        explain, options = self.explain_molecules, (batch_size, max_atoms)
        parts = in_chunks(
            smiles, lambda some, rows: explain(some, smiles[rows], *options, columns[rows])
        )
        molecules = tuple(itertools.chain(*parts))
        return Explanations(self.target, self.unit, self.method, self.coverage, molecules)

    def explain_molecules(
        self,
        molecules: Sequence[ParsedMolecule],
        smiles: Sequence[str],
        batch_size: int,
        max_atoms: int,
        columns: np.ndarray,
    ) -> list[Explanation]:
        """Return the explanations of molecules that are parsed already; see `explain`."""
        predictor = self.predictor
        molecules = predictor.reader.prepared(molecules)
        predicted = predictor.predict_molecules(molecules, batch_size, max_atoms, columns)
        found = [
            Explanation(
                text,
                parsed.standard or text,
                parsed.molecule,
                prediction=float(predicted.values[row, self._number]),
                warning=predicted.warnings[row],
                error=predicted.errors[row],
            )
            for row, (text, parsed) in enumerate(zip(smiles, molecules, strict=True))
        ]
        graphs, places, _, _ = predictor.reader.featurize(molecules, max_atoms)
        good = [index for index, place in enumerate(places) if not predicted.errors[place]]
        graphs, places = graphs.take(np.array(good, np.int64)), places[good]
        graphs = replace(graphs, extra=np.asarray(columns[places], np.float32))
        for rows in by_size(graphs.num_atoms, batch_size):
            own = [found[place] for place in places[rows]]
            explained = self._explain(graphs.take(rows), own, batch_size)
            for place, explanation in zip(places[rows], explained, strict=True):
                found[place] = explanation
        return found

    def _explain(
        self, graphs: PackedGraphs, found: Sequence[Explanation], batch_size: int
    ) -> Iterator[Explanation]:
        """Yield the explanations of the molecules of a batch, whose graphs these are."""
        orders = [self.predictor.reader.atom_order(one.molecule) for one in found]
        fragments = [fragments_of(one.molecule) for one in found]
        in_graphs = [
            [order[list(atoms)].tolist() for atoms in own]
            for order, own in zip(orders, fragments, strict=True)
        ]
        collate, sizes = self.predictor.collator(graphs), graphs.num_atoms
        # Of each network: value and baseline of each molecule, contributions of all atoms.
        each = []
        for network in self._networks:
            subject = Subject(network, self._number, sizes, in_graphs, collate, batch_size)
            whole, baseline = subject.with_all(False), subject.with_all(True)
            each.append(np.concatenate([whole, baseline, METHODS[self.method](subject)]))
        parts = np.split(np.mean(each, axis=0) * self._scale, [len(found), 2 * len(found)])
        of_molecules = np.split(parts[2], np.cumsum(sizes)[:-1])
        for index, one in enumerate(found):
            yield replace(
                one,
                value=float(parts[0][index] + self._shift),
                baseline=float(parts[1][index] + self._shift),
                contributions=of_molecules[index][orders[index]],
                fragments=tuple(fragments[index]),
            )
