"""predict.py on tables: as many rows out as in, nothing lost, every mistake one line."""

import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from predict_tables import SMILES, rows_of, table, write_csv
from reference.checkpoints import make_checkpoint
from tiny_run import refused

from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.inference import predict_table
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.tables.opening import open_table


def test_rows_come_back_in_order_with_values_and_reasons(model, tmp_path, capsys, small_chunks):
    source, output = table(tmp_path), tmp_path / "out.csv"
    assert main([str(model), "-i", str(source), "-o", str(output), "--device", "cpu"]) == 0
    header, *rows = rows_of(output)
    assert header == ["id", "SMILES", "pred_property", "warning", "error"]
    assert [row[:2] for row in rows] == [[str(n), text] for n, text in enumerate(SMILES)]
    expected = Predictor.load(model, "cpu").predict(SMILES)
    for row, value, error in zip(rows, expected.values[:, 0], expected.errors, strict=True):
        assert row[4] == error
        if error:
            assert row[2] == ""
        else:
            assert float(row[2]) == pytest.approx(value, rel=1e-5)
    summary = capsys.readouterr().err
    assert "11 rows, 7 predicted, 4 without a prediction" in summary
    assert "not a valid molecule 2" in summary
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]


@pytest.mark.parametrize("suffix", ["csv", "xlsx", "parquet"])
def test_molecules_of_the_command_line_go_into_a_file(model, tmp_path, capsys, suffix):
    output = tmp_path / f"a.{suffix}"
    expected = Predictor.load(model, "cpu").predict(["CCO", "C(("])
    arguments = [str(model), "CCO", "C((", "-o", str(output), "--device", "cpu"]
    assert main(arguments) == 0
    with open_table(output) as reader:
        assert reader.columns == ("smiles", "pred_property", "warning", "error")
        first, second = (row.cells for row in reader)
    assert float(first[1]) == pytest.approx(expected.values[0, 0], rel=1e-5)
    assert (second[0], second[1] or None, second[3]) == ("C((", None, expected.errors[1])
    assert [path.name for path in tmp_path.iterdir()] == [output.name]
    before = output.read_bytes()
    assert "is there already" in refused(capsys, main, *arguments)
    assert output.read_bytes() == before
    assert main([str(model), "CCC", "-o", str(output), "--overwrite"]) == 0
    assert output.read_bytes() != before


def test_sdf_in_and_out(model, tmp_path, monkeypatch):
    from rdkit import Chem

    records = []
    for name, smiles in (("ethanol", "CCO"), ("benzene", "c1ccccc1")):
        molecule = Chem.MolFromSmiles(smiles)
        molecule.SetProp("_Name", name)
        records.append(Chem.MolToMolBlock(molecule) + f">  <number>\n{len(smiles)}\n\n$$$$\n")
    source = tmp_path / "in.sdf"
    source.write_text(records[0] + "\n\nnonsense\n$$$$\n" + records[1])
    output = tmp_path / "out.csv"
    assert main([str(model), "-i", str(source), "-o", str(output), "--quiet"]) == 0
    header, *rows = rows_of(output)
    assert header == ["title", "number", "smiles", "pred_property", "warning", "error"]
    assert [row[0] for row in rows] == ["ethanol", "", "benzene"]
    assert [row[2] for row in rows] == ["CCO", "", "c1ccccc1"]
    assert "mol block" in rows[1][5]
    sdf = tmp_path / "out.sdf"
    monkeypatch.setattr(predict_table, "canonical_smiles", None)  # takes time, and is not written
    assert main([str(model), "-i", str(source), "-o", str(sdf), "--quiet"]) == 0
    with open_table(sdf) as read:
        again = list(read)
        place = read.columns.index("pred_property")
    assert [row.cells[place] for row in again] == [row[3] for row in rows]
    molecules = [molecule for molecule in Chem.SDMolSupplier(str(sdf)) if molecule]
    assert [Chem.MolToSmiles(molecule) for molecule in molecules] == ["CCO", "c1ccccc1"]


