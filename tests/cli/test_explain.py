"""predict.py explain: a page for molecules of the command line or a table."""

import re

import pandas
import pytest
import torch
from predict_tables import SMILES, table, write_csv
from rdkit import Chem
from reference.checkpoints import make_checkpoint, with_column
from reference.pages import Page
from reference.trees import boosted_trees
from tiny_run import refused

from graphormer_sepnorm.baselines.blend import Blend
from graphormer_sepnorm.chem.scaffolds import fragment_smiles
from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.inference.checkpoint import BLEND, KEY
from graphormer_sepnorm.inference.explain import METHODS
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.pages import explanation

GOOD = [n for n, text in enumerate(SMILES) if text not in ("xx", "", "[Si]", "C1CC")]


def explain(model, output, *arguments):
    return main(["explain", str(model), *map(str, arguments), "-o", str(output), "--device", "cpu"])


def rows_of(path):
    return [" ".join(row.split()) for row in Page(path.read_text(encoding="utf-8")).rows[1:]]


def numbers_in(path, row):
    """Prediction, baseline, sum, rest, and what contributes most."""
    html = path.read_text(encoding="utf-8").split("<tr>")[2 + row].replace("\N{MINUS SIGN}", "-")
    said = re.findall(r"predicted (\S+) |<li><b>([^<]+)</b>", html)
    return [float(predicted or part) for predicted, part in said]


def test_a_page_says_what_python_says(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(explanation, "CHUNK_ROWS", 4)
    output, method = tmp_path / "why.html", "integrated_gradients"
    assert explain(model, output, "-i", table(tmp_path), "--jobs", "2", "--method", method) == 0
    found = Predictor.load(model, "cpu").explain(SMILES, method=method)
    for number, (one, row) in enumerate(zip(found.molecules, rows_of(output), strict=True)):
        if one.error:
            assert one.error in row
            continue
        expected = [one.prediction, one.baseline, one.contributions.sum(), one.rest]
        for values in (one.of_fragments, one.contributions):
            expected += sorted(values, key=abs, reverse=True)[:5]
        assert numbers_in(output, number) == pytest.approx(expected, abs=0.51)
        assert all(fragment_smiles(one.molecule, atoms) in row for atoms in one.fragments[:5])
    said = capsys.readouterr().err
    assert re.search(r"note: baseline and contributions differ .* by up to \S+ mol/L\n", said)
    assert "11 rows, 7 explained, 4 without an explanation" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "why.html"]


def test_colors_of_a_page_are_chosen_by_its_first_molecules(model, tmp_path, monkeypatch):
    monkeypatch.setattr(explanation, "CHUNK_ROWS", 2)
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
def test_a_page_needs_no_other_file(model, tmp_path, method):
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
    assert "it is no cause" in text


def test_of_classes_and_blends_it_says_what_is_explained(tmp_path, capsys):
    trees, _ = boosted_trees("binary", targets=2)
    blend = {BLEND: Blend.of_trees(trees, 0.25).to_plain()}
    torch.save(make_checkpoint(kind="binary", targets=("a", "b")) | blend, tmp_path / "a.ckpt")
    output = tmp_path / "why.html"
    assert explain(tmp_path / "a.ckpt", output, "CCO", "--target", "b") == 0
    text = output.read_text(encoding="utf-8")
    assert re.search(r"predicted 0\.\d+ mol/L, by the network \S+ log-odds", text)
    assert "contribution to b [log-odds]" in text
    share = "explained is the value of the network, without the trees of the blend"
    assert share in text
    assert f"note: {share}\n" in capsys.readouterr().err


def test_a_column_beside_the_molecules_is_read(tmp_path, capsys):
    torch.save(with_column(), tmp_path / "a.ckpt")
    rows = [["smiles", "pH"], ["CCO", "4"], ["CCO", "7"], ["CCO", "x"]]
    source = write_csv(tmp_path / "in.csv", rows)
    assert explain(tmp_path / "a.ckpt", tmp_path / "why.html", "-i", source) == 0
    four, seven = (numbers_in(tmp_path / "why.html", number) for number in (0, 1))
    assert four[1] != seven[1]  # the baseline
    assert "pH" in rows_of(tmp_path / "why.html")[2]
    assert "the effect of pH is in the baseline" in capsys.readouterr().err
    words = ("explain", tmp_path / "a.ckpt", "CCO", "-o", tmp_path / "other.html")
    assert "reads pH in addition to the molecule" in refused(capsys, main, *words)


def test_records_of_sdf_get_their_smiles(model, tmp_path):
    source = tmp_path / "in.sdf"
    blocks = [Chem.MolToMolBlock(Chem.MolFromSmiles(text)) for text in ("OCC", "CN")]
    source.write_text("".join(f"{block}$$$$\n" for block in blocks))
    assert explain(model, tmp_path / "why.html", "-i", source, "--quiet") == 0
    one, two = rows_of(tmp_path / "why.html")
    assert one.startswith("CCO")
    assert two.startswith("CN")
    # Atoms are numbered as there, not as in the record, which has oxygen first.
    assert "O 3" in one


def test_of_a_standardized_molecule_it_is_said_which_atoms_are_explained(tmp_path):
    checkpoint = make_checkpoint()
    checkpoint[KEY]["standardize"] = ["fragment"]
    torch.save(checkpoint, tmp_path / "a.ckpt")
    assert explain(tmp_path / "a.ckpt", tmp_path / "why.html", "Cl.OCC", "xx", "--quiet") == 0
    one, bad = rows_of(tmp_path / "why.html")
    assert "Cl.OCC read as CCO" in one
    assert "read as" not in bad


def test_where_nothing_stands_the_page_has_no_smiles(model, tmp_path):
    """And where nothing could be explained the status is 1."""
    empty, output = tmp_path / "in.parquet", tmp_path / "why.html"
    for smiles in ([], ["xx", "C1CC"]):
        source = table(tmp_path, smiles)
        assert explain(model, output, "-i", source, "--quiet", "--overwrite") == 1
        assert len(rows_of(output)) == len(smiles)
    pandas.DataFrame({"smiles": ["CN", None]}).to_parquet(empty)
    for source in (empty, write_csv(tmp_path / "in.csv", [["smiles"], ["CN"], ["CO", "1"]])):
        assert explain(model, output, "-i", source, "--quiet", "--overwrite") == 0
        assert output.read_text(encoding="utf-8").count("<code></code>") == 1


MISTAKES = """
required: -o                    CCO
why.png                         CCO -o why.png
folder.html is a directory      CCO -o folder.html
none/why.html                   CCO -o none/why.html
did you mean 'property'?        CCO -o a.html --target propertie
did you mean 'int               CCO -o a.html --method gradients
""".strip().splitlines()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line(model, tmp_path, capsys, monkeypatch, mistake):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    said, words = mistake[:32].strip(), mistake[32:].split()
    assert said in refused(capsys, main, "explain", str(model), *words)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.html"]
