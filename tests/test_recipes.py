"""The recipes of CONTRIBUTING.md, applied to a copy of the package, do what they say."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from reference.processes import REPOSITORY, run_python

TEXT = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
# File to be changed, and the lines of the change, each behind a space, a plus or a minus.
RECIPES = re.findall(r"^```diff\n# (\S+)\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


def lines(change: str, kinds: str) -> str:
    """Return the lines of some kinds, without what stands before them."""
    kept = [line for line in change.splitlines() if (line or " ")[0] in kinds]
    return "\n".join(line[1:] for line in kept)


def apply(file: Path, change: str) -> None:
    """Change a file as a recipe says; what the recipe expects in it must be there once."""
    before, after = lines(change, " -"), lines(change, " +")
    if not before:
        assert not file.exists()
        file.write_text(after + "\n")
        return
    text = file.read_text()
    assert text.count(before) == 1, f"{file.name} has not one place with\n{before}"
    file.write_text(text.replace(before, after))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs with the norm, the encoding, the metric and the data set of the recipes."""
    folder = tmp_path_factory.mktemp("recipes")
    package, unused = "graphormer_sepnorm", shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / package, folder / package, ignore=unused)
    for file, change in RECIPES:
        apply(folder / file, change)
    options = (
        "--data.dataset cycles --data.batch_size 8 --model.norm bn+rms --model.encodings degree "
        "--model.layers 2 --model.width 16 --model.heads 2 --model.ffn_width 16 "
        "--model.warmup_steps 1 --trainer.max_epochs 2 --metric medae --output run"
    )
    train(folder, "fit", *options.split())
    return folder / "run"


def train(folder: Path, *words: str) -> str:
    """Run train.py of the changed package; return what it prints."""
    command = ["-m", "graphormer_sepnorm.cli.train", *words]
    done = run_python(*command, cwd=folder, package=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_recipe_is_found() -> None:
    assert len(RECIPES) == TEXT.count("```diff") > 0


@pytest.mark.slow
def test_data_set_norm_encoding_and_metric_are_those_of_the_recipes(trained: Path) -> None:
    summary = json.loads((trained / "summary.json").read_text())
    assert (summary["dataset"], summary["norm"]) == ("cycles", "bn+rms")
    assert summary["test_rmse"] >= summary["test_medae"] > 0
    assert summary["best_validation_medae"] > 0
    # Not by our own reader, to which the package without the recipes has no such network.
    file = trained / "checkpoints" / "last.ckpt"
    weights = torch.load(file, weights_only=True)["state_dict"]
    norm = weights["model.layers.0.ffn_norm.atom_norm.weight"]
    assert weights["model.degree.u"].shape == norm.shape == (16,)
    assert (norm > 0.9).all()  # it starts as it is made


@pytest.mark.slow
def test_verb_of_the_recipe_is_run_and_listed(trained: Path) -> None:
    parameters = json.loads((trained / "summary.json").read_text())["parameters"]
    assert train(trained.parent, "size", "run") == f"{parameters}\n"
    assert "  size           say how many parameters a run has\n" in train(trained.parent, "--help")