CELLS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12
) | st.sampled_from(['"', "a\nb", "a\r\nb", " x ", ",", "pred_property", "\udcff"])


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    header=st.lists(CELLS, min_size=1, max_size=4),
    rows=st.lists(st.tuples(st.sampled_from(SMILES), *[CELLS] * 4), max_size=9),
    place=st.integers(0, 4),
)
def test_random_tables_come_back_cell_by_cell(model, tmp_path, small_chunks, header, rows, place):
    """Quotes, line ends in cells, any characters, duplicate columns, no rows, only bad rows."""
    place = min(place, len(header))
    names = [name.strip().replace("smi", "").replace("SMI", "") or "x" for name in header]
    names.insert(place, "smiles")
    cells = [[*row[1 : len(header) + 1]] for row in rows]
    for row, given_row in zip(cells, rows, strict=True):
        row.insert(place, given_row[0])
    source, output = write_csv(tmp_path / "in.csv", [names, *cells]), tmp_path / "out.csv"
    status = main([str(model), "-i", str(source), "-o", str(output), "--overwrite", "--quiet"])
    written = rows_of(output)
    assert len(written) == len(rows) + 1
    assert status == int(all(row[-1] for row in written[1:]))  # the last is `error`
    assert written[0][: len(names)] == names
    assert [row[: len(names)] for row in written[1:]] == cells
    added = written[0][len(names) :]
    assert len({name.lower() for name in added}) == 3
    assert not {name.lower() for name in added} & {name.lower() for name in names}


def test_evaluation(model, tmp_path, capsys, small_chunks):
    labels = [["smiles", "y"]]
    predicted = Predictor.load(model, "cpu").predict(SMILES)
    for number, (smiles, value) in enumerate(zip(SMILES, predicted.values[:, 0], strict=True)):
        labels.append([smiles, "" if number == 2 else str(np.nan_to_num(value) + 0.5)])
    labels += [["CCO", ">3"]]
    source, output = write_csv(tmp_path / "in.csv", labels), tmp_path / "out.csv"
    semicolons = tmp_path / "semicolons.csv"
    semicolons.write_text(source.read_text().replace(",", ";").replace(".", ","))
    for path in (source, semicolons):
        arguments = [str(model), "-i", str(path), "-o", str(output), "--evaluate", "y", "--quiet"]
        assert main([*arguments, "--overwrite"]) == 0
        said = capsys.readouterr().out
        assert "MAE 0.5000 mol/L, RMSE 0.5000 mol/L, R2 " in said
        assert "; 4 with a label but no prediction; 1 with a label that cannot be used" in said
    with_comma = labels[1][1].replace(".", ",")
    assert output.read_text().splitlines()[1].split(";")[1].strip('"') == with_comma


@pytest.mark.parametrize(
    ("header", "names", "targets"),
    [
        ("abc", "cab", "cab"),
        ("abc", "b", "b"),
        ("ABC", "CAB", "cab"),
        ("xyz", "xyz", "abc"),  # other names stand for the targets in their order
        ("abz", "abz", "abc"),
        ("abz", "baz", ""),  # not where some are called like targets and stand elsewhere
    ],
)
def test_columns_that_are_called_like_targets_are_theirs(tmp_path, capsys, header, names, targets):
    torch.save(make_checkpoint(targets=("a", "b", "c")), tmp_path / "model.ckpt")
    model = str(tmp_path / "model.ckpt")
    smiles = ["CCO", "CCN"]
    values = Predictor.load(model, "cpu").predict(smiles).values + np.arange(1, 4)
    rows = [[text, *row] for text, row in zip(smiles, values.tolist(), strict=True)]
    source = write_csv(tmp_path / "in.csv", [["smiles", *header], *rows])
    words = [model, "-i", str(source), *(word for name in names for word in ("--evaluate", name))]
    words += ["-o", str(tmp_path / "out.csv"), "--quiet"]
    if not targets:
        assert "--evaluate names 3 columns, b, a, z for" in refused(capsys, main, *words)
        return

    def said(*words):
        assert main([*words]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line.split(",")[0] for line in lines if "mean of" not in line], lines[-1]

    shown, last = said(*words)
    assert shown == [f"{name}  MAE {'abc'.index(name) + 1:#.4g} mol/L" for name in targets]
    assert last.startswith("mean of 3 targets  MAE 2.000, RMSE 2.000") == (len(targets) == 3)
    if {*header.lower()} == {*"abc"}:
        others = [word for word in words if word not in ("--evaluate", *names)]
        everything = said(*others, "--evaluate", "all", "--overwrite")
        assert everything[0] == [f"{name}  MAE {at:#.4g} mol/L" for at, name in enumerate("abc", 1)]


