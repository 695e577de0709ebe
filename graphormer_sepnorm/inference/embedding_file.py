"""Embeddings of a whole table as arrays in an .npz file, in little memory.

The length of an array stands before its values, and how many rows there are is known at the end:
until then the values lie in files without a name, beside the place of the output.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterable
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

_LETTERS = 1_000_000  # in memory at once


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

    with (
        writing_to(path),
        contextlib.ExitStack() as files,
        job.opened() as reader,
    ):
        arrays = _Arrays(path.parent, embedder, files)
        columns = MoleculeColumns.find(reader, job.smiles_column)
        outcome.notes += columns.notes
        with computed(
            reader, columns, embed, CHUNK_ROWS, device=embedder.device, job=job, outcome=outcome
        ) as work:
            for _, embeddings in work:
                arrays.add(embeddings)
                outcome.count(embeddings.warnings, embeddings.errors)
        with replacing(path) as unfinished:
            arrays.save(unfinished)


class _Arrays:
    """The arrays of the file, which grow by the embeddings of some molecules at a time."""

    def __init__(self, folder: Path, embedder: Embedder, files: contextlib.ExitStack) -> None:
        width = (embedder.width,)
        self._numbers = {"cls": _Numbers(np.float32, width, _nameless(folder, files))}
        texts = ["smiles", "warning", "error"] + ["read_as"] * embedder.standardises
        self._texts = {name: _Texts(_nameless(folder, files)) for name in texts}
        self._atoms = 0
        if embedder.atoms:
            self._numbers["atoms"] = _Numbers(np.float32, width, _nameless(folder, files))
            self._numbers["first_atom"] = _Numbers(np.int64, (), _nameless(folder, files))
            self._numbers["first_atom"].add(np.zeros(1))

    def add(self, embeddings: Embeddings) -> None:
        self._numbers["cls"].add(embeddings.values)
        self._texts["smiles"].add(embeddings.smiles)
        self._texts["warning"].add(embeddings.warnings)
        self._texts["error"].add(embeddings.errors)
        if "read_as" in self._texts:
            self._texts["read_as"].add(embeddings.read_as)
        if embeddings.atoms is not None and embeddings.first_atom is not None:
            self._numbers["atoms"].add(embeddings.atoms)
            self._numbers["first_atom"].add(embeddings.first_atom[1:] + self._atoms)
            self._atoms += len(embeddings.atoms)

    def save(self, path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in (self._numbers | self._texts).items():
                member = zipfile.ZipInfo(f"{name}.npy")
                member.compress_type = array.compression
                with archive.open(member, "w", force_zip64=True) as out:
                    array.save(out)


class _Numbers:
    """An array of numbers, row after row in a file."""

    compression = zipfile.ZIP_STORED  # digits of floating-point numbers are hardly made smaller

    def __init__(self, dtype: type, shape: tuple[int, ...], file: Any) -> None:
        self._dtype = np.dtype(dtype)
        self._shape = shape
        self._file = file
        self._rows = 0

    def add(self, values: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(values, self._dtype).data)
        self._rows += len(values)

    def save(self, out: Any) -> None:
        _header(out, self._dtype, (self._rows, *self._shape))
        self._file.seek(0)
        shutil.copyfileobj(self._file, out)


class _Texts:
    """An array of texts; numpy makes all of them as long as the longest."""

    compression = zipfile.ZIP_DEFLATED

    def __init__(self, file: Any) -> None:
        self._file = file
        self._rows = 0
        self._longest = 1

    def add(self, texts: Iterable[str]) -> None:
        for given in texts:
            text = given[:LONGEST_SMILES]  # each takes as much room as the longest of the table
            self._file.write(json.dumps(text).encode() + b"\n")
            self._rows += 1
            self._longest = max(self._longest, len(text))

    def save(self, out: Any) -> None:
        dtype = np.dtype(f"U{self._longest}")
        _header(out, dtype, (self._rows,))
        self._file.seek(0)
        some = max(_LETTERS // self._longest, 1)
        while lines := list(itertools.islice(self._file, some)):
            out.write(np.array([json.loads(line) for line in lines], dtype).data)


def _nameless(folder: Path, files: contextlib.ExitStack) -> Any:
    return files.enter_context(tempfile.TemporaryFile(dir=folder))


def _header(out: Any, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """Write what stands before the values in an .npy file."""
    description = np.lib.format.dtype_to_descr(dtype)
    what = {"descr": description, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, what)
