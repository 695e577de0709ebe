"""What an interrupted job on a table leaves, by which it is continued to the identical file."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from graphormer_sepnorm.chem.molecules import RDKIT_VERSION
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.inference.table_job import Outcome, TableJob
from graphormer_sepnorm.tables.writer import Mark

_ENDS_BYTES = 1 << 20


def identify(job: TableJob, checkpoint: Path, chunk_rows: int, device: str) -> dict[str, Any]:
    """Say what the rows of an output are made from.

    Args:
        job: What is to be done.
        checkpoint: The model's file.
        chunk_rows: Rows predicted together, on which the last digits depend.
        device: Where it is computed, on which they depend too.
    """
    source = Path(job.source)
    try:
        size = source.stat().st_size
        with source.open("rb") as handle:
            ends = handle.read(_ENDS_BYTES)
            handle.seek(max(size - _ENDS_BYTES, 0))
            ends += handle.read()
        with checkpoint.open("rb") as handle:
            model = hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read ({error.strerror})") from error
    return {
        "input": {"bytes": size, "sha256_of_ends": hashlib.sha256(ends).hexdigest()},
        "model": model,
        "options": {
            "smiles_column": job.smiles_column,
            "input_format": job.input_format,
            "output_format": job.output_format,
            "batch_size": job.batch_size,
            "max_atoms": job.max_atoms,
            "chunk_rows": chunk_rows,
            "device": device.partition(":")[0],
            **({} if job.verb == "predicted" else {"verb": job.verb}),
        },
        "rdkit": RDKIT_VERSION,
    }


def save_progress(job: TableJob, mark: Mark, identity: dict[str, Any], outcome: Outcome) -> None:
    """Note how far the output is, atomically."""
    state = {
        "rows": outcome.rows,
        "offset": mark.offset,
        "warnings": outcome.warnings,
        "errors": dict(outcome.errors),
        "identity": identity,
    }
    try:
        with replacing(job.progress_file) as partial:
            partial.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"{job.progress_file} cannot be written ({error.strerror}): make room"
        ) from error


def earlier_progress(job: TableJob, identity: dict[str, Any], outcome: Outcome) -> Mark | None:
    """Return where an earlier run of the same job stopped; None if there was none.

    Raises:
        DataError: The earlier job was another one.
    """
    if not job.partial.exists():
        return None
    try:
        state = json.loads(job.progress_file.read_text(encoding="utf-8"))
        before, mark = state["identity"], Mark(int(state["offset"]))
        rows, warnings, errors = state["rows"], state["warnings"], Counter(state["errors"])
    except FileNotFoundError:
        return None  # interrupted before the first rows were safe
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{job.progress_file} is damaged: begin anew with --overwrite") from error
    names = {"input": "input", "model": "model", "options": "options", "rdkit": "version of RDKit"}
    changed = [names[key] for key in names if before.get(key) != identity[key]]
    if changed:
        raise DataError(
            f"{job.partial} was begun with another {' and another '.join(changed)}: continue it "
            "with the same, or begin anew with --overwrite"
        )
    outcome.rows = outcome.earlier_rows = outcome.safe_rows = rows
    outcome.warnings, outcome.errors = warnings, errors
    return mark
