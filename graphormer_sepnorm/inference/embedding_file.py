"""Embeddings of a whole table as arrays in an .npz file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphormer_sepnorm.chem.molecules import LONGEST_SMILES
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.inference.batching import CHUNK_ROWS
from graphormer_sepnorm.inference.embeddings import Embedder, Embeddings
from graphormer_sepnorm.inference.table_job import Outcome, TableJob, check_places, writing_to
from graphormer_sepnorm.inference.table_molecules import MoleculeColumns, Molecules, computed


def embed_to_arrays(embedder: Embedder, job: TableJob, outcome: Outcome) -> None:
    """Embed all molecules of a table.

    The file holds one row for each of the table's, in its order: ``cls`` float32 ``[n, C]`` and the
    texts ``smiles`` (as given, at most 10,000 characters; of SDF records canonical), ``warning``
    and ``error``, ``[n]`` each; ``atoms`` and ``first_atom`` of `Embeddings`, if the embedder gives
    the atoms, and ``read_as``, if the model standardises molecules.

    Raises:
        DataError: The table cannot be read, or the output cannot be written or would overwrite
            something.
    """
    check_places(job)
    path = Path(job.destination)

    def embed(molecules: Molecules) -> Embeddings:
        parsed = molecules.in_order_of_smiles() if embedder.atoms else molecules.parsed
        found = embedder.predict_molecules(parsed, job.batch_size, job.max_atoms)
        return replace(found, smiles=tuple(molecules.smiles))

    with writing_to(path), job.opened() as reader:
        parts: list[Embeddings] = []
        columns = MoleculeColumns.find(reader, job.smiles_column)
        outcome.notes += columns.notes
        with computed(
            reader, columns, embed, CHUNK_ROWS, device=embedder.device, job=job, outcome=outcome
        ) as work:
            for _, embeddings in work:
                parts.append(embeddings)
                outcome.count(embeddings.warnings, embeddings.errors)
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **_arrays(parts, embedder))


def _arrays(parts: Sequence[Embeddings], embedder: Embedder) -> dict[str, Any]:
    texts = {"smiles": "smiles", "warning": "warnings", "error": "errors"}
    if embedder.standardises:
        texts["read_as"] = "read_as"
    nothing = np.empty((0, embedder.width), np.float32)
    arrays: dict[str, Any] = {"cls": np.concatenate([nothing, *(part.values for part in parts)])}
    for name, attribute in texts.items():  # each takes as much room as the longest of the table
        values = [text[:LONGEST_SMILES] for part in parts for text in getattr(part, attribute)]
        arrays[name] = np.array(values, np.str_)
    if embedder.atoms:
        atoms, counts = [nothing], [np.zeros(1, np.int64)]
        for part in parts:
            assert part.atoms is not None
            assert part.first_atom is not None
            atoms.append(part.atoms)
            counts.append(np.diff(part.first_atom))
        arrays["atoms"] = np.concatenate(atoms)
        arrays["first_atom"] = np.cumsum(np.concatenate(counts))
    return arrays
