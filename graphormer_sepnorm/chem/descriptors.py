"""RDKit's descriptors: size, polarity, charge, surface, topology, counts of groups.

Which there are differs between releases of RDKit, so whoever stores values stores their names too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from rdkit import Chem, rdBase

from graphormer_sepnorm.errors import DataError

# Not asked for: a function of some of the others that takes a sixth of the time, and two whose
# values outgrow float32 in large molecules.
LEFT_OUT = frozenset({"qed", "Ipc", "AvgIpc"})
_NOT_FOR_TREES = re.compile("^fr_|^Chi|^Kappa|^Hall|^Phi|EState|BCUT|BertzCT|SPS|BalabanJ")


def _functions() -> dict[str, Any]:
    """What computes each descriptor of a molecule; loaded when there is a model with any."""
    from rdkit.Chem import Descriptors

    return dict(Descriptors.descList)


@cache
def descriptor_names() -> tuple[str, ...]:
    """Return the names of the descriptors that this release of RDKit computes, in its order."""
    return tuple(name for name in _functions() if name not in LEFT_OUT)


@cache
def quick_descriptor_names() -> tuple[str, ...]:
    """Return those that trees are given: a third of the time, and no worse predictions.

    Left out are counts of groups, which fingerprints have, connectivity, and what is slow.
    """
    return tuple(name for name in descriptor_names() if not _NOT_FOR_TREES.search(name))


def compute_descriptors(
    molecules: Sequence[Chem.Mol | None], names: Sequence[str] | None = None
) -> np.ndarray:
    """Compute descriptors; four to ten milliseconds a molecule for all of them.

    Args:
        molecules: None stands for one that could not be read.
        names: Which ones; None: `descriptor_names`.

    Returns:
        float32 ``[molecules, names]``; nan where a descriptor is undefined, infinite, beyond
        float32, or of no molecule.

    Raises:
        DataError: This release of RDKit has no such descriptor.
    """
    wanted = descriptor_names() if names is None else names
    known = _functions() if wanted else {}
    # These four begin with the same computation, and take what it was for this molecule if asked.
    known |= {name: partial(known[name], force=0) for name in known if "EStateIndex" in name}
    missing = [name for name in wanted if name not in known]
    if missing:
        raise DataError(
            f"RDKit {rdBase.rdkitVersion} has no descriptor {', '.join(missing[:3])}: use the "
            "release of RDKit that the model was made with, see predict.py info"
        )
    values = np.full((len(molecules), len(wanted)), np.nan)
    with rdBase.BlockLogs():
        for row, molecule in zip(values, molecules, strict=True):
            for column, name in enumerate(wanted if molecule is not None else ()):
                # Division by zero, atoms without parameters, ...: each its own.
                with contextlib.suppress(Exception):
                    row[column] = known[name](molecule)
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    return np.where(np.isfinite(narrow), narrow, np.float32(np.nan))
