"""Python in a process of its own, as a user has it who works in some folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def run_python(
    *arguments: str | Path, cwd: Path, package: Path = REPOSITORY
) -> subprocess.CompletedProcess[str]:
    """Run Python on a single core; `package` is the folder that holds graphormer_sepnorm."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
