"""From SMILES to predicted values, with a trained checkpoint and without Lightning."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from graphormer_sepnorm.baselines.blend import Blend
from graphormer_sepnorm.chem.descriptors import compute_descriptors
from graphormer_sepnorm.chem.molecules import MAX_ATOMS, ParsedMolecule
from graphormer_sepnorm.errors import CheckpointError, ConfigError, DataError
from graphormer_sepnorm.formatting import listed, shortened
from graphormer_sepnorm.graphs.batch import Collator, GraphBatch
from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs, packed_blocks
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.inference.batching import BATCH_SIZE, by_size, given_smiles, in_chunks
from graphormer_sepnorm.inference.beside import Asked, Beside
from graphormer_sepnorm.inference.checkpoint import (
    BLEND,
    CONFIDENCE,
    KEY,
    build_network,
    find_checkpoint,
    in_one_line,
    networks_of,
    read_checkpoint,
)
from graphormer_sepnorm.inference.embeddings import Embedder, Embeddings
from graphormer_sepnorm.inference.featurise import MoleculeReader, with_remarks
from graphormer_sepnorm.inference.moved import what_moved
from graphormer_sepnorm.inference.predictions import Predictions
from graphormer_sepnorm.uncertainty.uncertainty import Inputs, Uncertainty

if TYPE_CHECKING:
    from graphormer_sepnorm.inference.explanation import Explanations

log = logging.getLogger(__name__)


def usable_device(device: str | None) -> str:
    """Return where to compute; None: a GPU if there is one.

    Raises:
        ConfigError: The device is not there.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1).to(device)
    except (RuntimeError, AssertionError) as error:
        reason = shortened(str(error).splitlines()[0].rstrip("."), 80)
        ways = "give cpu, or cuda where torch finds a GPU"
        raise ConfigError(f"device {device!r} cannot be used ({reason}): {ways}") from error
    return device


