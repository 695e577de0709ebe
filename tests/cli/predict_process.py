"""predict.py in a process of its own, to be interrupted from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def start(
    model: Path, source: Path, output: Path, *more: str, new_session: bool = False
) -> subprocess.Popen[str]:
    """Start the command with small chunks, in a process of its own."""
    program = (
        "import sys; from graphormer_sepnorm.inference import stream; stream.CHUNK_ROWS = 64; "
        "from graphormer_sepnorm.cli.predict import main; sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, str(model), "-i", str(source), "-o", str(output), *more],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=new_session,
    )


def wait_for_rows(output: Path, process: subprocess.Popen[str], rows: int) -> int:
    """Wait until so many rows are safe; return how many are."""
    progress = Path(f"{output}.progress.json")
    while process.poll() is None:
        if progress.exists():
            done = json.loads(progress.read_text())["rows"]
            if done >= rows:
                return done
        time.sleep(0.01)
    raise AssertionError(f"it ended too early: {process.stderr and process.stderr.read()}")


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return status and what was said on stderr."""
    _, error = process.communicate(timeout=300)
    return process.returncode, error
