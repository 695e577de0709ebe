"""predict.py embed: the embeddings of a table's molecules, row by row, in every format."""

from __future__ import annotations

import os

import numpy as np
import pandas
import pytest
import torch
from predict_tables import SMILES, rows_of, table
from rdkit import Chem
from reference.checkpoints import make_checkpoint
from tiny_run import refused

from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.inference import embedding_file, stream
from graphormer_sepnorm.inference.checkpoint import KEY
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


@pytest.mark.parametrize("atoms", [False, True])
def test_formats_hold_the_same_numbers(model, tmp_path, small_chunks, atoms):
    source = table(tmp_path)
    for suffix in ("csv", "parquet"):
        assert embed(model, source, tmp_path / f"out.{suffix}", "--quiet") == 0
    options = ["--atoms"] if atoms else []
    assert embed(model, source, tmp_path / "out.npz", "--quiet", *options) == 0
    with np.load(tmp_path / "out.npz") as file:  # allows no pickle
        arrays = dict(file)
    assert arrays["cls"].dtype == np.float32
    assert arrays["cls"].shape == (11, 16)
    assert arrays["smiles"].tolist() == SMILES
    read = {
        "csv": pandas.read_csv(tmp_path / "out.csv"),
        "parquet": pandas.read_parquet(tmp_path / "out.parquet"),
    }
    for frame in read.values():
        values = frame[[f"cls_{n}" for n in range(16)]].to_numpy(np.float32)
        np.testing.assert_array_equal(values, arrays["cls"])
        assert frame["error"].fillna("").tolist() == arrays["error"].tolist()
        assert frame["id"].astype(int).tolist() == list(range(11))
    assert set(read["parquet"].dtypes[2:18]) == {np.dtype(np.float32)}
    assert read["parquet"]["cls_0"].isna().sum() == 4
    assert ("atoms" in arrays) == atoms
    if atoms:
        counts = np.diff(arrays["first_atom"]).tolist()
        assert counts == [3, 6, 2, 0, 0, 4, 0, 2, 6, 0, 3]
        expected = Predictor.load(model, "cpu").embed(SMILES, atoms=True)
        np.testing.assert_allclose(arrays["atoms"], expected.atoms, rtol=1e-4, atol=1e-5)


def test_no_file_takes_the_place_of_a_pipe(model, tmp_path, capsys):
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    words = ["embed", model, "-i", table(tmp_path), "-o", pipe, "--overwrite"]
    assert f"{pipe} is no file: name a file" in refused(capsys, main, *words)
    assert pipe.is_fifo()


def test_an_empty_table_has_empty_arrays(model, tmp_path):
    source, output = table(tmp_path, []), tmp_path / "out.npz"
    assert embed(model, source, output, "--quiet", "--atoms") == 1
    with np.load(output) as file:
        shapes = {name: file[name].shape for name in file}
    assert shapes["cls"] == shapes["atoms"] == (0, 16)
    assert (shapes["smiles"], shapes["first_atom"]) == ((0,), (1,))


def test_records_of_sdf_get_their_smiles(model, tmp_path):
    source = tmp_path / "in.sdf"
    source.write_text(
        "".join(Chem.MolToMolBlock(Chem.MolFromSmiles(text)) + "$$$$\n" for text in ("OCC", "CN"))
    )
    assert embed(model, source, tmp_path / "out.npz", "--quiet", "--atoms") == 0
    expected = Predictor.load(model, "cpu").embed(["CCO", "CN"], atoms=True)
    with np.load(tmp_path / "out.npz") as file:
        assert file["smiles"].tolist() == ["CCO", "CN"]
        assert "read_as" not in file
        np.testing.assert_allclose(file["atoms"], expected.atoms, rtol=1e-4, atol=1e-5)
    assert embed(model, source, tmp_path / "out.sdf", "--quiet") == 0
    assert (tmp_path / "out.sdf").read_text().count("cls_15") == 2