class Predictor:
    """A trained model that takes SMILES: a network, or an ensemble, which predicts the mean.

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
        reader: Makes graphs of molecules.
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
        self.facts: dict[str, Any] = checkpoint[KEY]
        self.task = Task.from_plain(self.facts["task"])
        self.device = usable_device(device)
        self.vocabulary = GraphVocabulary.from_plain(self.facts["vocabulary"])
        self.reader = MoleculeReader(self.facts, self.vocabulary, refuse_new_elements)
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
                build_network(self.facts["model"], weights).to(self.device).eval()
                for weights in networks_of(checkpoint)
            ]
        self.model = self.networks[0]

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> Predictor:
        """Load a model.

        Args:
            path: A checkpoint file, a run directory (its best checkpoint), or the name of a model
                that comes with the package.
            device: Where to compute; None: a GPU if there is one.

        Raises:
            CheckpointError: There is no such model, or it cannot be used.
            ConfigError: The device is not there.
        """
        file = find_checkpoint(path)
        device = usable_device(device)
        checkpoint = read_checkpoint(file)
        with in_one_line(file):
            predictor = cls(checkpoint, device)
        if said := what_moved(predictor):
            log.warning("%s: %s", file, said)
        return predictor

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

    def ask(self, interval: float | None = None, neighbours: int = 0) -> Self:
        """Say what predictions shall come with from now on.

        A model that knows its errors gives intervals of level 0.9 for real values without being
        asked. For classes an interval is a set: the classes that a molecule may be of.

        Args:
            interval: Level, above 0 and below 1; None: no intervals.
            neighbours: How many of the most similar molecules of training to name.

        Returns:
            Itself.

        Raises:
            ConfigError: The model cannot give it, or a value cannot be.
        """
        self._beside = Beside(Asked(interval, neighbours), self.confidence, self.task)
        return self

    def predict(
        self,
        smiles: str | Sequence[str],
        batch_size: int = BATCH_SIZE,
        max_atoms: int = MAX_ATOMS,
        columns: Mapping[str, float | Sequence[float]] | None = None,
    ) -> Predictions:
        """Predict the properties of molecules.

        Args:
            smiles: One SMILES or several: a list, an array, a Series, a table of one column; or
                RDKit molecules. What cannot be read gets an error, never an exception.
            batch_size: Molecules computed at once; the values do not depend on it.
            max_atoms: Larger molecules get an error: memory grows with the square of the size.
            columns: For a model that reads columns of a table beside the molecule, their values by
                name, one for each molecule or one for all; nan = missing.

        Raises:
            DataError: Such a column is missing, has another length, or holds no numbers; or the
                SMILES are no list.
        """
        smiles = given_smiles(smiles)
        beside = self._columns({} if columns is None else columns, len(smiles))
        given, parts = in_chunks(
            smiles,
            lambda molecules, _, rows: self.predict_molecules(
                molecules, batch_size, max_atoms, beside[rows]
            ),
        )
        return Predictions.joined(given, parts)

    def _columns(self, columns: Mapping[str, Any], molecules: int) -> np.ndarray:
        """Return the columns that are read beside the molecules, float64 ``[molecules, C]``."""
        values = np.empty((molecules, len(self.extra_inputs.columns)))
        for place, name in enumerate(self.extra_inputs.columns):
            if name not in columns:
                raise DataError(
                    f"the model reads {listed(self.extra_inputs.columns)} beside the molecule: "
                    "predict a table with such columns (-i FILE, from Python columns={...})"
                )
            try:
                given = np.asarray(columns[name], dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"{name} does not hold numbers ({error}): give one for each molecule, nan "
                    "where it is missing"
                ) from error
            if given.shape not in ((), (molecules,)):
                raise DataError(
                    f"{name} is of shape {given.shape}: give one number for each molecule"
                )
            values[:, place] = given
        return np.where(np.abs(values) <= np.finfo(np.float32).max, values, np.nan)

    def predict_molecules(
        self,
        molecules: Sequence[ParsedMolecule],
        batch_size: int = BATCH_SIZE,
        max_atoms: int = MAX_ATOMS,
        columns: np.ndarray | None = None,
    ) -> Predictions:
        """Predict the properties of molecules that are parsed already; see `predict`.

        `columns` are the values of ``extra_inputs.columns``, ``[n, C]``; None: there are none.
        """
        molecules = self.reader.prepared(molecules)
        each = np.full((len(self.networks), len(molecules), len(self.task.targets)), np.nan)
        apart = each[0].copy()
        distance = np.full(len(molecules), np.nan)
        tokens = None if self.confidence is None else self.confidence.tokens
        graphs, places, errors, warnings = self.reader.featurise(molecules, max_atoms)
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
        several = len(self.networks) > 1
        values = np.full((len(self.networks), len(graphs), len(self.task.targets)), np.nan)
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
            columns=Beside(Asked(), None, self.task).columns(several),
        )

    def embed(
        self,
        smiles: str | Sequence[str],
        batch_size: int = BATCH_SIZE,
        max_atoms: int = MAX_ATOMS,
        atoms: bool = False,
    ) -> Embeddings:
        """Return what the network makes of molecules before it reads its predictions from that.

        Args:
            smiles: As for `predict`.
            batch_size: Molecules computed at once; the embeddings do not depend on it.
            max_atoms: Larger molecules get an error.
            atoms: Return the embeddings of the atoms too.
        """
        return Embedder(self, atoms).embed(smiles, batch_size, max_atoms)

    def explain(
        self,
        smiles: str | Sequence[str],
        target: str | None = None,
        method: str | None = None,
        batch_size: int = BATCH_SIZE,
        max_atoms: int = MAX_ATOMS,
        columns: Mapping[str, float | Sequence[float]] | None = None,
    ) -> Explanations:
        """Return what each atom of molecules contributes to their predictions.

        Args:
            smiles: As for `predict`.
            target: What is explained, one of ``task.targets``; None: the only one.
            method: How contributions are found (docs/how-to/explain.md); None: the way that found
                known contributions best in networks of this norm.
            batch_size: Molecules computed at once; the contributions do not depend on it.
            max_atoms: Larger molecules get an error.
            columns: As for `predict`.

        Raises:
            ConfigError: There is no such target or method, or several targets and none is named.
            DataError: A column is missing, or has another length.
        """
        from graphormer_sepnorm.inference.explanation import Explainer

        smiles = given_smiles(smiles)
        beside = self._columns({} if columns is None else columns, len(smiles))
        return Explainer(self, target, method).explain(smiles, batch_size, max_atoms, beside)

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
