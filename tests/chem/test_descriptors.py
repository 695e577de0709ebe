"""RDKit's descriptors as arrays: RDKit's own values, nan where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors

from graphormer_sepnorm.chem.descriptors import LEFT_OUT, compute_descriptors, descriptor_names
from graphormer_sepnorm.errors import DataError


def test_values_are_rdkits() -> None:
    molecule = Chem.MolFromSmiles("CC(=O)Oc1ccccc1C(=O)O")
    (values,) = compute_descriptors([molecule])
    theirs = Descriptors.CalcMolDescriptors(molecule)
    assert len(descriptor_names()) == len(theirs) - len(LEFT_OUT)
    for name, value in zip(descriptor_names(), values, strict=True):
        assert value == pytest.approx(theirs[name], rel=1e-6), name


def test_what_is_undefined_is_nan_and_stops_nothing() -> None:
    hydrogen_free = Chem.MolFromSmiles("[Na+].[Cl-]")
    values = compute_descriptors([None, hydrogen_free], ["MolWt", "BCUT2D_MWHI"])
    assert np.isnan(values[0]).all()
    assert values[1, 0] == pytest.approx(58.44, abs=0.01)
    assert np.isnan(values[1, 1]) or np.isfinite(values[1, 1])
    assert values.dtype == np.float32


def test_a_descriptor_of_another_release_is_named() -> None:
    with pytest.raises(DataError, match="no descriptor Magic"):
        compute_descriptors([Chem.MolFromSmiles("C")], ["MolWt", "Magic"])
