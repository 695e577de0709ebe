"""predict.py embed: the embeddings of a table's molecules, row by row, in every format."""

import numpy as np
import pandas
import torch
from predict_tables import SMILES, interrupted, rows_of, table
from reference.checkpoints import make_checkpoint
from tiny_run import refused

from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.inference.predictor import Predictor

CHANNELS = [f"cls_{n}" for n in range(16)]


def embed(model, source, output, *options):
    return main(["embed", str(model), "-i", str(source), "-o", str(output), *options])


def test_rows_come_back_in_order_with_all_channels(model, tmp_path, capsys, small_chunks):
    source, output = table(tmp_path), tmp_path / "out.csv"
    assert embed(model, source, output, "--jobs", "2", "--device", "cpu") == 0
    assert "11 rows, 7 embedded, 4 without an embedding" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]
    header, *rows = rows_of(output)
    assert header == ["id", "SMILES", *CHANNELS, "warning", "error"]
    assert [row[:2] for row in rows] == [[str(n), text] for n, text in enumerate(SMILES)]
    expected = Predictor.load(model, "cpu").embed(SMILES)
    assert [row[-1] for row in rows] == list(expected.errors)
    assert embed(model, source, tmp_path / "out.parquet", "--quiet") == 0
    of_parquet = pandas.read_parquet(tmp_path / "out.parquet")
    assert set(of_parquet.dtypes[2:18]) == {np.dtype(np.float32)}
    values = pandas.read_csv(output)[CHANNELS].to_numpy(np.float32)
    np.testing.assert_array_equal(values, of_parquet[CHANNELS].to_numpy())
    np.testing.assert_allclose(values, expected.values, rtol=1e-4, atol=1e-5)


def test_an_interrupted_job_goes_on_as_what_it_was(model, tmp_path, capsys, small_chunks):
    source, output, whole = table(tmp_path), tmp_path / "out.csv", tmp_path / "whole.csv"
    assert embed(model, source, whole, "--quiet") == 0
    words = ["embed", str(model), "-i", str(source), "-o", str(output), "--jobs", "1"]
    interrupted(words, 1, "embed_molecules")
    said = capsys.readouterr().err
    assert f"predict.py embed {model} -i {source} -o {output} --jobs 1 --resume" in said
    # Predictions are not to be written behind embeddings.
    words = (model, "-i", source, "-o", output, "--resume")
    assert "started with another options" in refused(capsys, main, *words)
    assert embed(model, source, output, "--quiet", "--resume") == 0
    assert output.read_bytes() == whole.read_bytes()


def test_status_is_1_where_nothing_could_be_embedded(tmp_path, capsys):
    path = tmp_path / "model.ckpt"
    torch.save(make_checkpoint(readout="sum"), path)
    assert embed(path, table(tmp_path, ["xx", ""]), tmp_path / "out.csv") == 1
    assert "note: this model reads its predictions from the atoms, not" in capsys.readouterr().err
