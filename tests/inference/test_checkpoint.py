"""A checkpoint that is damaged or crafted is one line, and runs nothing."""

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.checkpoints import make_checkpoint, replaced
from reference.confidence import confidence
from reference.trees import boosted_trees

from graphormer_sepnorm.baselines.blend import Blend
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.inference.checkpoint import (
    BLEND,
    CONFIDENCE,
    KEY,
    model_weights,
    read_checkpoint,
)
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.runs.directory import find_checkpoint


class Runs:
    """Code in a pickle."""

    def __reduce__(self) -> tuple:
        return open, ("ran", "w")


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """With every part that one may have; not to be changed."""
    checkpoint = make_checkpoint(encodings="rrwp", local_mpnn="gine")
    blend = Blend.of_trees(boosted_trees()[0], 0.5).to_plain() | {"validation": {"mae": 1.0}}
    parts = {BLEND: blend, CONFIDENCE: confidence().to_plain(), "epoch": 1, "global_step": 4}
    return checkpoint | {"members": [model_weights(checkpoint)], **parts}


def save(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)
    return path


def refused(path: Path | str) -> str:
    with pytest.raises(CheckpointError) as caught:
        Predictor.load(path, "cpu")
    said = str(caught.value)
    assert said.startswith(str(path))
    assert "\n" not in said
    assert len(said) < 600
    return said


def test_run_directory_means_its_best_checkpoint(tmp_path: Path) -> None:
    content = make_checkpoint()
    last = save(tmp_path / "checkpoints" / "last.ckpt", content)
    assert find_checkpoint(tmp_path) == last
    best = save(tmp_path / "checkpoints" / "best.ckpt", content)
    assert find_checkpoint(tmp_path) == best
    assert find_checkpoint(last) == last


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ((), [1, 2], "not a checkpoint"),
        ((), {"state_dict": {}}, "not a checkpoint"),
        (("state_dict",), {}, "the weights are of 0"),
        ((KEY, "format_version"), 99, "checkpoint format 99"),
        ((KEY,), {"format_version": 3, "model": {}}, "incomplete: task, target_mean"),
        *(((KEY, part), 7, "damaged") for part in ("model", "task", "vocabulary")),
        *(((part,), value, "damaged") for part in (BLEND, CONFIDENCE) for value in (7, "x" * 9999)),
        ((KEY, "model", "layers"), 10**9, "layers is 1000000000"),
        ((KEY, "model", "path_rows"), 10**12, "path_weight"),
        ((KEY, "model", "walk_steps"), 10**12, "shape"),
        ((KEY, "model", "color"), 3, "color.*: use the version .* or train again$"),
        ((KEY, "model", "norm"), "cn", "'cn'.*: use the version .* or train again$"),
        ((KEY, "featurizer"), "molecule-9", "molecule-9.*: use the version .* or train again$"),
        ((KEY, "vocabulary", "atoms"), [[1], [2]], "damaged"),
        ((KEY, "vocabulary", "bonds"), [[1], [0], [99]], "damaged"),
        ((CONFIDENCE, "neighbors", "environments"), torch.tensor([2048]), "damaged"),
        (("members",), [{}], "the weights are of 0"),
        (("members", 0, "readout.weight"), torch.ones(3), "readout.weight"),
        (("members", 0, "more"), torch.ones(3), "more"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_part_is_one_line(place, value, said, whole, tmp_path):
    content = replaced(whole, place, value) if place else value
    assert re.search(said, refused(save(tmp_path / "a.ckpt", content)))


@pytest.mark.parametrize("stored", [0, 500, 0.5, 0.99, None])
def test_truncated_file_is_refused(stored: float | None, whole: dict[str, Any], tmp_path) -> None:
    """None: one byte in it is another one."""
    path = save(tmp_path / "a.ckpt", whole)
    content = bytearray(path.read_bytes())
    if stored is None:
        content[len(content) // 2] ^= 1
    else:
        del content[int(stored if stored >= 1 else stored * len(content)) :]
    path.write_bytes(content)
    assert "damaged" in refused(path)


@pytest.mark.parametrize("content", [b"smiles,y\nCCO,1\n", b"{}", b"(lp0", pickle.dumps(Runs())])
def test_a_file_of_something_else_is_refused(content: bytes, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.ckpt").write_bytes(content)
    assert "not a checkpoint" in refused("a.ckpt")
    assert not Path("ran").exists()


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such checkpoint or run directory"):
        read_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        read_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=r"^NCC\(=O\).*\.\.\.: File name too long$"):
        read_checkpoint("NCC(=O)" * 50)  # a long SMILES, where the model was forgotten
