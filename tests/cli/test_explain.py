"""predict.py explain: a page, a picture or numbers for molecules of the command line or a table."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from predict_tables import SMILES, table, write_csv
from rdkit import Chem
from reference.checkpoints import make_checkpoint
from reference.trees import boosted_trees
from tiny_run import refused

from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.inference import explanation_file
from graphormer_sepnorm.inference.blend import Blend
from graphormer_sepnorm.inference.checkpoint import KEY
from graphormer_sepnorm.inference.explanation_methods import METHODS
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.inference.tree_contents import BLEND

GOOD = [n for n, text in enumerate(SMILES) if text not in ("xx", "", "[Si]", "C1CC")]


def explain(model, output, *arguments):
    return main(["explain", str(model), *map(str, arguments), "-o", str(output), "--device", "cpu"])


def numbers_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(text, parse_constant=pytest.fail)  # JSON has no NaN


class Page(HTMLParser):
    """Elements of a page that were not closed, all attributes, rows and their words."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.rows = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append("")

    def handle_startendtag(self, tag, attrs):
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.rows:
            self.rows[-1] += f"{data} "


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_numbers_are_those_of_python(model, tmp_path, capsys, monkeypatch, jobs):
    monkeypatch.setattr(explanation_file, "CHUNK_ROWS", 4)
    output = tmp_path / "why.json"
    method = "integrated_gradients"
    options = ["--jobs", jobs, "--method", method]
    assert explain(model, output, "-i", table(tmp_path), *options) == 0
    found = numbers_of(output)
    expected = Predictor.load(model, "cpu").explain(SMILES, method=method)
    assert (found["target"], found["unit"]) == ("property", "mol/L")
    assert found["method"] == expected.method
    assert [one["smiles"] for one in found["molecules"]] == SMILES
    for one, true in zip(found["molecules"], expected.molecules, strict=True):
        assert (one["error"], one["warning"]) == (true.error, true.warning)
        for name in ("prediction", "value", "baseline", "rest"):
            given = math.nan if one[name] is None else one[name]
            assert given == pytest.approx(getattr(true, name), rel=1e-3, abs=1e-3, nan_ok=True)
        np.testing.assert_allclose(one["contributions"], true.contributions, rtol=1e-3, atol=1e-4)
        assert [tuple(part["atoms"]) for part in one["fragments"]] == list(true.fragments)
        parts = [part["contribution"] for part in one["fragments"]]
        np.testing.assert_allclose(parts, true.of_fragments, rtol=1e-3, atol=1e-4)
    said = capsys.readouterr().err
    assert re.search(r"note: baseline and contributions miss .* by \S+ mol/L at most\n", said)
    assert "11 rows, 7 explained, 4 without an explanation" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "why.json"]


