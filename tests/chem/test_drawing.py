"""Pictures of contributions: the right color on the right atom."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from rdkit import Chem

from graphormer_sepnorm.chem.drawing import ABOVE, BELOW, color_of, draw_contributions, full_color

SVG = "{http://www.w3.org/2000/svg}"
MOLECULES = [Chem.MolFromSmiles(text) for text in ("CCO", "c1ccccc1")]
VALUES = [np.array([-0.5, 0.0, 1.0]), np.full(6, -0.25)]


def test_every_atom_has_the_color_of_its_contribution():
    for molecule, values in zip(MOLECULES, VALUES, strict=True):
        found, root = {}, ET.fromstring(draw_contributions(molecule, values, 1.0))
        for one in root.findall(f".//{SVG}ellipse"):
            fill = re.search("fill:(#......)", one.get("style"))[1]
            found[int(one.get("class").removeprefix("atom-"))] = fill
        colors = ("".join(f"{int(255 * p):02X}" for p in color_of(value, 1.0)) for value in values)
        assert found == {n: f"#{color}" for n, color in enumerate(colors)}


def test_colors_go_from_white_to_full_and_no_further():
    assert color_of(0.0, 2.0) == (1.0, 1.0, 1.0)
    assert color_of(2.0, 2.0) == color_of(5.0, 2.0) == pytest.approx(ABOVE)
    assert color_of(-2.0, 2.0) == color_of(-5.0, 2.0) == pytest.approx(BELOW)
    assert color_of(1.0, 2.0) == pytest.approx([(1 + part) / 2 for part in ABOVE])


def test_a_scale_leaves_few_atoms_beyond():
    assert full_color([np.linspace(-1, 1, 101), np.array([30.0])]) == 1.0
    assert full_color([np.array([0.0, 0.2, -0.2])]) == 0.2
    # Of nearly all atoms nothing: the others are shown.
    assert full_color([np.zeros(40), np.array([-0.3])]) == 0.3
    assert full_color([]) == full_color([np.zeros(3)]) == 1.0
