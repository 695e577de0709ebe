"""predict.py --shard: the parts of a table behind each other are the table, byte by byte."""

import pytest
from predict_tables import SMILES, interrupted, table, table_of_many
from tiny_run import refused

from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.tables.opening import open_table


@pytest.mark.parametrize("format", ["csv", "sdf", "parquet"])
def test_shards_behind_each_other_are_the_whole_output(format, model, tmp_path, small_chunks):
    source, whole = table_of_many(format, tmp_path), tmp_path / "whole.csv"
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
        part = tmp_path / f"{number}.parquet"
        options = ["-i", str(source), "-o", str(part), "--shard", f"{number}/5", "--quiet"]
        assert main([str(model), *options]) == 0
        with open_table(part) as read:
            assert read.columns == ("id", "SMILES", "pred_property", "warning", "error")
            counts.append(len(list(read)))
    assert sum(counts) == len(SMILES)
    assert counts.count(0) == 2


def test_an_interrupted_shard_continues_as_that_shard(model, tmp_path, capsys, small_chunks):
    source = table_of_many("csv", tmp_path)
    whole, output = tmp_path / "whole.csv", tmp_path / "out.csv"
    options = [str(model), "-i", str(source), "--jobs", "1", "--shard", "2/3"]
    assert main([*options, "-o", str(whole)]) == 0
    options += ["-o", str(output)]
    interrupted(options, 2)
    capsys.readouterr()
    other = ["3/3" if word == "2/3" else word for word in options]
    assert "started with another options" in refused(capsys, main, *other, "--resume")
    assert main([*options, "--resume"]) == 0
    assert output.read_bytes() == whole.read_bytes()
