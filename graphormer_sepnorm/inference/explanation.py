"""Why a model says what it says of a molecule: the contributions of its atoms to the prediction."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from graphormer_sepnorm.chem.drawing import draw_contributions, full_colour
from graphormer_sepnorm.chem.fragments import fragments_of
from graphormer_sepnorm.chem.molecules import MAX_ATOMS, ParsedMolecule
from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.inference.batching import BATCH_SIZE, by_size, in_chunks
from graphormer_sepnorm.inference.explanation_methods import (
    METHODS,
    Subject,
    default_method,
)

_NOTHING = np.empty(0)


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
    contributions: np.ndarray = field(default_factory=_NOTHING.copy)
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
        largest = full_colour([self.contributions])
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
        blend, confidence = self._predictor.blend, self._predictor.confidence
        others, averaged = [], self.binary and len(self._networks) > 1
        if blend is not None and blend.trees.known[self._number]:
            if blend.stacking is not None or blend.weights[self._number] < 1:
                others.append(f"trees ({1 - blend.weights[self._number]:.0%} of the blend)")
            averaged &= blend.stacking is None  # else log-odds are averaged
        if blend is not None and blend.exclusive:
            others.append("that classes add up to 1")
        if averaged:
            others.append("that probabilities of members are averaged, not log-odds")
        if confidence is not None and confidence.calibrated_by(self._number) != "none":
            others.append("calibration")
        if others:
            yield f"explained is what the network says, without {', '.join(others)}"
        if extra := self._predictor.extra_inputs.in_words():
            yield f"what the network reads from {extra} is in the baseline, not in atoms"

    def explain(
        self,
        smiles: Sequence[str],
        batch_size: int = BATCH_SIZE,
        max_atoms: int = MAX_ATOMS,
        columns: np.ndarray | None = None,
    ) -> Explanations:
        """See `Predictor.explain`; `columns` as for `Predictor.predict_molecules`."""
        _, parts = in_chunks(
            smiles,
            lambda molecules, texts, rows: self.explain_molecules(
                molecules, texts, batch_size, max_atoms, None if columns is None else columns[rows]
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
        graphs, places, _, _ = reader.featurise(molecules, max_atoms)
        good = [number for number, place in enumerate(places) if not predicted.errors[place]]
        if graphs is None or not good:
            return found
        graphs, places = graphs.take(good), places[good]
        understood = [molecules[place].molecule for place in places]
        own = None if columns is None else columns[places]
        graphs = self._predictor.with_extra(graphs, understood, own)
        for numbers in by_size(graphs.num_atoms, batch_size):
            explained = self._explain(
                graphs.take(numbers), [found[place] for place in places[numbers]], batch_size
            )
            for place, explanation in zip(places[numbers], explained, strict=True):
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
