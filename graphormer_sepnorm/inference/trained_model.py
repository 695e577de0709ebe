"""A trained model and molecules that are parsed: their graphs, and what it predicts for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from graphormer_sepnorm.baselines.blend import Blend
from graphormer_sepnorm.chem.descriptors import compute_descriptors
from graphormer_sepnorm.chem.features import get_featuriser
from graphormer_sepnorm.chem.featuriser import Featuriser
from graphormer_sepnorm.chem.molecules import MAX_ATOMS, ParsedMolecule, count_pieces
from graphormer_sepnorm.chem.standardise import standardised
from graphormer_sepnorm.errors import CheckpointError, ConfigError, DataError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.graphs.batch import Collator, GraphBatch
from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs, packed_blocks
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.inference.batching import BATCH_SIZE, by_size
from graphormer_sepnorm.inference.beside import Asked, Beside
from graphormer_sepnorm.inference.checkpoint import (
    BLEND,
    CONFIDENCE,
    KEY,
    networks_of,
)
from graphormer_sepnorm.inference.network import build_network
from graphormer_sepnorm.inference.predictions import Predictions
from graphormer_sepnorm.inference.unseen_codes import UnseenCodes
from graphormer_sepnorm.uncertainty.uncertainty import Inputs, Uncertainty


class Featurised(NamedTuple):
    """What became of some molecules.

    Attributes:
        graphs: Of those that the model understands, in their order; None: it understands none.
        places: int64 ``[len(graphs)]``, which of the molecules these are.
        errors: For each molecule the reason why it has no graph, or the empty string.
        warnings: For each molecule what to know about its graph; mostly the empty string.
    """

    graphs: PackedGraphs | None
    places: np.ndarray
    errors: list[str]
    warnings: list[str]


def with_remarks(molecules: Sequence[ParsedMolecule], warnings: Sequence[str]) -> tuple[str, ...]:
    """Return warnings with what was not read of each molecule: no matter of the model's domain."""
    both = zip((one.remark for one in molecules), warnings, strict=True)
    return tuple("; ".join(filter(None, texts)) for texts in both)


