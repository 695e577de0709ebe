"""Molecules with an element that no training molecule has.

`predict.py` gives no value for them: to the model such an atom is nothing at all. If it is
fine-tuned and has seen the element before, it gives one with a warning. Validation and test keep
them, since the published splits are evaluated whole; so how many there are is printed wherever the
metric is shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from graphormer_sepnorm.chem.features import get_featurizer
from graphormer_sepnorm.datasets.molecule_data import MoleculeData
from graphormer_sepnorm.formatting import listed


def new_elements(
    data: MoleculeData, split: str, known: Sequence[int], fine_tuned: bool
) -> tuple[dict[int, str], str]:
    """Find the molecules of a split that have an element that did not occur in training.

    `known` are the codes of those that did. Returns the elements by the molecule's index in its
    split, as ``B, Se`` (with `zinc-1` the atom types), and a line on how many these are; both are
    empty where there are none, and for graphs that are not made from SMILES, which no prediction is
    asked for.
    """
    indices = data.indices(split)
    if data.splits.featurizer is None or not len(indices):
        return {}, ""
    codes = data.store.atom_codes_of(indices)[:, 0]
    new = np.flatnonzero(~np.isin(codes, known))
    molecules = np.arange(len(indices)).repeat(data.store.num_atoms(indices))[new]
    featurizer = get_featurizer(data.splits.featurizer)
    values = featurizer.atom_tables[0].values
    found: dict[int, set[str]] = defaultdict(set)
    for molecule, code in zip(molecules.tolist(), codes[new].tolist(), strict=True):
        found[molecule].add(featurizer.label_of(values[min(code, len(values) - 1)]))
    if not found:
        return {}, ""
    have = "molecules has" if len(found) == 1 else "molecules have"
    line = (
        f"{len(found):,} of {len(indices):,} {split} {have} elements that training lacks "
        f"({listed(sorted(set().union(*found.values())), most=6)}), for which predict.py gives no "
        f"value{', or a warning where pre-training had them' if fine_tuned else ''}"
    )
    return {molecule: ", ".join(sorted(elements)) for molecule, elements in found.items()}, line
