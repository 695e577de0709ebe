"""predict.py --shard: the parts of a table behind each other are the table, byte by byte."""

from __future__ import annotations

import pytest
from predict_tables import SMILES, interrupt, one_line, rows_of, table, write_csv
from rdkit import Chem

from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.inference import stream
from graphormer_sepnorm.inference.table_job import Shard
from graphormer_sepnorm.tables.opening import open_table
from graphormer_sepnorm.tables.writer import create_table

# In chunks of four rows: 13 chunks, the last of them with three.
MOLECULES = [*SMILES, *("C" * (1 + n % 9) + "O" * (n % 2) for n in range(40))]


@pytest.mark.parametrize("of", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("total", [0, 1, 4, 51])
def test_shards_are_disjoint_and_complete(total, of):
    shards = [Shard(number, of).rows(total, 4) for number in range(1, of + 1)]
    assert [row for shard in shards for row in shard] == [*range(total)]
    assert all(shard.start % 4 == 0 for shard in shards if shard)
    assert max(map(len, shards)) - min(map(len, shards)) <= 2 * 4 - 1


def source_of(format, folder):
    path = folder / f"in.{format}"
    if format == "sdf":
        blocks = [Chem.MolToMolBlock(mol) for mol in map(Chem.MolFromSmiles, MOLECULES) if mol]
        path.write_text("".join(f"{block}$$$$\n" for block in blocks))
    elif format == "smi":
        path.write_text("\n".join(MOLECULES) + "\n")
    elif format in ("parquet", "xlsx"):
        writer = create_table(path, ["smiles", "id"])
        writer.write([[text, str(number)] for number, text in enumerate(MOLECULES)])
        writer.commit()
    else:
        write_csv(path, [["smiles", "id"], *([t, str(n)] for n, t in enumerate(MOLECULES))])
    return path


@pytest.mark.parametrize("format", ["csv", "smi", "sdf", "parquet", "xlsx"])
def test_shards_behind_each_other_are_the_whole_output(format, model, tmp_path, small_chunks):
    source, whole = source_of(format, tmp_path), tmp_path / "whole.csv"
    options = [str(model), "-i", str(source), "--quiet"]
    assert main([*options, "-o", str(whole)]) == 0
    header, *expected = whole.read_bytes().splitlines(keepends=True)
    together = []
    for number in (1, 2, 3):
        part = tmp_path / f"part-{number}.csv"
        assert main([*options, "-o", str(part), "--shard", f"{number}/3"]) == 0
        first, *rows = part.read_bytes().splitlines(keepends=True)
        assert first == header
        assert len(rows) > 10
        together += rows
    assert together == expected


def test_a_shard_without_rows_is_a_table_without_rows(model, tmp_path, small_chunks):
    source = table(tmp_path)
    counts = []
    for number in range(1, 6):  # of three chunks
        for suffix in ("csv", "parquet"):
            part = tmp_path / f"{number}.{suffix}"
            options = ["-i", str(source), "-o", str(part), "--shard", f"{number}/5", "--quiet"]
            assert main([str(model), *options]) == 0
        with open_table(part) as read:
            assert read.columns == ("id", "SMILES", "pred_property", "warning", "error")
            counts.append(len(list(read)))
        assert len(rows_of(tmp_path / f"{number}.csv")) == counts[-1] + 1
    assert sum(counts) == len(SMILES)
    assert counts.count(0) == 2


def test_an_interrupted_shard_continues_as_that_shard(
    model, tmp_path, capsys, monkeypatch, small_chunks
):
    source = source_of("csv", tmp_path)
    whole, output = tmp_path / "whole.csv", tmp_path / "out.csv"
    options = [str(model), "-i", str(source), "--jobs", "1", "--shard", "2/3"]
    assert main([*options, "-o", str(whole)]) == 0
    options += ["-o", str(output)]
    with monkeypatch.context() as patch:
        interrupt(patch, 2)
        assert main(options) == 130
    capsys.readouterr()
    other = ["3/3" if word == "2/3" else word for word in options]
    assert main([*other, "--resume"]) == 2
    assert "begun with another options" in one_line(capsys)
    assert main([*options, "--resume"]) == 0
    assert output.read_bytes() == whole.read_bytes()


MISTAKES = {
    "--shard is 0/3: give K/N": ["-i", "{table}", "--shard", "0/3"],
    "--shard is 4/3: give K/N": ["-i", "{table}", "--shard", "4/3"],
    "--shard is 3: give K/N": ["-i", "{table}", "--shard", "3"],
    "--shard needs an input file": ["-i", "-", "--shard", "1/2"],
    "--shard is for tables": ["CCO", "--shard", "1/2"],
    "--evaluate compares whole tables": ["-i", "{table}", "--evaluate", "id", "--shard", "1/2"],
}


@pytest.mark.parametrize("said", MISTAKES)
def test_mistakes_are_one_line(said, model, tmp_path, capsys):
    words = [word.format(table=table(tmp_path)) for word in MISTAKES[said]]
    assert main([str(model), *words]) == 2
    assert said in one_line(capsys)


def test_progress_is_that_of_the_shard(model, tmp_path, capsys, monkeypatch, small_chunks):
    monkeypatch.setattr("graphormer_sepnorm.formatting.StatusLine.is_due", lambda self: True)
    shown = []
    monkeypatch.setattr(
        "graphormer_sepnorm.formatting.StatusLine.show", lambda self, text: shown.append(text)
    )
    source = source_of("csv", tmp_path)
    options = [str(model), "-i", str(source), "-o", str(tmp_path / "out.csv")]
    assert main([*options, "--shard", "3/3"]) == 0
    assert stream.CHUNK_ROWS == 4
    assert "100%" in shown[-1]
    assert shown[-1].startswith("19 rows predicted")
