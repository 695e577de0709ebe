"""From SMILES to predicted values, with a trained checkpoint and without Lightning."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphormer_sepnorm.chem.molecules import MAX_ATOMS
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.inference.batching import BATCH_SIZE, given_smiles, in_chunks
from graphormer_sepnorm.inference.checkpoint import (
    find_checkpoint,
    in_one_line,
    read_checkpoint,
)
from graphormer_sepnorm.inference.embeddings import Embedder, Embeddings
from graphormer_sepnorm.inference.moved import what_moved
from graphormer_sepnorm.inference.predictions import Predictions
from graphormer_sepnorm.inference.trained_model import TrainedModel, usable_device

if TYPE_CHECKING:
    from graphormer_sepnorm.inference.explanation import Explanations


log = logging.getLogger(__name__)


class Predictor(TrainedModel):
    """A trained model that takes SMILES; see `TrainedModel` for what it is made of and knows."""

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
        with in_one_line(file):
            predictor = cls(read_checkpoint(file), device)
        if said := what_moved(predictor):
            log.warning("%s: %s", file, said)
        return predictor

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

    def _columns(
        self, columns: Mapping[str, float | Sequence[float]], molecules: int
    ) -> np.ndarray:
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
            if given.ndim > 1:
                raise DataError(
                    f"{name} is of shape {given.shape}: give one number for each molecule"
                )
            if given.ndim and len(given) != molecules:
                raise DataError(
                    f"{len(given)} values of {name} for {molecules} molecules: give one for each"
                )
            values[:, place] = given
        return np.where(np.abs(values) <= np.finfo(np.float32).max, values, np.nan)

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
            method: How contributions are found (docs/explaining.md); None: the way that found known
                contributions best in networks of this norm.
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