def test_atoms_of_standardised_molecules_are_those_of_what_was_read(tmp_path):
    checkpoint = make_checkpoint()
    torch.save(checkpoint, tmp_path / "plain.ckpt")
    checkpoint[KEY]["standardise"] = ["fragment"]
    torch.save(checkpoint, tmp_path / "a.ckpt")
    source = table(tmp_path, ["Cl.OCC", "xx", "CN"])
    assert embed(tmp_path / "a.ckpt", source, tmp_path / "out.npz", "--quiet", "--atoms") == 0
    expected = Predictor.load(tmp_path / "plain.ckpt", "cpu").embed(["CCO", "CN"], atoms=True)
    with np.load(tmp_path / "out.npz") as file:
        assert file["read_as"].tolist() == ["CCO", "", "CN"]
        np.testing.assert_allclose(file["atoms"], expected.atoms, rtol=1e-4, atol=1e-5)


def test_a_cell_of_any_length_takes_no_more_room_than_a_molecule(model, tmp_path):
    source, output = table(tmp_path, ["CCO", "x" * 100_000]), tmp_path / "out.npz"
    assert embed(model, source, output, "--quiet") == 0
    with np.load(output) as file:
        assert file["smiles"].tolist() == ["CCO", "x" * 10_000]
        assert "too large" in file["error"][1]


def test_an_interrupted_job_goes_on_as_what_it_was(
    model, tmp_path, capsys, monkeypatch, small_chunks
):
    source, output, whole = table(tmp_path), tmp_path / "out.csv", tmp_path / "whole.csv"
    assert embed(model, source, whole, "--quiet") == 0
    save = stream.save_progress

    def stop_at_the_second(job, mark, identity, outcome):
        if outcome.safe_rows:
            raise KeyboardInterrupt
        save(job, mark, identity, outcome)

    with monkeypatch.context() as patch:
        patch.setattr(stream, "save_progress", stop_at_the_second)
        assert embed(model, source, output, "--jobs", "1") == 130
    said = capsys.readouterr().err
    assert f"predict.py embed {model} -i {source} -o {output} --jobs 1 --resume" in said
    # Predictions are not to be written behind embeddings.
    words = (model, "-i", source, "-o", output, "--resume")
    assert "was begun with another options" in refused(capsys, main, *words)
    assert embed(model, source, output, "--quiet", "--resume") == 0
    assert output.read_bytes() == whole.read_bytes()


def test_an_interruption_leaves_no_arrays(model, tmp_path, monkeypatch):
    source = table(tmp_path)

    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(embedding_file, "_arrays", stop)
    assert embed(model, source, tmp_path / "out.npz") == 130
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "out.csv", "--atoms"], "--atoms needs arrays: give -o FILE.npz"),
        (["-o", "out.npz", "--resume"], "an output file other than Parquet, Excel and .npz"),
        (["-o", "there.npz"], "there.npz is there already"),
        (["-o", "folder.npz"], "folder.npz is a directory"),
        (["-o", "none/out.npz"], "none/out.npz cannot be written (No such file or directory)"),
        (["-o", "out.txt.xyz"], "what format is this?"),
        (["--output_format", "npz"], "arrays cannot be written to standard output"),
        (["--jobs", "0"], "--jobs is 0: it must be 1 or more"),
        (["--evaluate", "x"], "unrecognized arguments: --evaluate x"),
    ],
)
def test_mistakes_are_one_line(model, tmp_path, capsys, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    table(tmp_path)
    (tmp_path / "there.npz").touch()
    (tmp_path / "folder.npz").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert said in refused(capsys, main, "embed", str(model), "-i", "in.csv", *arguments)
    assert sorted(tmp_path.rglob("*")) == before


def test_status_is_1_where_nothing_could_be_embedded(model, tmp_path):
    assert embed(model, table(tmp_path, ["xx", ""]), tmp_path / "out.npz", "--quiet") == 1


def test_a_model_that_reads_atoms_says_so(tmp_path, capsys):
    path = tmp_path / "model.ckpt"
    torch.save(make_checkpoint(readout="sum"), path)
    assert embed(path, table(tmp_path), tmp_path / "out.csv") == 0
    assert "note: this model reads its predictions from the atoms, not" in capsys.readouterr().err


def test_help(capsys):
    with pytest.raises(SystemExit) as end:
        main(["embed", "--help"])
    assert end.value.code == 0
    assert "first_atom" in capsys.readouterr().out
