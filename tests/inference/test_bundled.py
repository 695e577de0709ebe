"""The models that come with the package: small, no traces of a machine, as their cards say."""

import re
import zipfile

import pytest
from reference.tables import write_csv

from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.inference.checkpoint import KEY, read_checkpoint
from graphormer_sepnorm.resources import bundled_models
from graphormer_sepnorm.runs.directory import find_checkpoint


@pytest.mark.parametrize("name", bundled_models())
def test_file_is_small_and_holds_no_path(name):
    path = find_checkpoint(name)
    assert path.stat().st_size <= 4_000_000
    with zipfile.ZipFile(path) as archive:
        content = b"".join(archive.read(part) for part in archive.namelist())
    assert not re.search(rb"/(home|tmp|work|root|Users|mnt)/", content)
    assert path.with_suffix(".md").is_file()
    assert "optimizer_states" not in read_checkpoint(path)


def stated(name: str) -> tuple[float, str]:
    """The test metric in a bundled checkpoint, and its card."""
    path = find_checkpoint(name)
    value = float(read_checkpoint(path)[KEY]["card"]["test"].split()[1].rstrip(","))
    return value, path.with_suffix(".md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "metric", "root"),
    [("zinc", "test_mae", "real_data_root_full"), ("molhiv", "test_auroc", "real_data_root")],
)
def test_the_metric_that_the_card_states(name, metric, root, request, capsys):
    """On the stored graphs of the published test split."""
    root = request.getfixturevalue(root)
    assert train(["test", name, "--data.root", str(root)]) == 0
    said = capsys.readouterr().out.split()
    measured = float(said[said.index(metric) + 1])
    value, card = stated(name)
    assert measured == pytest.approx(value, abs=1e-3)
    assert f"**{value:.3f}**" in card


def test_esol_has_the_error_that_its_card_states(data_source, tmp_path, capsys):
    """On the test split that its training left aside, through file, SMILES and rounding."""
    from graphormer_sepnorm.data_config import DataConfig
    from graphormer_sepnorm.datasets.user_table.load import load_table

    splits = load_table(DataConfig(table=f"{data_source}/moleculenet/esol.csv"))
    rows = zip(splits.smiles["test"], splits.test, strict=True)
    source = tmp_path / "test.csv"
    lines = [(smiles, float(graph.y)) for smiles, graph in rows]
    write_csv(source, [("smiles", "y"), *lines])
    arguments = ["esol", "-i", str(source), "-o", str(tmp_path / "out.csv"), "--evaluate", "y"]
    assert main([*arguments, "--device", "cpu", "--quiet"]) == 0
    said = capsys.readouterr().out
    error = float(said.split("MAE ")[1].split()[0])
    value, card = stated("esol")
    assert "113 rows" in said
    assert error == pytest.approx(value, abs=2e-3)
    assert f"**{value:.3f}**" in card
