"""Pictures of contributions: the right colour on the right atom, a bar that says what it means."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.image import imread
from rdkit import Chem

from graphormer_sepnorm.chem.drawing import (
    ABOVE,
    BELOW,
    CELL,
    Scale,
    draw_contributions,
)

SVG = "{http://www.w3.org/2000/svg}"
MOLECULES = [Chem.MolFromSmiles(text) for text in ("CCO", "c1ccccc1")]
VALUES = [np.array([-0.5, 0.0, 1.0]), np.full(6, -0.25)]


def hexadecimal(colour):
    return "#" + "".join(f"{int(255 * part):02X}" for part in colour)


def test_every_atom_has_the_colour_of_its_contribution():
    scale = Scale(1.0, "a")
    for molecule, values in zip(MOLECULES, VALUES, strict=True):
        root = ET.fromstring(draw_contributions([molecule], [values], scale, bar=False))
        ellipses = root.findall(f".//{SVG}ellipse")
        found = {
            int(one.get("class").removeprefix("atom-")): re.search(
                "fill:(#......)", one.get("style")
            )[1]
            for one in ellipses
        }
        assert found == {n: hexadecimal(scale.colour(value)) for n, value in enumerate(values)}


def test_colours_go_from_white_to_full_and_no_further():
    scale = Scale(2.0, "a")
    assert scale.colour(0.0) == (1.0, 1.0, 1.0)
    assert scale.colour(2.0) == scale.colour(5.0) == pytest.approx(ABOVE)
    assert scale.colour(-2.0) == scale.colour(-5.0) == pytest.approx(BELOW)
    assert scale.colour(1.0) == pytest.approx([(1 + part) / 2 for part in ABOVE])


@pytest.mark.parametrize("kind", ["protan", "deutan", "tritan"])
def test_both_colours_are_told_apart_by_the_colour_blind(kind):
    """Machado, Oliveira and Fernandes 2009, Table 1, severity 1.0; CIE 1976 distance."""
    seen = {
        "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
        "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
        "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
    }[kind]

    def lab(colour):
        linear = np.where(
            np.array(colour) <= 0.04045,
            np.array(colour) / 12.92,
            ((np.array(colour) + 0.055) / 1.055) ** 2.4,
        )
        linear = np.clip(np.array(seen) @ linear, 0, 1)
        to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
        x, y, z = np.cbrt(np.array(to_xyz) @ linear / [0.9505, 1.0, 1.089])
        return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])

    scale = Scale(1.0, "a")
    # 2.3 is just noticeable; a third of the full colour is far from white and from its opposite.
    for share in (1 / 3, 1.0):
        up, down = lab(scale.colour(share)), lab(scale.colour(-share))
        assert np.linalg.norm(up - down) > 20
        assert min(np.linalg.norm(one - lab((1, 1, 1))) for one in (up, down)) > 7


def test_a_scale_leaves_few_atoms_beyond():
    many = [np.linspace(-1, 1, 101), np.array([30.0])]
    scale = Scale.of(many, "a")
    assert scale.largest == 1.0
    assert scale.ends == ("≤ \N{MINUS SIGN}1", "0", "≥ +1")
    assert Scale.of([np.array([0.0, 0.2, -0.2])], "a").ends == ("\N{MINUS SIGN}0.2", "0", "+0.2")
    assert Scale.of([np.array([0.2])], "a", signed=False).ends == ("0", "", "0.2")
    # Of nearly all atoms nothing: the others are shown.
    assert Scale.of([np.zeros(40), np.array([-0.3])], "a").largest == 0.3
    assert Scale.of([], "a").largest == Scale.of([np.zeros(3)], "a").largest == 1.0


@pytest.mark.parametrize("signed", [True, False])
def test_the_bar_goes_from_the_lowest_to_the_highest_contribution(signed):
    scale = Scale(2.0, "a", signed=signed)
    root = ET.fromstring(draw_contributions(MOLECULES[:1], [np.zeros(3)], scale))
    paths = [one.get("style", "") for one in root.iter(f"{SVG}path") if not one.get("class")]
    found = [style[6:12] for style in paths if style.startswith("fill:#")]
    assert len(found) > 20
    values = np.linspace(-2.0 if signed else 0.0, 2.0, 2 * len(found) + 1)[1::2]
    expected = 255 * np.array([scale.colour(value) for value in values])
    np.testing.assert_allclose([[*bytes.fromhex(one)] for one in found], expected, atol=1)


def test_words_stand_in_the_svg():
    captions = [["<ethanol> & co", "1"], ["benzene", "µM"]]
    file = draw_contributions(MOLECULES, VALUES, Scale(1.0, "to logP [Å]"), captions=captions)
    root = ET.fromstring(file)
    assert [one.text for one in root.iter(f"{SVG}text")] == [
        "<ethanol> & co",
        "1",
        "benzene",
        "µM",
        "to logP [Å]",
        "\N{MINUS SIGN}1",
        "0",
        "+1",
    ]
    columns = [float(one.get("x")) // CELL[0] for one in root.iter(f"{SVG}text")]
    assert columns[:4] == [0, 0, 1, 1]


def test_what_no_xml_may_hold_is_marked():
    captions = [["C\x01C\nC", "\udcff\x0b"], ["5\xa0mg\u2009/\u2009l", "co\xadop"]]
    scale = Scale(1.0, "a\x01b")
    root = ET.fromstring(draw_contributions(MOLECULES, VALUES, scale, captions=captions))
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert texts[:5] == ["C?C?C", "??", *captions[1], "a?b"]  # spaces of any kind are text


def test_a_png_has_a_place_for_each_and_the_bar_below():
    given = [*MOLECULES, None, MOLECULES[0]]
    values = [*VALUES, np.empty(0), np.empty(0)]
    picture = imread(io.BytesIO(draw_contributions(given, values, Scale(1.0, "a"), "png")))
    height, width, _ = picture.shape
    assert (width, height) == (2 * 3 * CELL[0], 2 * (2 * CELL[1] + 66))
    pixels = {
        tuple(colour) for colour in (255 * picture[..., :3]).round().reshape(-1, 3).astype(int)
    }
    for value in (-0.5, 1.0, -0.25):
        expected = np.floor(255 * np.array(Scale(1.0, "a").colour(value)))
        assert any(np.abs(expected - pixel).max() <= 1 for pixel in map(np.array, pixels))


def test_dollars_in_a_png_are_no_formula():
    captions = [[r"$\nothing$", "$"]]
    file = draw_contributions(MOLECULES[:1], VALUES[:1], Scale(1.0, "a"), "png", captions=captions)
    assert file.startswith(b"\x89PNG")
