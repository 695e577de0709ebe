"""What the numbers were measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path

PACKAGES = ("torch", "numpy", "rdkit", "torch-geometric", "lightning")


def describe_machine() -> dict[str, str]:
    """Return processor, cores, system, versions and the date, in words."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": str(
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        ),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "packages": versions,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if "model name" in line), "")
