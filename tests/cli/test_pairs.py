"""``predict.py pairs``: a series of a table, with and without what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch
from reference.checkpoints import make_checkpoint
from tiny_run import read_csv, refused, write_csv

from graphormer_sepnorm.chem.matched_pairs import MatchedPair
from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import KEY
from graphormer_sepnorm.inference.evaluation import label_of
from graphormer_sepnorm.inference.pair_table import PairTable, pair_table
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.inference.table_job import Outcome, TableJob

SERIES = ["CCCCCCN", "CCCCCCO", "C1CC", "CCCCCC", "NCCCCCO", ""]
LABELS = ["1", "2.5", "9", "", "x", "1"]


@pytest.fixture
def series(tmp_path: Path) -> Path:
    rows = [("smiles", "logD"), *zip(SERIES, LABELS, strict=True)]
    return write_csv(tmp_path / "series.csv", rows)


def test_rows_predictions_and_labels_of_each_pair(
    model: Path,
    series: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("graphormer_sepnorm.inference.pair_table.CHUNK_ROWS", 2)
    out = tmp_path / "pairs.csv"
    words = [str(model), "-i", str(series), "-o", str(out), "--label", "LogD", "--device", "cpu"]
    assert predict(["pairs", *words]) == 0
    said = capsys.readouterr().err
    assert "6 rows, 4 predicted, 2 without a prediction" in said
    assert "labels of both molecules differ in 1 pairs: too few to judge by" in said
    found = read_csv(out)
    assert f"{len(found)} pairs, " in said
    predictor = Predictor.load(model, "cpu")
    values = dict(zip(SERIES, predictor.predict(SERIES).values[:, 0].tolist(), strict=True))
    ends = set()
    for row in found:
        first, second = row["smiles_1"], row["smiles_2"]
        ends.add((int(row["row_1"]), int(row["row_2"])))
        assert (SERIES[int(row["row_1"]) - 1], SERIES[int(row["row_2"]) - 1]) == (first, second)
        assert float(row["pred_1"]) == pytest.approx(values[first], rel=1e-5)
        change = values[second] - values[first]
        assert float(row["pred_change"]) == pytest.approx(change, rel=1e-4, abs=1e-6)
    # Hexane to hexylamine and hexanol, these to each other, and the last carbon of their chains to
    # the oxygen and the nitrogen of aminopentanol.
    assert ends == {(4, 1), (4, 2), (1, 2), (1, 5), (2, 5)}
    both = next(row for row in found if row["label_change"])
    assert (both["part_1"], both["part_2"], both["label_change"]) == ("N[*:1]", "O[*:1]", "1.5")


def test_without_labels_there_are_no_columns_of_them(
    model: Path, series: Path, tmp_path: Path
) -> None:
    out = tmp_path / "pairs.tsv"
    assert predict(["pairs", str(model), "-i", str(series), "-o", str(out), "--quiet"]) == 0
    names = out.read_text().splitlines()[0].split("\t")
    assert names[-3:] == ["pred_1", "pred_2", "pred_change"]


def test_a_table_without_pairs_is_written_with_its_header(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.smi").write_text("CCO\nC1CCCCC1\n")
    out = tmp_path / "pairs.csv"
    assert predict(["pairs", str(model), "-i", str(tmp_path / "a.smi"), "-o", str(out)]) == 0
    assert read_csv(out) == []
    assert out.read_text().startswith("row_1,row_2,smiles_1,")


def test_numbers_are_numbers_in_parquet(model: Path, series: Path, tmp_path: Path) -> None:
    out = tmp_path / "pairs.parquet"
    assert predict(["pairs", str(model), "-i", str(series), "-o", str(out), "--quiet"]) == 0
    schema = pyarrow.parquet.read_schema(out)
    kinds = [str(schema.field(name).type) for name in ("row_1", "smiles_1", "pred_change")]
    assert kinds == ["int64", "string", "double"]


def test_of_a_molecule_that_stands_there_twice_the_labelled_row_counts(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("smiles,y\nCCCCCCN,\nNCCCCCC,5\nCCCCCCO,4\nCCCCCC,>3\n")
    out = tmp_path / "pairs.parquet"
    words = [str(model), "-i", str(tmp_path / "a.csv"), "-o", str(out), "--label", "y"]
    assert predict(["pairs", *words]) == 0
    assert "note: 1 labels cannot be used, such as '>3'" in capsys.readouterr().err
    found = pyarrow.parquet.read_table(out).to_pylist()
    ends = [(row["row_1"], row["row_2"], row["label_change"]) for row in found]
    assert (2, 3, -1) in ends
    assert {row["row_1"] for row in found} == {4, 2}


class ReadsTemperature:
    """Stands for a model that reads a column beside the molecule."""

    extra_inputs = ExtraInputs((), ("T",))

    def __init__(self, predictor: Predictor) -> None:
        self.task, self.prepared = predictor.task, predictor.prepared
        self._predictor = predictor

    def predict_molecules(self, molecules: Any, *_: Any) -> Any:
        return self._predictor.predict_molecules(molecules)


def test_values_beside_the_molecule_are_the_same_in_both_rows(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "smiles,T\nCCCCCCN,0\nCCCCCCN,50\nCCCCCCO,50\nCCCCCCCl,\nCCCCCCF,\n"
    )
    job = TableJob(str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), quiet=True)
    reads: Any = ReadsTemperature(Predictor.load(model, "cpu"))
    pair_table(reads, 0, job, None, Outcome())
    # C, N and O are all that the model knows.
    found = [(int(row["row_1"]), int(row["row_2"])) for row in read_csv(tmp_path / "b.csv")]
    assert found == [(2, 3)]


def test_labels_are_read_as_they_are_evaluated() -> None:
    tiers = Task("binary", ("t_low", "t_high"), ("", ""), "auroc", one_of="t")
    assert [label_of(tiers, 1, cell) for cell in ("high", "low")] == [1, 0]
    assert np.isnan(label_of(tiers, 0, ""))
    with pytest.raises(ValueError, match="'mid' is none of the classes"):
        label_of(tiers, 0, "mid")
    with pytest.raises(ValueError, match="2 is not 0 or 1"):
        label_of(Task("binary", ("a",), ("",), "auroc"), 0, "2")


def test_exchanges_and_agreement_in_words() -> None:
    pairs = [MatchedPair(n, n + 4, "c", "[H][*:1]", "F[*:1]") for n in range(4)]
    predictions = np.array([0, 0, 0, 0, 1, 2, 3, -2.0])
    labels = np.array([0, 0, 0, 0, 2, 1, 3, np.nan])
    exchange, agreement = PairTable(pairs, predictions, labels).summary()
    assert exchange == "[H][*:1] to F[*:1]      4 pairs  +1 ± 2.2  labels +2 ± 1"
    assert agreement == (
        "labels change in the direction that is predicted in 100% of 3 pairs; rank correlation "
        "0.50; the change is wrong by 0.667 on average, where labels change by 2"
    )
    assert PairTable(pairs[:2], predictions, None).summary() == []
    # Labels that do not change have no direction; how wrong the change is they say all the same.
    still = PairTable(pairs, np.repeat([0.0, 1.0], 4), np.array([0, 0, 0, 0, 1, 1, 1, 0.0]))
    assert still.summary()[-1].endswith(
        " in 100% of 3 pairs; the change is wrong by 0.25 on average, where labels change by 0.75"
    )
    same = PairTable(pairs, np.arange(8) % 4 + np.arange(8) // 4, np.repeat([0.0, 1.0], 4))
    assert "100% of 4 pairs; the change is wrong by 0 on" in same.summary()[-1]


def test_exchanges_of_three_pairs_and_more_are_spoken_of_the_most_frequent_first() -> None:
    exchanges = [("F[*:1]", "Cl[*:1]", 3), ("[H][*:1]", "F[*:1]", 4), ("[H][*:1]", "Cl[*:1]", 2)]
    pairs = [
        MatchedPair(0, 1, "c", first, second)
        for first, second, times in exchanges
        for _ in range(times)
    ]
    table = PairTable(pairs, np.array([0.0, 1.0]), None)
    assert [line.partition(" pairs")[0] for line in table.summary()] == [
        "[H][*:1] to F[*:1]      4",
        "F[*:1] to Cl[*:1]       3",
    ]
    assert table.summary(1) == table.summary()[:1]


def test_pairs_are_those_of_what_the_model_reads_and_of_the_target_that_is_named(
    tmp_path: Path,
) -> None:
    checkpoint = make_checkpoint(targets=("a", "b"))
    checkpoint[KEY]["standardise"] = ["fragment"]
    torch.save(checkpoint, model := tmp_path / "a.ckpt")
    (tmp_path / "a.csv").write_text("smiles\nCCCCCCN.O\nCCCCCCO\n")
    out = tmp_path / "pairs.csv"
    words = [str(model), "-i", str(tmp_path / "a.csv"), "-o", str(out), "--quiet"]
    assert predict(["pairs", *words, "--target", "b"]) == 0
    (pair,) = read_csv(out)
    assert (pair["smiles_1"], pair["smiles_2"]) == ("CCCCCCN.O", "CCCCCCO")
    values = Predictor.load(model, "cpu").predict(["CCCCCCN", "CCCCCCO"]).values[:, 1]
    assert [float(pair["pred_1"]), float(pair["pred_2"])] == pytest.approx(values, rel=1e-5)


def test_mistakes_are_one_line(
    model: Path,
    series: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = ("-o", tmp_path / "a.csv")
    words = (capsys, predict, "pairs", model, "-i")
    assert "there is no file" in refused(*words, tmp_path / "none.csv", *out)
    assert "no column 'pKa'" in refused(*words, series, *out, "--label", "pKa")
    assert "no target 'logP'" in refused(*words, series, *out, "--target", "logP")
    assert "is the input" in refused(*words, series, "-o", series)
    with monkeypatch.context() as patch:  # before the work begins
        patch.setattr(Predictor, "predict_molecules", None)
        assert "what format is this?" in refused(*words, series, "-o", tmp_path / "a.foo")
    assert "--batch_size is 0" in refused(*words, series, *out, "--batch_size", "0")
    (tmp_path / "b.csv").write_text("smiles,logD\nCCO,\nCCN,x\n")
    said = refused(*words, tmp_path / "b.csv", *out, "--label", "logD")
    assert "no row has a label in column 'logD'" in said
    assert not list(tmp_path.glob("a.*"))
    (tmp_path / "a.csv.partial").write_text("of another job")
    assert "interrupted: --overwrite begins anew" in refused(*words, series, *out)
