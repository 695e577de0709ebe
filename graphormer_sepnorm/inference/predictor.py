"""A trained model: from SMILES to predictions, embeddings and explanations, without Lightning."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch

from graphormer_sepnorm.chem.molecules import ParsedMolecule
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.formatting import count, listed
from graphormer_sepnorm.graphs.batch import Collator, GraphBatch
from graphormer_sepnorm.graphs.extra_inputs import columns_of
from graphormer_sepnorm.graphs.packed_graphs import PackedGraphs, packed_blocks
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.inference.batching import (
    by_size,
    given_columns,
    given_smiles,
    in_chunks,
    usable_device,
)
from graphormer_sepnorm.inference.checkpoint import (
    BLEND,
    CONFIDENCE,
    KEY,
    build_network,
    in_one_line,
    networks_of,
    read_checkpoint,
)
from graphormer_sepnorm.inference.molecule_reader import MoleculeReader
from graphormer_sepnorm.inference.predictions import (
    Embeddings,
    Predictions,
    estimate_uncertainty,
    scattered,
)
from graphormer_sepnorm.inference.table_job import BATCH_SIZE, MAX_ATOMS
from graphormer_sepnorm.runs.directory import find_checkpoint
from graphormer_sepnorm.uncertainty.uncertainty import Inputs, Uncertainty
from graphormer_sepnorm.values import is_number, is_whole

if TYPE_CHECKING:
    from graphormer_sepnorm.baselines.blend import Blend
    from graphormer_sepnorm.inference.explain import Explanations
    from graphormer_sepnorm.model.graphormer import Graphormer

LEVEL = 0.9  # of intervals, unless another one is asked for
MOST_NEIGHBORS = 20


@torch.inference_mode()
def outputs_of(
    networks: Sequence[Graphormer], batches: Iterable[GraphBatch], facts: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Return what each network of a checkpoint with these facts makes of the graphs of batches.

    Its values, float64 ``[K, n, T]``, see `Task.values_of`, and [CLS], float32 ``[K, n, C]``.
    """
    task, width = Task.from_plain(facts["task"]), networks[0].config.width if networks else 0
    mean, std = np.asarray(facts["target_mean"]), np.asarray(facts["target_std"])
    values = [np.empty((len(networks), 0, len(mean)))]
    tokens = [np.empty((len(networks), 0, width), np.float32)]
    for batch in batches if networks else ():
        encoded = [network.encode(batch) for network in networks]
        outputs = [n.read_out(*of, batch) for n, of in zip(networks, encoded, strict=True)]
        values.append(np.stack([task.values_of(of, mean, std) for of in outputs]))
        tokens.append(np.stack([token.float().cpu().numpy() for token, _ in encoded]))
    return np.concatenate(values, axis=1), np.concatenate(tokens, axis=1)