MISTAKES = """
nothing to predict                       {model}
fit is no model                          fit {model} CCO
'explain'                                explian {model} CCO
predict.py info                          {model} info
there is no file x.csv                   --evaluate y {model} -i x.csv
SMILES in column 'X'                     {model} -i {numbers}
give molecules or a table, not both      {model} CCO -i {table}
did you mean -i                          {model} {table}
--resume is for tables                   {model} CCO --resume
is a directory                           {model} -i {folder} --input_format csv
what format is this                      {model} -i {table} -o out.ods
is the input                             {model} -i {table} -o {table} --overwrite
is the input                             {model} -i {table} -o {link} --overwrite
is there already                         {model} -i {table} -o {model}
cannot be written                        {model} -i {table} -o {folder}/no/out.csv
'smile' (did you mean 'SMILES'?)         {model} -i {table} --smiles_column smile
first line has 'CCO'                     {model} -i {headless}
column of SMILES with --smiles_column    {model} -i {headless_of_two}
--evaluate names 2 columns               {model} -i {table} --evaluate id --evaluate id
--batch_size is 0                        {model} CCO --batch_size 0
invalid choice: 'xls'                    {model} -i {table} --input_format xls
SDF can only be written                  {model} -i {table} -o {folder}/out.sdf
device 'tpu'                             {model} CCO --device tpu
--jobs is for tables                     {model} CCO --jobs 2
--shard is 0/3                           {model} -i {table} --shard 0/3
--shard is 3: give K/N                   {model} -i {table} --shard 3
--shard needs an input file              {model} -i - --shard 1/2
leave it out with --shard                {model} -i {table} --evaluate id --shard 1/2
""".strip().splitlines()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line_and_status_2(mistake, model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said, words = mistake[:40].strip(), mistake[40:].split()
    source = table(tmp_path)
    before = source.read_bytes(), model.read_bytes()
    names = {"model": model, "table": source, "folder": tmp_path, "link": tmp_path / "link.csv"}
    if "{link}" in words:
        names["link"].symlink_to(source)
    tables = {"headless": "CCO\nCCC\n", "headless_of_two": "7,C#N\n8,CCC\n"}
    tables["numbers"] = "X\n1\n\n2\n"
    for name, text in tables.items():
        names[name] = model.parent / f"{name}.csv"
        names[name].write_text(text)
    assert said in refused(capsys, main, *(word.format(**names) for word in words))
    assert (source.read_bytes(), model.read_bytes()) == before
    assert {path.name for path in tmp_path.iterdir()} - {"link.csv"} == {"in.csv"}


@pytest.mark.parametrize(("molecules", "status"), [(["CCO", "C(("], 0), (["C((", "?"], 1), ([], 1)])
def test_status_tells_when_nothing_could_be_predicted(molecules, status, model, tmp_path, capsys):
    if molecules:  # with which options may be mixed
        words = [molecules[0], "--device", "cpu", molecules[1], "--batch_size", "1"]
        assert main([str(model), *words]) == status
        rows = capsys.readouterr().out.splitlines()
        assert [row.split(",")[0] for row in rows] == ["smiles", *molecules]
    source = tmp_path / "in.csv"
    source.write_text("\n".join(["smiles", *molecules]) + "\n")
    assert main([str(model), "-i", str(source), "-o", str(tmp_path / "out.csv")]) == status
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 1 + len(molecules)


@pytest.mark.parametrize("columns", [200, 43])
def test_terminal_gets_an_aligned_table(columns: int, model, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main([str(model), "CCO", "c1ccccc1C#N", "xx", "CCCCCC", "--device", "cpu"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    if columns < 100:  # a block for each molecule
        assert header.split() == ["smiles", "CCO"]
        assert re.fullmatch(r"property \[mol/L\]  \d\d\.\d\d", rows[0])
        assert rows[2].split() == ["smiles", "c1ccccc1C#N"]
        assert "not a valid molecule" in rows[6]
        return
    assert header.split() == ["smiles", "property", "[mol/L]"]
    place = header.index("property")
    assert all(row[place - 1] == " " for row in rows)
    assert "not a valid molecule" in rows[2]


def test_a_backbone_is_no_model_of_a_property(tmp_path, capsys) -> None:
    (tmp_path / "a.csv").write_text("smiles\nCCO\n")
    for molecules in (["CCO"], ["-i", tmp_path / "a.csv", "-o", tmp_path / "b.csv"]):
        error = refused(capsys, main, "graphormer-small", *molecules)
        assert "python predict.py embed graphormer-small" in error
    assert not (tmp_path / "b.csv").exists()
