"""Pictures of contributions: the right color on the right atom."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from rdkit import Chem

from graphormer_sepnorm.chem.drawing import (
    ABOVE,
    BELOW,
    color_of,
    draw_contributions,
    full_color,
)

SVG = "{http://www.w3.org/2000/svg}"
MOLECULES = [Chem.MolFromSmiles(text) for text in ("CCO", "c1ccccc1")]
VALUES = [np.array([-0.5, 0.0, 1.0]), np.full(6, -0.25)]


def hexadecimal(color):
    return "#" + "".join(f"{int(255 * part):02X}" for part in color)


def test_every_atom_has_the_color_of_its_contribution():
    for molecule, values in zip(MOLECULES, VALUES, strict=True):
        root = ET.fromstring(draw_contributions(molecule, values, 1.0))
        ellipses = root.findall(f".//{SVG}ellipse")
        found = {
            int(one.get("class").removeprefix("atom-")): re.search(
                "fill:(#......)", one.get("style")
            )[1]
            for one in ellipses
        }
        assert found == {n: hexadecimal(color_of(value, 1.0)) for n, value in enumerate(values)}


def test_colors_go_from_white_to_full_and_no_further():
    assert color_of(0.0, 2.0) == (1.0, 1.0, 1.0)
    assert color_of(2.0, 2.0) == color_of(5.0, 2.0) == pytest.approx(ABOVE)
    assert color_of(-2.0, 2.0) == color_of(-5.0, 2.0) == pytest.approx(BELOW)
    assert color_of(1.0, 2.0) == pytest.approx([(1 + part) / 2 for part in ABOVE])


@pytest.mark.parametrize("kind", ["protan", "deutan", "tritan"])
def test_both_colors_are_told_apart_by_the_color_blind(kind):
    """Machado, Oliveira and Fernandes 2009, Table 1, severity 1.0; CIE 1976 distance."""
    seen = {
        "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
        "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
        "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
    }[kind]

    def lab(color):
        linear = np.where(
            np.array(color) <= 0.04045,
            np.array(color) / 12.92,
            ((np.array(color) + 0.055) / 1.055) ** 2.4,
        )
        linear = np.clip(np.array(seen) @ linear, 0, 1)
        to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
        x, y, z = np.cbrt(np.array(to_xyz) @ linear / [0.9505, 1.0, 1.089])
        return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])

    # 2.3 is just noticeable; a third of the full color is far from white and from its opposite.
    for share in (1 / 3, 1.0):
        up, down = lab(color_of(share, 1.0)), lab(color_of(-share, 1.0))
        assert np.linalg.norm(up - down) > 20
        assert min(np.linalg.norm(one - lab((1, 1, 1))) for one in (up, down)) > 7


def test_a_scale_leaves_few_atoms_beyond():
    assert full_color([np.linspace(-1, 1, 101), np.array([30.0])]) == 1.0
    assert full_color([np.array([0.0, 0.2, -0.2])]) == 0.2
    # Of nearly all atoms nothing: the others are shown.
    assert full_color([np.zeros(40), np.array([-0.3])]) == 0.3
    assert full_color([]) == full_color([np.zeros(3)]) == 1.0