def test_colours_of_a_page_are_chosen_by_its_first_molecules(model, tmp_path, monkeypatch):
    monkeypatch.setattr(explanation_file, "CHUNK_ROWS", 2)
    scales = []
    for number, smiles in enumerate((["xx", "yy", "zz", "CCO", "C#N"], ["CCO"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert explain(model, folder / "why.html", "-i", table(folder, smiles), "--quiet") == 0
        text = (folder / "why.html").read_text(encoding="utf-8")
        scales.append(re.search('<div class="bar">.*?</p></div>', text, re.DOTALL)[0])
        assert all(one in row for one, row in zip(smiles, Page(text).rows[1:], strict=True))
    assert scales[0] == scales[1]


@pytest.mark.parametrize("method", METHODS)
def test_a_page_needs_nothing_beside_itself(model, tmp_path, method):
    output = tmp_path / "why.html"
    assert explain(model, output, "-i", table(tmp_path), "--method", method, "--quiet") == 0
    text = output.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert {"src", "href", "xlink:href"} & {name for name, _ in page.attributes} == set()
    outside = [value for name, value in page.attributes if not name.startswith("xmlns")]
    assert not any(mark in str(value) for value in outside for mark in ("//", "url(", "@import"))
    assert "<script" not in text
    assert text.count("</svg>") == len(GOOD)
    for place, row in enumerate(page.rows[1:]):
        assert SMILES[place] in row
        assert ("predicted" in row) == (place in GOOD)
    assert "'xx' is not a valid molecule" in page.rows[1 + SMILES.index("xx")]
    assert ("where the network looks" in text) == (method == "attention_rollout")
    assert ("it is no cause" in text) == (method != "attention_rollout")


def test_a_page_says_what_the_numbers_say(model, tmp_path):
    for name in ("why.html", "why.json"):
        assert explain(model, tmp_path / name, "CC(=O)Nc1ccncc1") == 0
    [one] = numbers_of(tmp_path / "why.json")["molecules"]
    row = (
        Page((tmp_path / "why.html").read_text(encoding="utf-8"))
        .rows[1]
        .replace("\N{MINUS SIGN}", "-")
    )
    said = [float(word) for word in re.findall(r"[-+]?\d+\.\d+", row)]
    atoms = sum(one["contributions"])
    expected = [one["prediction"], one["baseline"], atoms, one["rest"]]
    parts = sorted((part["contribution"] for part in one["fragments"]), key=abs, reverse=True)
    strongest = sorted(one["contributions"], key=abs, reverse=True)[:5]
    assert said == pytest.approx([*expected, *parts, *strongest], abs=0.06)
    assert all(part["smiles"] in row for part in one["fragments"])


def test_svg_and_png_have_all_molecules(model, tmp_path):
    source = table(tmp_path)
    for suffix in ("svg", "png"):
        assert explain(model, tmp_path / f"why.{suffix}", "-i", source, "--quiet") == 0
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
    root = ET.parse(tmp_path / "why.svg").getroot()
    words = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in SMILES if text and text not in words] == []
    assert sum(str(text).startswith("predicted ") for text in words) == len(GOOD)
    assert sum(" baseline " in str(text) for text in words) == len(GOOD)
    assert "contribution to property [mol/L]" in words
    atoms = sum(Chem.MolFromSmiles(SMILES[n]).GetNumAtoms() for n in GOOD)
    assert len(root.findall(".//{http://www.w3.org/2000/svg}ellipse")) == atoms


def test_of_classes_and_blends_it_says_what_is_explained(tmp_path, capsys):
    trees, _ = boosted_trees("binary", targets=2)
    blend = {BLEND: Blend.of_trees(trees, 0.25).to_plain()}
    torch.save(make_checkpoint(kind="binary", targets=("a", "b")) | blend, tmp_path / "a.ckpt")
    output = tmp_path / "why.html"
    assert explain(tmp_path / "a.ckpt", output, "CCO", "--target", "b") == 0
    text = output.read_text(encoding="utf-8")
    assert re.search(r"probability 0\.\d+, log-odds", text)
    assert "contribution to b [log-odds]" in text
    share = (
        "explained is what the network says, 25% of the prediction; the other 75% is said by trees"
    )
    assert share in text
    assert f"note: {share}\n" in capsys.readouterr().err


def test_a_column_beside_the_molecules_is_read(tmp_path, capsys):
    from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs
    from graphormer_sepnorm.inference.checkpoint import KEY

    checkpoint = make_checkpoint(extra_inputs=1)
    checkpoint[KEY]["extra_inputs"] = ExtraInputs((), ("pH",)).to_plain()
    checkpoint["state_dict"]["model.extra_readout.training_factor"][:] = 0.5
    torch.save(checkpoint, tmp_path / "a.ckpt")
    rows = [["smiles", "pH"], ["CCO", "4"], ["CCO", "7"], ["CCO", "x"]]
    source = write_csv(tmp_path / "in.csv", rows)
    assert explain(tmp_path / "a.ckpt", tmp_path / "why.json", "-i", source) == 0
    four, seven, bad = numbers_of(tmp_path / "why.json")["molecules"]
    assert abs(four["baseline"] - seven["baseline"]) > 0.01
    assert "pH" in bad["error"]
    assert "what the network reads from pH is in the baseline" in capsys.readouterr().err
    words = ("explain", tmp_path / "a.ckpt", "CCO", "-o", tmp_path / "other.json")
    assert "reads pH beside the molecule" in refused(capsys, main, *words)


def test_records_of_sdf_get_their_smiles(model, tmp_path):
    source = tmp_path / "in.sdf"
    source.write_text(
        "".join(Chem.MolToMolBlock(Chem.MolFromSmiles(text)) + "$$$$\n" for text in ("OCC", "CN"))
    )
    assert explain(model, tmp_path / "why.json", "-i", source, "--quiet") == 0
    found = numbers_of(tmp_path / "why.json")["molecules"]
    assert [one["smiles"] for one in found] == ["CCO", "CN"]
    # The contributions are in the order of that, not of the record, which has oxygen first.
    expected = Predictor.load(model, "cpu").explain("CCO").molecules[0].contributions
    np.testing.assert_allclose(found[0]["contributions"], expected, rtol=1e-3, atol=1e-4)


def test_of_a_standardised_molecule_it_is_said_which_atoms_are_explained(tmp_path):
    checkpoint = make_checkpoint()
    torch.save(checkpoint, tmp_path / "plain.ckpt")
    checkpoint[KEY]["standardise"] = ["fragment"]
    torch.save(checkpoint, tmp_path / "a.ckpt")
    assert explain(tmp_path / "a.ckpt", tmp_path / "why.json", "Cl.OCC", "xx", "--quiet") == 0
    one, bad = numbers_of(tmp_path / "why.json")["molecules"]
    assert (one["smiles"], one["read_as"]) == ("Cl.OCC", "CCO")
    assert (bad["smiles"], bad["read_as"]) == ("xx", "xx")
    explained = Predictor.load(tmp_path / "plain.ckpt", "cpu").explain("CCO").molecules[0]
    np.testing.assert_allclose(one["contributions"], explained.contributions, rtol=1e-3, atol=1e-5)
    assert explained.read_as == explained.smiles
    assert explain(tmp_path / "a.ckpt", tmp_path / "why.html", "Cl.OCC", "--quiet") == 0
    row = Page((tmp_path / "why.html").read_text(encoding="utf-8")).rows[1]
    assert "Cl.OCC read as CCO" in " ".join(row.split())
    assert explain(tmp_path / "a.ckpt", tmp_path / "why.svg", "Cl.OCC", "--quiet") == 0
    assert "Cl.OCC, as CCO" in (tmp_path / "why.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("suffix", ["html", "svg", "png", "json"])
def test_bytes_that_are_no_text_are_a_reason_in_every_format(model, tmp_path, suffix):
    source = tmp_path / "in.csv"
    source.write_bytes("smiles\nCCO\nC\xe9O\n".encode("latin-1"))
    assert explain(model, tmp_path / f"why.{suffix}", "-i", source, "--quiet") == 0
    if suffix == "html":
        rows = Page((tmp_path / "why.html").read_text(encoding="utf-8")).rows
        assert "C?O" in rows[2]
        assert "not plain text" in rows[2]


def test_tables_without_rows_have_pages_and_no_pictures(model, tmp_path, capsys):
    source = table(tmp_path, [])
    assert explain(model, tmp_path / "why.json", "-i", source, "--quiet") == 1
    assert numbers_of(tmp_path / "why.json")["molecules"] == []
    assert explain(model, tmp_path / "why.html", "-i", source, "--quiet") == 1
    assert Page((tmp_path / "why.html").read_text(encoding="utf-8")).open == []
    words = ("explain", model, "-i", source, "-o", tmp_path / "why.png", "--quiet")
    assert "there is no molecule to draw" in refused(capsys, main, *words)


def test_status_is_1_where_nothing_could_be_explained(model, tmp_path):
    assert explain(model, tmp_path / "why.html", "xx", "C1CC", "--quiet") == 1
    assert Page((tmp_path / "why.html").read_text(encoding="utf-8")).open == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["CCO"], "the following arguments are required: -o"),
        (["CCO", "-o", "why.pdf"], "why.pdf: what format is this? name a file .html, .svg, .png"),
        (["CCO", "-o", "there.html"], "there.html is there already: give another name, or --over"),
        (["CCO", "-o", "folder.svg"], "folder.svg is a directory: name a file"),
        (["CCO", "-o", "none/why.png"], "none/why.png cannot be written (No such file or direct"),
        (
            ["CCO", "-o", "a.html", "--target", "propertie"],
            "no target 'propertie' (did you mean 'p",
        ),
        (
            ["CCO", "-o", "a.html", "--method", "gradients"],
            "no method 'gradients' (did you mean 'int",
        ),
        (["CCO", "-o", "a.html", "--jobs", "2"], "--jobs is for tables: give one with -i FILE"),
        (["-o", "a.html"], "nothing to explain: give SMILES, or a table with -i FILE"),
        (["in.csv", "-o", "a.html"], "in.csv is a file: did you mean -i in.csv?"),
        (["CCO", "-i", "in.csv", "-o", "a.html"], "'CCO' and -i in.csv: give molecules or a table"),
        (["-i", "in.csv", "-o", "a.html", "--jobs", "0"], "--jobs is 0: it must be 1 or more"),
        (["-i", "none.csv", "-o", "a.html"], "there is no file none.csv"),
        (["-i", "many.csv", "-o", "a.svg"], "a picture holds at most 60 molecules: write a page"),
        (["CCO", "-o", "a.html", "--steps", "3"], "unrecognized arguments: --steps 3"),
    ],
)
def test_mistakes_are_one_line(model, tmp_path, capsys, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    table(tmp_path)
    write_csv(tmp_path / "many.csv", [["smiles"], *(["C"] for _ in range(61))])
    (tmp_path / "there.html").touch()
    (tmp_path / "folder.svg").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert said in refused(capsys, main, "explain", str(model), *arguments)
    assert sorted(tmp_path.rglob("*")) == before


def test_help_names_every_method(capsys):
    with pytest.raises(SystemExit) as end:
        main(["explain", "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert [name for name in METHODS if name not in said] == []
