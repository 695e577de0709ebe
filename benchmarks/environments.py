"""An environment for each peer, built when it is first needed.

Peers pin versions of their own (chemprop one exact RDKit), so none shares our environment and none
is a dependency of this package. They lie in ``benchmarks/.environments``; remove that folder to
build them anew.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.processes import REPOSITORY, SideFailed, last_line

HOME = REPOSITORY / "benchmarks" / ".environments"
PEERS = {
    # Its extension is compiled when it is imported, and with Cython 3.1 it is not.
    "huggingface": ("transformers==4.46.3", "cython<3.1", "setuptools", "numpy", "rdkit"),
    "chemprop": ("chemprop==2.3.1",),
}


def python_of(peer: str) -> Path:
    """Return the interpreter of a peer's environment, built if need be.

    Raises:
        SideFailed: It cannot be built.
    """
    folder = HOME / peer
    python, done, log = folder / "bin" / "python", folder / "installed.txt", HOME / f"{peer}.log"
    wanted = "\n".join((_torch(), *PEERS[peer]))
    if done.exists() and done.read_text() == wanted:
        return python
    print(f"Building the environment {folder}: about 1.5 GB, a few minutes; once.", file=sys.stderr)
    HOME.mkdir(exist_ok=True)
    constraint = HOME / "torch.txt"
    constraint.write_text(_torch())
    install = [str(python), "-m", "pip", "install", "--quiet", "-c", str(constraint)]
    with log.open("wb") as output:
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            # First and by its exact version, so that pip takes the build that is offered for this
            # machine, and nothing replaces it.
            [*install, _torch()],
            [*install, *PEERS[peer]],
        ):
            if subprocess.run(command, stdout=output, stderr=output, check=False).returncode:
                raise SideFailed(f"no environment ({log}): {last_line(log)}")
    done.write_text(wanted)
    return python


def _torch() -> str:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith("torch=="))
