"""Why a model says what it says of a molecule: contributions of its atoms to the prediction.

They come of comparing a molecule with itself, some atoms masked. A masked atom has the row of an
unknown atom, which is zero, instead of the rows of its features. It keeps its position: its degree,
its bonds and their kinds, its distances. What the network says when all atoms are masked is the
baseline.

G graphs · M atoms of all of them
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphormer_sepnorm.chem.drawing import draw_contributions, full_color
from graphormer_sepnorm.chem.fragments import fragments_of
from graphormer_sepnorm.chem.molecules import MAX_ATOMS, ParsedMolecule
from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.graphs.batch import Collator, GraphBatch
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.inference.batching import BATCH_SIZE, by_size, in_chunks
from graphormer_sepnorm.model.graphormer import Graphormer

# Points of the path of integrated gradients; docs/explaining.md has what more of them change.
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
    """Return the method that found the truth better in networks of a norm (docs/explaining.md).

    In evaluation BatchNorm is linear. LayerNorm is not, least of all near a masked atom, where the
    way of `integrated_gradients` begins.
    """
    return (integrated_gradients if norm.endswith("bn") else leave_one_fragment_out).__name__


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
            standardised molecule.
        molecule: As RDKit reads that; None where it cannot be read.
        prediction: What the model predicts: real unit or probability; nan where there is an error.
        value: What its network says, which is explained: real unit or log-odds; the mean of the
            members of an ensemble. Trees of a blend are not in it.
        baseline: What the network says when all atoms are unknown.
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
        """What baseline and contributions lack of the value."""
        return float(self.value - self.baseline - self.contributions.sum())

    def _repr_svg_(self) -> str | None:
        """Draw the molecule with its atoms coloured; a notebook shows it."""
        if self.error:
            return None
        largest = full_color([self.contributions])
        return draw_contributions(self.molecule, self.contributions, largest)

    @property
    def of_fragments(self) -> np.ndarray:
        """The sum of the contributions of each fragment, float64 ``[fragments]``."""
        return np.array([self.contributions[list(atoms)].sum() for atoms in self.fragments])


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
        method: One of `METHODS`; None: `default_method` of the network's norm.

    Attributes:
        unit: Of the contributions.
        coverage: See `Explanations`.
        binary: Whether the prediction is a probability, and what is explained its log-odds.
        columns: What the network reads from a table beside the molecule.

    Raises:
        ConfigError: There is no such target or method, or none of several targets is named.
    """

    def __init__(
        self, predictor: Any, target: str | None = None, method: str | None = None
    ) -> None:
        task = predictor.task
        config = predictor.networks[0].config
        self.method = default_method(config.norm) if method is None else method
        if self.method not in METHODS:
            raise ConfigError(
                f"there is no method {self.method!r}{did_you_mean(self.method, METHODS)}; there "
                f"are: {', '.join(METHODS)}"
            )
        _ = predictor.reader.featuriser  # or there is nothing to explain
        self._number = task.number_of(target, "explain")
        self.target = task.targets[self._number]
        self.binary = task.kind == "binary"
        self.unit = "log-odds" if self.binary else task.units[self._number]
        self._scale, self._shift = 1.0, 0.0
        if not self.binary:
            self._scale = float(predictor.facts["target_std"][self._number])
            self._shift = float(predictor.facts["target_mean"][self._number])
        self.columns = predictor.extra_inputs.columns
        self.device = predictor.device
        self._predictor = predictor
        # Copies: gradients by the weights would be work for nothing, and those of others stay.
        self._networks = [
            copy.deepcopy(network).requires_grad_(False) for network in predictor.networks
        ]
        self._path_length = config.max_path_length
        self.coverage = "; ".join(self._left_out())

    def _left_out(self) -> Iterator[str]:
        """Say what of the prediction is not explained."""
        blend, uncertainty = self._predictor.blend, self._predictor.uncertainty
        others, averaged = [], self.binary and len(self._networks) > 1
        if blend is not None and blend.trees.known[self._number]:
            if blend.stacking is not None or blend.weights[self._number] < 1:
                others.append(f"trees ({1 - blend.weights[self._number]:.0%} of the blend)")
            averaged &= blend.stacking is None  # else log-odds are averaged
        if blend is not None and blend.exclusive:
            others.append("that classes add up to 1")
        if averaged:
            others.append("that probabilities of members are averaged, not log-odds")
        if uncertainty is not None and uncertainty.calibrated_by(self._number) != "none":
            others.append("calibration")
        if others:
            yield f"explained is what the network says, without {', '.join(others)}"
        if extra := self._predictor.extra_inputs.in_words():
            yield f"what the network reads from {extra} is in the baseline, not in atoms"

    def explain(
        self,
        smiles: tuple[Any, ...],
        batch_size: int = BATCH_SIZE,
        max_atoms: int = MAX_ATOMS,
        columns: np.ndarray | None = None,
    ) -> Explanations:
        """See `Predictor.explain`; `columns` as for `Predictor.predict_molecules`."""
        parts = in_chunks(
            smiles,
            lambda molecules, rows: self.explain_molecules(
                molecules,
                smiles[rows],
                batch_size,
                max_atoms,
                None if columns is None else columns[rows],
            ),
        )
        molecules = tuple(one for part in parts for one in part)
        return Explanations(self.target, self.unit, self.method, self.coverage, molecules)

    def explain_molecules(
        self,
        molecules: Sequence[ParsedMolecule],
        smiles: Sequence[str],
        batch_size: int = BATCH_SIZE,
        max_atoms: int = MAX_ATOMS,
        columns: np.ndarray | None = None,
    ) -> list[Explanation]:
        """Return the explanations of molecules that are parsed already; see `explain`."""
        reader = self._predictor.reader
        molecules = reader.prepared(molecules)
        predicted = self._predictor.predict_molecules(molecules, batch_size, max_atoms, columns)
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
        graphs, places, _, _ = reader.featurize(molecules, max_atoms)
        good = [number for number, place in enumerate(places) if not predicted.errors[place]]
        if graphs is None or not good:
            return found
        graphs, places = graphs.take(good), places[good]
        understood = [molecules[place].molecule for place in places]
        own = None if columns is None else columns[places]
        graphs = self._predictor.with_extra(graphs, understood, own)
        for rows in by_size(graphs.num_atoms, batch_size):
            chosen = [found[place] for place in places[rows]]
            explained = self._explain(graphs.take(rows), chosen, batch_size)
            for place, explanation in zip(places[rows], explained, strict=True):
                found[place] = explanation
        return found

    def _explain(
        self, graphs: PackedGraphs, found: Sequence[Explanation], batch_size: int
    ) -> Iterator[Explanation]:
        """Yield the explanations of the molecules of a batch, whose graphs these are."""
        orders = [self._predictor.reader.atom_order(one.molecule) for one in found]
        fragments = [fragments_of(one.molecule) for one in found]
        collate = Collator(
            GraphStore.from_graphs([graphs], self._path_length), self._predictor.vocabulary
        )
        # Of each network: value and baseline of each molecule, contributions of all atoms.
        values, baselines, contributions = [], [], []
        for network in self._networks:
            subject = Subject(
                network,
                self._number,
                graphs.num_atoms,
                [
                    [order[list(atoms)].tolist() for atoms in own]
                    for order, own in zip(orders, fragments, strict=True)
                ],
                lambda numbers: collate(numbers).to(self._predictor.device),
                batch_size,
            )
            values.append(subject.with_all(False))
            baselines.append(subject.with_all(True))
            contributions.append(METHODS[self.method](subject))
        value, baseline = (
            np.mean(each, axis=0) * self._scale + self._shift for each in (values, baselines)
        )
        contribution = np.mean(contributions, axis=0) * self._scale
        of_molecules = np.split(contribution, np.cumsum(graphs.num_atoms)[:-1])
        for place, one in enumerate(found):
            yield replace(
                one,
                value=float(value[place]),
                baseline=float(baseline[place]),
                contributions=of_molecules[place][orders[place]],
                fragments=tuple(fragments[place]),
            )
