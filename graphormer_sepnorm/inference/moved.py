"""Whether RDKit makes of molecules what it made of them when a model was trained.

Its perception changes between releases. A checkpoint that keeps SMILES of its training molecules
keeps the graphs, as digests, and the predicted values of a few of them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphormer_sepnorm.chem.molecules import RDKIT_VERSION, parse_smiles

SAMPLE = "sample"
MOST_SAMPLED = 32
# In standard deviations of the training labels, or of a probability: more than rounding.
_MOVED = 1e-3


def sampled(predictor: Any, smiles: Sequence[str]) -> list[dict[str, Any]]:
    """Return SMILES, digest of the graph (empty: none) and values of some molecules.

    `predictor` is a `Predictor`, whose file imports this one.
    """
    given = list(smiles[:MOST_SAMPLED])
    missing = dict.fromkeys(predictor.extra_inputs.columns, math.nan)
    values = predictor.predict(given, columns=missing).values
    rows = zip(given, _digests(predictor, given), values.tolist(), strict=True)
    return [{"smiles": text, "graph": graph, "value": value} for text, graph, value in rows]


def what_moved(predictor: Any) -> str:
    """Say what is no longer what it was under another release of RDKit; empty: nothing known."""
    sample = predictor.facts.get(SAMPLE, [])
    made_with = predictor.facts.get("packages", {}).get("rdkit", RDKIT_VERSION)
    if not sample or made_with == RDKIT_VERSION:
        return ""
    now = sampled(predictor, [one["smiles"] for one in sample])
    graphs = sum(one["graph"] != was["graph"] for one, was in zip(now, sample, strict=True))
    values = np.array([[one["value"] for one in part] for part in (now, sample)])
    scale = predictor.facts["target_std"] if predictor.task.kind == "regression" else 1.0
    close = np.isclose(*(values / scale), rtol=0, atol=_MOVED, equal_nan=True)
    differ = int((~close).any(axis=1).sum())
    if not (graphs or differ):
        return ""
    return (
        f"the model was trained with RDKit {made_with}, here is {RDKIT_VERSION}: of {len(sample)} "
        f"of its training molecules {graphs} have another graph now and {differ} another value; "
        f"rdkit=={made_with} gives the values of its training"
    )


def _digests(predictor: Any, smiles: list[str]) -> list[str]:
    molecules = predictor.reader.prepared([parse_smiles(text) for text in smiles])
    graphs, places, *_ = predictor.reader.featurise(molecules)
    digests = [""] * len(smiles)
    for number, place in enumerate(places.tolist()):
        one = graphs.take([number])
        arrays = (one.atom_codes, one.edge_index, one.bond_codes)
        text = repr([array.tolist() for array in arrays])
        digests[place] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return digests
