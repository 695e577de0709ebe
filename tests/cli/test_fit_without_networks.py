"""``--members kernel,trees``: a model that is made in seconds, without a network."""

from pathlib import Path
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest
from tiny_run import Fitted, fit, fitted, predicted_as_written, refused, write_csv

from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.errors import CheckpointError, ConfigError
from graphormer_sepnorm.files import read_json
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.pipeline.blend import add_baselines
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.module import GraphormerModule

CHAINS = [f"{'C' * length}{end}" for length in range(1, 21) for end in ("O", "N", "F", "S", "Cl")]
FOLDS = ("--ensemble=3", "--ensemble_by=folds", "--metric=loss")
WITHOUT = "--members=kernel,trees"
ONE = (WITHOUT, "--data.split=random", "--data.target_columns=a")


def table(folder: Path, binary: bool = False) -> Path:
    """Two targets, one of them with gaps; or two classes."""
    rows = []
    for number, smiles in enumerate(CHAINS):
        if binary:
            rows.append((smiles, int(len(smiles) > 10), number % 2))
        else:
            rows.append((smiles, len(smiles) + 0.1 * (number % 3), "" if number % 4 else -number))
    return write_csv(folder / "t.csv", [("smiles", "a", "b"), *rows])


@pytest.fixture(scope="module", params=["regression", "binary"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp("without")
    options = (WITHOUT, *FOLDS, "--data.split=random", "--data.target_columns=all")
    return fitted(folder, table(folder, request.param == "binary"), *options)


def test_a_run_says_what_it_reached(run: Fitted) -> None:
    out, summary = run.out, run.summary
    assert "Graphormer" not in out
    assert "molecules out of fold" in out
    metric = "test_mae" if "test_mae" in summary else "test_auroc"
    share = summary["blend"]["kernel_share"]
    assert 0 < share < 1
    assert f"blend, {1 - share:.2g} gradient boosting + {share:.2g} kernel" in out
    assert f"{summary[metric]:#.4g}" in out
    assert summary["blend"]["network_weight"] == 0
    assert summary["seconds"] > 0
    assert not (run.run / "members").exists()
    checkpoint = read_checkpoint(run.run)
    assert checkpoint["state_dict"] == {}
    assert "members" not in checkpoint


def test_it_predicts_what_it_was_tested_with(run: Fitted) -> None:
    model = Predictor.load(run.run, "cpu")
    assert repr(model) == "Predictor(a, b; trees or a kernel, on cpu)"
    found, rows = predicted_as_written(run.run), run.predictions
    labels = np.array([[float(row[f"label_{name}"] or "nan") for name in "ab"] for row in rows])
    for name, value in model.task.evaluate(labels, found.values).items():
        assert run.summary[f"test_{name}"] == pytest.approx(value, rel=1e-4, nan_ok=True)
    assert found.spread is None
    assert "in_domain" in found.cells
    assert ("low_a" in rows[0]) == (model.task.kind == "regression")
    # The order of the atoms does not matter, nor does the company.
    np.testing.assert_allclose(model.predict("OCCC").values, model.predict("CCCO").values)
    alone = model.predict(rows[0]["smiles"]).values[0]
    np.testing.assert_allclose(alone, found.values[0])


def test_an_interrupted_run_is_continued(tmp_path: Path, capsys, monkeypatch) -> None:
    run = RunDirectory(tmp_path / "run")
    again, stops = ["fit", "--resume", str(run.path)], [KeyboardInterrupt, DEFAULT] * 2
    stopping = Mock(wraps=add_baselines, side_effect=stops)
    monkeypatch.setattr("graphormer_sepnorm.pipeline.fit.add_baselines", stopping)
    assert fit(tmp_path, table(tmp_path), *ONE) == 130
    assert f"fit --resume {run.path}" in capsys.readouterr().err
    assert not run.test_predictions_file.exists()
    assert train(again) == 0
    files = run.best, run.summary_file, run.configuration_file
    made = [file.read_bytes() for file in files]
    assert train([*again, "--keep=none"]) == 130  # what was made stays until it is made anew
    assert [file.read_bytes() for file in files] == made
    assert train([*again, "--keep=none"]) == 0
    assert run.configuration()["keep"] == "none"


def test_what_needs_a_network_is_refused(run: Fitted, capsys, tmp_path: Path) -> None:
    model = Predictor.load(run.run, "cpu")
    for ask in (lambda: model.embed("CCO"), lambda: model.explain("CCO", "a")):
        with pytest.raises(ConfigError, match="has no network"):
            ask()
    with pytest.raises(CheckpointError, match="has no network: use Predictor"):
        GraphormerModule.load_from_checkpoint(run.run)
    assert "without networks" in refused(capsys, train, "test", run.run)
    words = ["-c", "table_regression", "--model.from_pretrained", run.run, "--data.split=random"]
    words += ["--data.table", table(tmp_path), "--data.target_columns", "a"]
    assert "no network" in refused(capsys, train, "fit", *words)
    assert predict(["info", str(run.run)]) == 0
    assert "trees and kernel alone, without a network" in capsys.readouterr().out


def test_one_member_is_a_model_too(tmp_path: Path) -> None:
    source = table(tmp_path)
    values = {}
    for member in ("trees", "kernel"):
        (tmp_path / member).mkdir()
        made = fitted(tmp_path / member, source, *ONE[1:], f"--members={member}")
        model = Predictor.load(made.run, "cpu")
        assert (model.blend.kernel is None) == (member == "trees")
        assert model.blend.trees.known.any() == (member == "trees")
        values[member] = model.predict(CHAINS[:5]).values
        assert np.isfinite(values[member]).all()
    assert np.abs(values["trees"] - values["kernel"]).max() > 1e-3
    # Folds compare it with other models, not with itself.
    words = [f"--data.table={source}", f"--data.root={tmp_path}", "--folds=2", "--jobs=1"]
    words += [*ONE[1:], "--members=kernel", "--baselines=true", f"--output={tmp_path / 'folds'}"]
    assert train(["crossvalidate", "-c", "table_regression", *words]) == 0
    found = read_json(tmp_path / "folds" / "summary.json")
    assert [one["model"] for one in found["differences"]] == ["kernel"] * 3


def test_labels_that_are_too_few_are_an_error(tmp_path: Path, capsys) -> None:
    rows = [(one, len(one)) for one in CHAINS[:9]]
    few = write_csv(tmp_path / "few.csv", [("smiles", "a"), *rows])
    assert fit(tmp_path, few, WITHOUT, "--data.split=random") == 2
    assert "neither trees nor a kernel for a (too few labels" in capsys.readouterr().err


def test_a_target_with_a_kernel_alone_is_predicted(tmp_path: Path) -> None:
    rows = [(one, len(one), len(one) if at % 9 == 0 else "") for at, one in enumerate(CHAINS)]
    source = write_csv(tmp_path / "t.csv", [("smiles", "a", "b"), *rows])
    options = (WITHOUT, *FOLDS, "--data.split=random", "--data.target_columns=all")
    model = Predictor.load(fitted(tmp_path, source, *options).run, "cpu")
    assert model.blend.trees.known.tolist() == [True, False]
    assert np.isfinite(model.predict(CHAINS[:5]).values).all()
