"""A checkpoint that cannot be used says why, in one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.checkpoints import make_checkpoint

from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.inference.checkpoint import (
    KEY,
    find_checkpoint,
    model_weights,
    read_checkpoint,
)

FACTS = make_checkpoint()[KEY]


class Anything:
    """A class that a plain checkpoint has no use for."""


def save(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)
    return path


def good() -> dict:
    return make_checkpoint()


def test_run_directory_means_its_best_checkpoint(tmp_path: Path) -> None:
    last = save(tmp_path / "checkpoints" / "last.ckpt", good())
    assert find_checkpoint(tmp_path) == last
    best = save(tmp_path / "checkpoints" / "best.ckpt", good())
    assert find_checkpoint(tmp_path) == best
    assert find_checkpoint(best.parent) == best
    assert find_checkpoint(last) == last


def test_weights_are_those_of_the_network(tmp_path: Path) -> None:
    content = good()
    content["state_dict"]["other"] = torch.ones(1)
    weights = model_weights(read_checkpoint(save(tmp_path / "a.ckpt", content)))
    assert {f"model.{name}" for name in weights} == content["state_dict"].keys() - {"other"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"state_dict": {}}, "not a checkpoint of this package"),
        ([1, 2], "not a checkpoint of this package"),
        (good() | {KEY: FACTS | {"format_version": 99}}, "has checkpoint format 99, .* reads 2"),
        (good() | {KEY: {"format_version": 2, "model": {}}}, "is incomplete: task, target_mean"),
        ({KEY: FACTS}, "is incomplete: state_dict"),
        ({"object": Anything()}, "was not opened"),
    ],
)
def test_other_files_are_refused(content: Any, message: str, tmp_path: Path) -> None:
    path = save(tmp_path / "a.ckpt", content)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 10, 500, 0.5, 0.99])
def test_truncated_file_is_refused(keep: float, tmp_path: Path) -> None:
    path = save(tmp_path / "a.ckpt", good())
    content = path.read_bytes()
    path.write_bytes(content[: keep if keep >= 1 else int(keep * len(content))])
    with pytest.raises(CheckpointError, match=r"truncated|damaged") as caught:
        read_checkpoint(path)
    assert "\n" not in str(caught.value)


# Each of them fails in another way inside torch.load.
@pytest.mark.parametrize("content", ["model: 3\n", "smiles,y\nCCO,1\n", "{}", "e", "(lp0", "N."])
def test_text_file_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    path.write_text(content)
    with pytest.raises(CheckpointError, match="not a checkpoint") as caught:
        read_checkpoint(path)
    assert "\n" not in str(caught.value)
    assert not re.search(r"\([\d\W]*\)", str(caught.value))


def test_missing_file_and_empty_run_directory(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such checkpoint or run directory"):
        read_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        read_checkpoint(tmp_path)


def test_a_name_that_no_file_can_have_is_one_line() -> None:
    """As a long SMILES where the model was forgotten."""
    with pytest.raises(CheckpointError, match=r"^NCC\(=O\).*\.\.\.: File name too long$"):
        read_checkpoint("NCC(=O)" * 50)
