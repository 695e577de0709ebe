"""predict.py embed: the embeddings of a table's molecules, row by row, in every format."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
import torch
from predict_tables import SMILES, rows_of, table
from rdkit import Chem
from reference.checkpoints import make_checkpoint
from tiny_run import refused

from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.inference import predict_table
from graphormer_sepnorm.inference.predictor import Predictor


def embed(model, source, output, *options):
    return main(["embed", str(model), "-i", str(source), "-o", str(output), *options])


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_rows_come_back_in_order_with_all_channels(model, tmp_path, capsys, small_chunks, jobs):
    source, output = table(tmp_path), tmp_path / "out.csv"
    assert embed(model, source, output, "--jobs", jobs, "--device", "cpu") == 0
    header, *rows = rows_of(output)
    assert header == ["id", "SMILES", *(f"cls_{n}" for n in range(16)), "warning", "error"]
    assert [row[:2] for row in rows] == [[str(n), text] for n, text in enumerate(SMILES)]
    expected = Predictor.load(model, "cpu").embed(SMILES)
    assert [row[-1] for row in rows] == list(expected.errors)
    values = [[float(cell or "nan") for cell in row[2:-2]] for row in rows]
    np.testing.assert_allclose(values, expected.values, rtol=1e-4, atol=1e-5)
    assert "11 rows, 7 embedded, 4 without an embedding" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]


def test_formats_hold_the_same_numbers(model, tmp_path, small_chunks):
    source = table(tmp_path)
    for suffix in ("csv", "parquet"):
        assert embed(model, source, tmp_path / f"out.{suffix}", "--quiet") == 0
    expected = Predictor.load(model, "cpu").embed(SMILES).values
    of_csv = pandas.read_csv(tmp_path / "out.csv")
    of_parquet = pandas.read_parquet(tmp_path / "out.parquet")
    assert set(of_parquet.dtypes[2:18]) == {np.dtype(np.float32)}
    names = [f"cls_{n}" for n in range(16)]
    of_csv, of_parquet = (one[names].to_numpy(np.float32) for one in (of_csv, of_parquet))
    np.testing.assert_array_equal(of_csv, of_parquet)
    np.testing.assert_allclose(of_csv, expected, rtol=1e-4, atol=1e-5)


def test_records_of_sdf_get_their_channels(model, tmp_path):
    source = tmp_path / "in.sdf"
    source.write_text(
        "".join(Chem.MolToMolBlock(Chem.MolFromSmiles(text)) + "$$$$\n" for text in ("OCC", "CN"))
    )
    assert embed(model, source, tmp_path / "out.sdf", "--quiet") == 0
    assert (tmp_path / "out.sdf").read_text().count("cls_15") == 2


def test_an_interrupted_job_goes_on_as_what_it_was(
    model, tmp_path, capsys, monkeypatch, small_chunks
):
    source, output, whole = table(tmp_path), tmp_path / "out.csv", tmp_path / "whole.csv"
    assert embed(model, source, whole, "--quiet") == 0
    save = predict_table.save_progress

    def stop_at_the_second(job, mark, identity, outcome):
        if outcome.safe_rows:
            raise KeyboardInterrupt
        save(job, mark, identity, outcome)

    with monkeypatch.context() as patch:
        patch.setattr(predict_table, "save_progress", stop_at_the_second)
        assert embed(model, source, output, "--jobs", "1") == 130
    said = capsys.readouterr().err
    assert f"predict.py embed {model} -i {source} -o {output} --jobs 1 --resume" in said
    # Predictions are not to be written behind embeddings.
    words = (model, "-i", source, "-o", output, "--resume")
    assert "was started with another options" in refused(capsys, main, *words)
    assert embed(model, source, output, "--quiet", "--resume") == 0
    assert output.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "out.parquet", "--resume"], "--resume needs an input file"),
        (["-o", "there.csv"], "there.csv is there already"),
        (["-o", "none/out.csv"], "none/out.csv cannot be written (No such file or directory)"),
        (["-o", "out.txt.xyz"], "what format is this?"),
    ],
)
def test_mistakes_are_one_line(model, tmp_path, capsys, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    table(tmp_path)
    (tmp_path / "there.csv").touch()
    before = sorted(tmp_path.rglob("*"))
    assert said in refused(capsys, main, "embed", str(model), "-i", "in.csv", *arguments)
    assert sorted(tmp_path.rglob("*")) == before


def test_status_is_1_where_nothing_could_be_embedded(model, tmp_path):
    assert embed(model, table(tmp_path, ["xx", ""]), tmp_path / "out.csv", "--quiet") == 1


def test_a_model_that_reads_atoms_says_so(tmp_path, capsys):
    path = tmp_path / "model.ckpt"
    torch.save(make_checkpoint(readout="sum"), path)
    assert embed(path, table(tmp_path), tmp_path / "out.csv") == 0
    assert "note: this model reads its predictions from the atoms, not" in capsys.readouterr().err