def usable_device(device: str | None) -> str:
    """Return where to compute; None: a GPU if there is one.

    Raises:
        ConfigError: The device is not there.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1).to(device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        if reason.startswith("Expected one of"):  # two dozen kinds that torch might have
            reason = "there is no such kind"
        raise ConfigError(
            f"device {device!r} cannot be used ({reason}): give cpu, or cuda where torch finds a "
            "GPU"
        ) from error
    return device


class TrainedModel:
    """What a checkpoint holds: a network, or an ensemble, which predicts the mean.

    Args:
        checkpoint: What `read_checkpoint` gives.
        device: Where to compute; None: a GPU if there is one.
        refuse_new_elements: A molecule with an element that did not occur in training gets an
            error. Else it gets a warning, and the model takes such an atom for nothing at all.

    Attributes:
        task: What is predicted.
        model: The network, in evaluation mode; of an ensemble the first.
        networks: All of them: one, or the members of an ensemble.
        vocabulary: The codes of atoms and bonds that it knows.
        extra_inputs: What the networks read beside a molecule's graph.
        blend: Trees whose values are mixed with those of the network; None: there are none.
        confidence: How sure it is; None: it does not know.
        facts: All that the checkpoint knows, see `graphormer_sepnorm.inference.checkpoint`.

    Raises:
        ConfigError: The device is not there.
        CheckpointError: The model was trained by features or with a network that this version does
            not know; or it needs a descriptor that this release of RDKit lacks.
    """

    def __init__(
        self,
        checkpoint: dict[str, Any],
        device: str | None = None,
        refuse_new_elements: bool = True,
    ) -> None:
        self.refuse_new_elements = refuse_new_elements
        self.facts: dict[str, Any] = checkpoint[KEY]
        self.task = Task.from_plain(self.facts["task"])
        self.device = usable_device(device)
        self.vocabulary = GraphVocabulary.from_plain(self.facts["vocabulary"])
        summary = self.facts.get("training_summary") or {}
        self._featuriser: Featuriser | None = None
        if (name := self.facts["featuriser"]) is not None:
            try:
                self._featuriser = get_featuriser(name)
            except ConfigError as error:
                raise CheckpointError(
                    f"the model takes features that this version does not make ({error}): use the "
                    "version of graphormer_sepnorm that wrote it"
                ) from error
            _compare(self.vocabulary, self._featuriser)
            self._unseen = UnseenCodes(self._featuriser, self.vocabulary, summary.get("elements"))
        self._steps = tuple(self.facts.get("standardise", ()))
        self._largest_seen = summary["atoms"]["max"] if "atoms" in summary else None
        self._only_connected = summary.get("connected", False)
        self.extra_inputs = ExtraInputs.of_facts(self.facts)
        try:
            compute_descriptors([], self.extra_inputs.descriptors)
        except DataError as error:
            raise CheckpointError(str(error)) from error
        self._mean = np.asarray(self.facts["target_mean"])
        self._std = np.asarray(self.facts["target_std"])
        self.blend = Blend.from_plain(checkpoint[BLEND]) if BLEND in checkpoint else None
        self.confidence = (
            Uncertainty.from_plain(checkpoint[CONFIDENCE], self.task.kind)
            if CONFIDENCE in checkpoint
            else None
        )
        by_default = Asked.by_default(self.confidence, self.task)
        self._beside = Beside(by_default, self.confidence, self.task)
        # Without weight they are asked only where intervals need them.
        self._asks_trees = self.blend is not None and (
            self.blend.changes or (self.confidence is not None and "apart" in self.confidence.uses)
        )
        with torch.random.fork_rng(devices=[]):  # drawn from for weights that are replaced
            self.networks = [
                build_network(self.facts["model"], weights) for weights in networks_of(checkpoint)
            ]
        self.model = self.networks[0]
        for network in self.networks:
            network.to(self.device).eval()

    def __repr__(self) -> str:
        each = zip(self.task.targets, self.task.units, strict=True)
        targets = listed([f"{name} [{unit}]" if unit else name for name, unit in each])
        config, count = self.model.config, len(self.networks)
        networks = f"{count} networks" if count > 1 else "a network"
        trees = " and trees" if self.blend is not None else ""
        return (
            f"{type(self).__name__}({targets}; {networks} of {config.layers} layers with "
            f"{config.norm}{trees}, on {self.device})"
        )

    @property
    def featuriser(self) -> Featuriser:
        """What makes graphs of molecules.

        Raises:
            CheckpointError: The model was trained on graphs that are not made from SMILES.
        """
        if self._featuriser is None:
            raise CheckpointError(
                f"this model was trained on the graphs of {self.facts['dataset']}, which are not "
                "made from SMILES: evaluate it with train.py test, or from Python give graphs to "
                "predict_graphs"
            )
        return self._featuriser

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers that are predicted, as in `Predictions.numbers`."""
        return self._beside.columns(several=len(self.networks) > 1)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Names of what is said beside the numbers, as in `Predictions.texts`."""
        return self._beside.text_columns

    @property
    def asked(self) -> Asked:
        """What predictions come with, see `ask`."""
        return self._beside.asked

    @property
    def thresholds(self) -> dict[str, float]:
        """Of each target, from which probability on a molecule is called class 1.

        nan where too little is known of it; empty where no threshold was asked for (`ask`).
        """
        if self.asked.threshold is None:
            return {}
        return {name: self._beside.threshold(at) for at, name in enumerate(self.task.targets)}

    def ask(
        self,
        interval: float | None = None,
        neighbours: int = 0,
        threshold: float | str | None = None,
    ) -> Self:
        """Say what predictions shall come with from now on.

        A model that knows its errors gives intervals of level 0.9 for real values without being
        asked. For classes an interval is a set: the classes that a molecule may be of.

        Args:
            interval: Level, above 0 and below 1; None: no intervals.
            neighbours: How many of the most similar molecules of training to name.
            threshold: From which probability on a molecule is called class 1: a number, ``mcc`` or
                ``f1``.

        Returns:
            Itself.

        Raises:
            ConfigError: The model cannot give it, or a value cannot be.
        """
        asked = Asked(interval, neighbours, threshold)
        self._beside = Beside(asked, self.confidence, self.task)
        return self

    def predict_molecules(
        self,
        molecules: Sequence[ParsedMolecule],
        batch_size: int = BATCH_SIZE,
        max_atoms: int = MAX_ATOMS,
        columns: np.ndarray | None = None,
    ) -> Predictions:
        """Predict the properties of molecules that are parsed already; see `Predictor.predict`.

        `columns` are the values of ``extra_inputs.columns``, ``[n, C]``; None: there are none.
        """
        molecules = self.prepared(molecules)
        each = np.full((len(self.networks), len(molecules), len(self.task.targets)), np.nan)
        apart = each[0].copy()
        distance = np.full(len(molecules), np.nan)
        tokens = None if self.confidence is None else self.confidence.tokens
        graphs, places, errors, warnings = self.featurise(molecules, max_atoms)
        if graphs is not None:
            understood = [molecules[place].molecule for place in places]
            own = None if columns is None else columns[places]
            graphs = self.with_extra(graphs, understood, own)
            for place, row in zip(places, graphs.extra, strict=True):
                remarks = [warnings[place], *self.extra_inputs.remarks(row)]
                warnings[place] = "; ".join(filter(None, remarks))
            for numbers in by_size(graphs.num_atoms, batch_size):
                each[:, places[numbers]], seen = self._values(graphs.take(numbers))
                if tokens is not None:
                    distance[places[numbers]] = tokens.of(seen)
        values = each.mean(axis=0)
        spread = each.std(axis=0, ddof=1) if len(each) > 1 else None
        if graphs is not None and self.blend is not None and self._asks_trees:
            names = self.extra_inputs.descriptors
            descriptors, beside = np.hsplit(graphs.extra, [len(names)])
            trees = self.blend.trees_of_molecules(understood, beside, (names, descriptors))
            apart[places] = self.blend.apart(values[places], trees)
            values[places], disagree = self.blend.combined(each[:, places], trees)
            if spread is not None:
                spread[places] = disagree
        for place in places[~np.isfinite(values[places]).all(axis=1)].tolist():
            values[place], warnings[place] = np.nan, ""
            if spread is not None:
                spread[place] = np.nan
            errors[place] = "the model gives no finite value for it"
        predictions = Predictions((), values, tuple(errors), tuple(warnings), spread)
        inputs = Inputs(
            values,
            spread,
            None if self.blend is None else apart,
            None if tokens is None else distance,
        )
        found = self._beside.added(predictions, inputs, [one.molecule for one in molecules])
        return replace(
            found,
            warnings=with_remarks(molecules, found.warnings),
            columns=self.columns,
            text_columns=self.text_columns,
        )

    def predict_graphs(self, graphs: Sequence[Any], batch_size: int = BATCH_SIZE) -> Predictions:
        """Predict for graphs of your own, with the codes that the model was trained on.

        Args:
            graphs: PyG's ``Data``, see `GraphBatch.from_data_list`; ``y`` is not read. One with an
                atom whose first code did not occur in training gets an error.
            batch_size: Graphs computed at once; the values do not depend on it.

        Raises:
            DataError: A graph is not of this form.
            ConfigError: The model reads more than graphs: trees, or numbers beside them.
        """
        if self.blend is not None or self.extra_inputs.descriptors or self.extra_inputs.columns:
            raise ConfigError("the model reads more than graphs: give SMILES to predict")
        targets, several = self.task.targets, len(self.networks) > 1
        values = np.full((len(self.networks), len(graphs), len(targets)), np.nan)
        errors = [""] * len(graphs)
        if len(graphs):
            packed = PackedGraphs.concatenate([*packed_blocks(graphs)])
            new = self.vocabulary.new_elements(packed.atom_codes)
            for number in np.arange(len(graphs)).repeat(packed.num_atoms)[new].tolist():
                errors[number] = "not understood by this model: an atom's first code is new to it"
            for numbers in by_size(packed.num_atoms, batch_size):
                values[:, numbers], _ = self._values(packed.take(numbers))
            values[:, [bool(error) for error in errors]] = np.nan
        return Predictions(
            (),
            values.mean(axis=0),
            tuple(errors),
            ("",) * len(graphs),
            values.std(axis=0, ddof=1) if several else None,
            columns=tuple(
                f"{kind}_{name}" for name in targets for kind in ["pred"] + ["spread"] * several
            ),
        )

    @property
    def standardises(self) -> bool:
        """Whether molecules are brought to a standard form first."""
        return bool(self._steps)

    def prepared(self, molecules: Sequence[ParsedMolecule]) -> Sequence[ParsedMolecule]:
        """Return the molecules in the form that the model was trained on, see `standardised`."""
        return [standardised(one, self._steps) for one in molecules] if self._steps else molecules

    def featurise(
        self, molecules: Sequence[ParsedMolecule], max_atoms: int = MAX_ATOMS
    ) -> Featurised:
        """Return the graphs of the molecules that the model understands."""
        errors = [parsed.reason for parsed in molecules]
        warnings = [""] * len(molecules)
        chosen = {}
        for place, parsed in enumerate(molecules):
            if parsed.molecule is None:
                continue
            atoms = parsed.molecule.GetNumAtoms()
            if atoms <= max_atoms:
                chosen[place] = parsed.molecule
            else:
                errors[place] = f"too large: {atoms} atoms, the limit is {max_atoms} (--max_atoms)"
        graphs, reasons = self.featuriser.featurise_many([*chosen.values()])
        for place, reason in zip(chosen, reasons, strict=True):
            errors[place] = reason
        places = [place for place in chosen if not errors[place]]
        if graphs is None:
            return Featurised(None, np.array(places, dtype=np.int64), errors, warnings)
        unseen = [""] * len(graphs)
        for number in self._unseen.find(graphs):
            place = places[number]
            error, new = self._unseen.describe(graphs[number], chosen[place])
            errors[place], unseen[number] = (
                (error, new) if self.refuse_new_elements else ("", error or new)
            )
        understood = [number for number, place in enumerate(places) if not errors[place]]
        for number in understood:
            molecule = chosen[places[number]]
            remarks = [
                unseen[number],
                self.featuriser.remarks(molecule),
                self._size(int(graphs.num_atoms[number])),
                self._pieces(molecule),
            ]
            warnings[places[number]] = "; ".join(remark for remark in remarks if remark)
        if len(understood) < len(graphs):
            graphs = graphs.take(understood) if understood else None
        return Featurised(graphs, np.array(places, dtype=np.int64)[understood], errors, warnings)

    def with_extra(
        self, graphs: PackedGraphs, molecules: Sequence[Any], columns: np.ndarray | None
    ) -> PackedGraphs:
        """Return graphs with what the network reads beside them.

        Args:
            graphs: n of them.
            molecules: RDKit's, whose graphs these are.
            columns: The values of ``extra_inputs.columns``, ``[n, C]``; None: there are none.
        """
        descriptors = compute_descriptors(molecules, self.extra_inputs.descriptors)
        beside = graphs.extra if columns is None else np.asarray(columns, np.float32)
        return replace(graphs, extra=np.hstack([descriptors, beside]))

    def _size(self, atoms: int) -> str:
        if self._largest_seen is None or atoms <= self._largest_seen:
            return ""
        return f"{atoms} atoms; the largest molecule in training had {self._largest_seen}"

    def _pieces(self, molecule: Any) -> str:
        pieces = count_pieces(molecule) if self._only_connected else 1
        return f"{pieces} pieces; molecules in training had one" if pieces > 1 else ""

    def atom_order(self, molecule: Any) -> np.ndarray:
        """Return which atom of its graph each atom of a molecule is, int64 ``[atoms]``."""
        if self.featuriser.atom_order is None:
            return np.arange(molecule.GetNumAtoms())
        return np.asarray(self.featuriser.atom_order(molecule), dtype=np.int64)

    def collate(self, graphs: PackedGraphs) -> GraphBatch:
        """Return a batch for the network, of these graphs in this order."""
        store = GraphStore.from_graphs([graphs], self.model.config.max_path_length)
        return Collator(store, self.vocabulary)(range(len(graphs))).to(self.device)

    @torch.inference_mode()
    def _values(self, graphs: PackedGraphs) -> tuple[np.ndarray, np.ndarray]:
        """What each network says, and its [CLS].

        Returns:
            float64 ``[networks, graphs, targets]``, float32 ``[networks, graphs, C]``.
        """
        batch = self.collate(graphs)
        values, tokens = [], []
        for network in self.networks:
            token, atoms = network.encode(batch)
            outputs = network.read_out(token, atoms, batch)
            values.append(self.task.values_of(outputs, self._mean, self._std))
            tokens.append(token.float().cpu().numpy())
        return np.stack(values), np.stack(tokens)


def _compare(vocabulary: GraphVocabulary, featuriser: Featuriser) -> None:
    """Refuse a vocabulary of other codes than the featuriser makes."""
    for name, part, tables in (
        ("atoms", vocabulary.atoms, featuriser.atom_tables),
        ("bonds", vocabulary.bonds, featuriser.bond_tables),
    ):
        # One code more than there are values: some have a code for "none of these".
        if len(part.seen) != len(tables) or not all(
            0 <= code <= len(table)
            for seen, table in zip(part.seen, tables, strict=True)
            for code in seen
        ):
            raise CheckpointError(f"vocabulary.{name} is not one of {featuriser.name}")