class Predictor:
    """A trained model that takes SMILES: a network, or an ensemble, which predicts the mean.

    Args:
        checkpoint: What `read_checkpoint` gives.
        device: Where to compute; None: a GPU if there is one.
        refuse_new_elements: A molecule with an element that did not occur in training gets an
            error. Else it gets a warning, and the model ignores such an atom.

    Attributes:
        task: What is predicted.
        model: The network, in evaluation mode; of an ensemble the first.
        networks: All of them: one, or the members of an ensemble.
        vocabulary: The codes of atoms and bonds that it knows.
        reader: Makes graphs of molecules.
        extra_inputs: Names of what the networks read in addition to a molecule's graph.
        blend: Trees whose values are mixed with those of the network; None: there are none.
        uncertainty: What it knows of its errors; None: nothing.
        interval: Level of intervals or of sets of classes, see `configure`; None: there are none.
        neighbors: How many similar molecules are named, see `configure`.
        facts: All that the checkpoint knows, see `graphormer_sepnorm.inference.checkpoint`.

    Raises:
        ConfigError: The device is not there, or the model was trained by other features than those
            of this version.
        CheckpointError: A part of it is of another version.
    """

    def __init__(
        self,
        checkpoint: dict[str, Any],
        device: str | None = None,
        refuse_new_elements: bool = True,
    ) -> None:
        if not isinstance(checkpoint, dict):
            raise ConfigError(f"to read a model: Predictor.load({str(checkpoint)!r})")
        self.facts: dict[str, Any] = checkpoint[KEY]
        self.task = Task.from_plain(self.facts["task"])
        self.device = usable_device(device)
        self.vocabulary = GraphVocabulary.from_plain(self.facts["vocabulary"])
        self.reader = MoleculeReader(self.facts, self.vocabulary, refuse_new_elements)
        self.extra_inputs = columns_of(self.facts)
        self.blend: Blend | None = None
        if BLEND in checkpoint:
            from graphormer_sepnorm.baselines.blend import Blend  # loads what trees need

            self.blend = Blend.from_plain(checkpoint[BLEND])
        self.uncertainty: Uncertainty | None = None
        if CONFIDENCE in checkpoint:
            self.uncertainty = Uncertainty.from_plain(checkpoint[CONFIDENCE], self.task.kind)
        highest = 0.0 if self.uncertainty is None else self.uncertainty.highest_level
        by_itself = self.task.kind == "regression" and highest >= LEVEL
        self.interval: float | None = LEVEL if by_itself else None
        self.neighbors = 0
        self.networks = [
            build_network(self.facts["model"], weights).to(self.device).eval()
            for weights in networks_of(checkpoint)
        ]

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
            return cls(checkpoint, device)

    def __repr__(self) -> str:
        each = zip(self.task.targets, self.task.units, strict=True)
        targets = listed([f"{name} [{unit}]" if unit else name for name, unit in each])
        members = [count(len(self.networks), "network")] if self.networks else []
        members += ["trees or a kernel"] if self.blend is not None else []
        return f"Predictor({targets}; {' and '.join(members)}, on {self.device})"

    @property
    def model(self) -> Graphormer:
        """The network, the first of several.

        Raises:
            ConfigError: There is none.
        """
        if not self.networks:
            raise ConfigError("the model has no network: train one with networks among --members")
        return self.networks[0]

    def configure(
        self, interval: float | Literal["none"] | None = None, neighbors: int | None = None
    ) -> Self:
        """Set what predictions come with from now on, and return self; None changes nothing.

        Args:
            interval: Level of prediction intervals, above 0 and below 1, or ``none``. It is 0.9 at
                first for real values, if the model has uncertainty. For classes an interval is a
                set: the classes that a molecule may be of.
            neighbors: How many of the most similar training molecules to name; at first 0.

        Raises:
            ConfigError: The model cannot give it, or a value is out of range.
        """
        known = self.uncertainty
        level = self.interval if interval is None else None if interval == "none" else interval
        near = self.neighbors if neighbors is None else neighbors
        if level is not None and not (is_number(level) and 0 < level < 1):
            raise ConfigError(f"interval is {level!r}: give a number between 0 and 1, as 0.9")
        if not (is_whole(near) and 0 <= near <= MOST_NEIGHBORS):
            raise ConfigError(f"neighbors is {near!r}: give a number up to {MOST_NEIGHBORS}")
        there = known is not None and (not near or known.neighbors is not None)
        if (level is not None or near) and not there:
            raise ConfigError(
                f"{f'neighbors {near}' if near else f'interval {level}'}: the model does not know "
                "it; models that train.py fit makes of a table do, without --keep none"
            )
        if level is not None and known is not None and level > known.highest_level:
            raise ConfigError(
                f"interval {level:g}: the model was tried on too few molecules for it; the "
                f"highest is {math.floor(known.highest_level * 1000) / 1000:g}"
            )
        self.interval, self.neighbors = level, near
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
            columns: For a model that reads columns of a table in addition to the molecule, their
                values by name, one for each molecule or one for all; nan = missing.

        Raises:
            DataError: Such a column is missing, has another length, or holds no numbers; or the
                SMILES are not a list.
        """
        given = given_smiles(smiles)
        extra = given_columns(columns, self.extra_inputs, len(given))
        predict = partial(self.predict_molecules, batch_size=batch_size, max_atoms=max_atoms)
        parts = in_chunks(given, lambda some, rows: predict(some, columns=extra[rows]))
        return Predictions.joined(given, parts)

    def predict_molecules(
        self,
        molecules: Sequence[ParsedMolecule],
        batch_size: int = BATCH_SIZE,
        max_atoms: int = MAX_ATOMS,
        columns: np.ndarray | None = None,
    ) -> Predictions:
        """Predict the properties of molecules that are parsed already; see `predict`.

        `columns` are the values of `extra_inputs`, ``[n, C]``; None: there are none.
        """
        molecules = self.reader.prepared(molecules)
        graphs, places, errors, warnings = self.reader.featurize(molecules, max_atoms)
        understood = [molecules[place].molecule for place in places]
        if columns is not None:
            graphs = replace(graphs, extra=np.asarray(columns[places], np.float32))
        for place, row in zip(places, graphs.extra, strict=True):
            if missing := list(compress(self.extra_inputs, np.isnan(row))):
                remark = f"training means instead of {listed(missing)}"
                warnings[place] = "; ".join(filter(None, [warnings[place], remark]))
        tokens = None if self.uncertainty is None else self.uncertainty.tokens
        distance = None if tokens is None else np.full(len(places), np.nan)
        each = np.full((len(self.networks), len(places), len(self.task.targets)), np.nan)
        for rows in by_size(graphs.num_atoms, batch_size) if self.networks else ():
            each[:, rows], seen = self._values(graphs.take(rows))
            if tokens is not None and distance is not None:
                distance[rows] = tokens.of(seen)
        values = each.mean(axis=0) if self.networks else np.full(each.shape[1:], np.nan)
        apart = None if self.blend is None else np.full_like(values, np.nan)
        spread = each.std(axis=0, ddof=1) if len(each) > 1 else None
        if len(places) and self.blend is not None:
            pair = self.blend.pair_of(understood, graphs.extra)
            others = self.blend.others(*pair)
            apart = self.blend.apart(values, others, pair)
            values, disagree = self.blend.combined(each, others)
            spread = None if spread is None else disagree
        finite = np.asarray(np.isfinite(values).all(axis=1))
        for place in places[~finite].tolist():
            errors[place], warnings[place] = "the model gives no finite value for it", ""
        known: list[int] = places[finite].tolist()
        arrays, cells, remarked = estimate_uncertainty(
            self.uncertainty,
            self.task,
            Inputs(values, spread, apart, distance).take(finite),
            [molecules[place].molecule for place in known],
            [warnings[place] for place in known],
            self.interval,
            self.neighbors,
        )
        for place, warning in zip(known, remarked, strict=True):
            warnings[place] = warning
        return Predictions(
            smiles=(),
            errors=tuple(errors),
            warnings=self.reader.with_remarks(molecules, warnings),
            targets=self.task.targets,
            cells={name: scattered(column, known, errors) for name, column in cells.items()},
            **{name: scattered(array, known, errors) for name, array in arrays.items()},
        )

    def predict_graphs(self, graphs: Sequence[Any], batch_size: int = BATCH_SIZE) -> Predictions:
        """Predict for graphs of your own, with the codes that the model was trained on.

        Args:
            graphs: PyG's ``Data``, see `GraphBatch.from_data_list`; ``y`` is not read. One with an
                atom whose first code did not occur in training gets an error.
            batch_size: Graphs computed at once; the values do not depend on it.

        Raises:
            DataError: A graph is not of this form.
            ConfigError: The model reads more than graphs: trees, or extra inputs.
        """
        if self.blend is not None or self.extra_inputs:
            raise ConfigError("the model reads more than graphs: give SMILES to predict")
        values = np.full((len(self.networks), len(graphs), len(self.task.targets)), np.nan)
        errors = [""] * len(graphs)
        if len(graphs):
            packed = PackedGraphs.concatenate([*packed_blocks(graphs)])
            for rows in by_size(packed.num_atoms, batch_size):
                values[:, rows], _ = self._values(packed.take(rows))
            new = self.vocabulary.new_elements(packed.atom_codes)
            for number in np.arange(len(graphs)).repeat(packed.num_atoms)[new].tolist():
                errors[number] = "not understood by this model: an atom's first code is new to it"
                values[:, number] = np.nan
        mean, spread, nothing = values.mean(axis=0), None, ("",) * len(graphs)
        if len(values) > 1:
            spread = self.task.widths_in_units(mean, values.std(axis=0, ddof=1))
        found = self.task.in_units(self.uncertainty.calibrated(mean) if self.uncertainty else mean)
        return Predictions((), found, tuple(errors), nothing, self.task.targets, spread)

    def embed(
        self,
        smiles: str | Sequence[str],
        batch_size: int = BATCH_SIZE,
        max_atoms: int = MAX_ATOMS,
        atoms: bool = False,
    ) -> Embeddings:
        """Return what the network makes of molecules before it reads its predictions from that.

        With `atoms` also the embeddings of the atoms; the other arguments are as for `predict`.
        """
        given, options = given_smiles(smiles), (batch_size, max_atoms, atoms)
        parts = in_chunks(given, lambda some, _: self.embed_molecules(some, *options))
        return Embeddings.joined(given, parts)

    def embed_molecules(
        self,
        molecules: Sequence[ParsedMolecule],
        batch_size: int = BATCH_SIZE,
        max_atoms: int = MAX_ATOMS,
        atoms: bool = False,
    ) -> Embeddings:
        """Return the embeddings of molecules that are parsed already; see `embed`."""
        molecules = self.reader.prepared(molecules)
        graphs, places, errors, warnings = self.reader.featurize(molecules, max_atoms)
        values = np.full((len(molecules), self.model.config.width), np.nan, np.float32)
        of_atoms = [values[:0]] * len(molecules)
        for rows in by_size(graphs.num_atoms, batch_size):
            batch = self.collator(graphs.take(rows))(range(len(rows)))
            with torch.inference_mode():
                tokens, encoded = self.model.encode(batch)
            values[places[rows]] = tokens.float().cpu().numpy()
            if atoms:
                encoded, ends = encoded.float().cpu().numpy(), np.cumsum(graphs.num_atoms[rows])
                for place, own in zip(places[rows], np.split(encoded, ends[:-1]), strict=True):
                    of_atoms[place] = own[self.reader.atom_order(molecules[place].molecule)]
        for place in places[~np.isfinite(values[places]).all(axis=1)].tolist():
            values[place], warnings[place], of_atoms[place] = np.nan, "", values[:0]
            errors[place] = "the model gives no finite embedding for it"
        return Embeddings(
            (),
            values,
            tuple(errors),
            self.reader.with_remarks(molecules, warnings),
            np.concatenate([values[:0], *of_atoms]) if atoms else None,
            np.array([len(own) for own in of_atoms], np.int64) if atoms else None,
            self.embedding_note,
            tuple(one.standard for one in molecules) if self.reader.steps else (),
        )

    @property
    def embedding_note(self) -> str:
        """What to know about [CLS] of this network; mostly the empty string.

        Raises:
            ConfigError: There is no network.
        """
        if self.model.config.reads_graph_token:
            return ""
        return (
            "this model reads its predictions from the atoms, not from [CLS]: take the "
            f"{self.model.config.readout} of theirs (from Python atoms=True)"
        )

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

        Explained is `target`, one of ``task.targets`` (None: the only one), by a `method` of
        docs/how-to/explain.md (None: the one that found known contributions best in networks of
        this norm). The other arguments are as for `predict`.

        Raises:
            ConfigError: There is no such target or method, or several targets and none is named.
            DataError: A column is missing, or has another length.
        """
        from graphormer_sepnorm.inference.explain import Explainer

        given = given_smiles(smiles)
        extra = given_columns(columns, self.extra_inputs, len(given))
        return Explainer(self, target, method).explain(given, batch_size, max_atoms, extra)

    def collator(self, graphs: PackedGraphs) -> Callable[[Sequence[int]], GraphBatch]:
        """Return what makes batches for the network of these graphs, by their indices."""
        store = GraphStore.from_graphs([graphs], self.model.config.max_path_length)
        collate = Collator(store, self.vocabulary)
        return lambda indices: collate(indices).to(self.device)

    def _values(self, graphs: PackedGraphs) -> tuple[np.ndarray, np.ndarray]:
        """See `outputs_of`."""
        batch = self.collator(graphs)(range(len(graphs)))
        return outputs_of(self.networks, [batch], self.facts)
