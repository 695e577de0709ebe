"""A damaged or crafted checkpoint is one line: it takes no memory, no time, and runs nothing."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.checkpoints import make_checkpoint, replaced
from reference.confidence import confidence
from reference.processes import run_python
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

# Each part of a checkpoint of a run beside the weights, as small as it can be.
OF_A_RUN = {
    "epoch": 1,
    "global_step": 4,
    "pytorch-lightning_version": "2.6.0",
    "hyper_parameters": {"layers": 2, "betas": (0.9, 0.999)},
    "loops": {"fit_loop": {"state_dict": {}, "progress": {"ready": 1, "is_last_batch": True}}},
    "callbacks": {"LogTraining": {"rows": 1}},
    "optimizer_states": [{"state": {}, "param_groups": [{"lr": 0.1, "params": [0]}]}],
    "lr_schedulers": [{"last_epoch": 4}],
    "MoleculeDataModule": {"epoch": 1},
    "epoch_loss": [1.0, 2.0],
    "batch_norm_fixed": False,
}
FACTS = {
    "training_graphs": 3,
    "training_summary": {
        "atoms": {"min": 1, "mean": 5.0, "max": 9},
        "connected": True,
        "targets": [{"labels": 3, "mean": 0.0, "std": 1.0, "min": -1.0, "max": 1.0}],
    },
    "weight_scale": 1.0,
    "data_options": {"table": "a.csv", "target_columns": ["y"]},
    "validation": {"validation_mae": 0.5},
    "packages": {"torch": "2.13"},
    "card": {"purpose": "a test"},
}


def whole() -> dict[str, Any]:
    checkpoint = make_checkpoint(encodings="rrwp", local_mpnn="gine")
    weights = dict(checkpoint["state_dict"])
    return {
        KEY: checkpoint[KEY] | FACTS,
        "state_dict": weights,
        "trained_weights": weights,
        BLEND: Blend.of_trees(boosted_trees()[0], 0.5).to_plain() | {"validation": {"mae": 1.0}},
        "members": [model_weights(checkpoint)],
        CONFIDENCE: confidence().to_plain(),
        **OF_A_RUN,
    }


@pytest.mark.parametrize(
    "place",
    [*((KEY, part) for part in ("model", "task", "vocabulary")), (BLEND,), (CONFIDENCE,)],
    ids=lambda place: place[-1],
)
@pytest.mark.parametrize("value", [7, "x" * 10_000, torch.ones(3)], ids=["7", "text", "tensor"])
def test_a_wrong_part_is_one_line(place: tuple, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.save(replaced(whole(), place, value), path)
    with pytest.raises(CheckpointError, match=r"a\.ckpt cannot be used") as refused:
        Predictor.load(path, "cpu")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("task",), None, "cannot be used: it is damaged, or of another version"),
        (("model", "layers"), 10**7, "layers is 10000000, the weights are of 2"),
        (("model", "path_rows"), 10**8, "path_weight has shape .* not .100000000, 2, 2."),
        (("model", "walk_steps"), 10**8, "has shape .* not .*100000000."),
        (("model", "color"), 3, "is not one of this version"),
    ],
)
def test_the_line_names_what_is_wrong(place: tuple, value: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.save(replaced(whole(), (KEY, *place), value), path)
    with pytest.raises(CheckpointError, match=said):
        Predictor.load(path, "cpu")


MEMBER = model_weights(whole())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x", "cannot be used"),
        ([MEMBER, {}], "the weights are of 0"),
        ([MEMBER | {"readout.weight": torch.ones(3)}], "readout.weight has shape"),
        ([MEMBER | {"more": torch.ones(3)}], "model.more has shape .3., not None"),
        ([{}] * 64, "has 65 members, expected at most 64"),
    ],
)
def test_members_are_networks_like_the_first(value: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.save(whole() | {"members": value}, path)
    with pytest.raises(CheckpointError, match=said) as refused:
        read_checkpoint(path)
    assert "\n" not in str(refused.value)


def test_vocabulary_of_another_featuriser_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    for part, codes in (("atoms", [[1], [2]]), ("bonds", [[1], [0], [99]])):
        torch.save(replaced(whole(), (KEY, "vocabulary", part), codes), path)
        with pytest.raises(CheckpointError, match=f"vocabulary.{part} is not one of molecule-1"):
            Predictor.load(path, "cpu")


class Allocates:
    """What a pickle can ask for that torch gives even where only plain values are allowed."""

    def __reduce__(self) -> tuple:
        return bytearray, (1 << 40,)


class Runs:
    """Code in a pickle."""

    def __reduce__(self) -> tuple:
        return open, ("ran", "w")


def allocating(content: dict[str, Any]) -> None:
    content["more"] = Allocates()


def running(content: dict[str, Any]) -> None:
    content["more"] = Runs()


def many_layers(content: dict[str, Any]) -> None:
    content[KEY]["model"]["layers"] = 10**7


def many_rows(content: dict[str, Any]) -> None:
    content[KEY]["model"] |= {"path_rows": 10**8, "degree_rows": 10**9}


@pytest.mark.parametrize(
    "change",
    [allocating, running, many_layers, many_rows],
)
def test_what_is_large_by_a_number_is_refused_within_little_memory(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    content = whole()
    change(content)
    torch.save(content, tmp_path / "a.ckpt")
    check_in_a_process(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_compressed_file_is_refused_within_little_memory(tmp_path: Path) -> None:
    written = io.BytesIO()
    torch.save(whole() | {"more": torch.zeros(1 << 25)}, written)  # twice what it may take
    with (
        zipfile.ZipFile(written) as stored,
        zipfile.ZipFile(tmp_path / "a.ckpt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for member in stored.infolist():
            packed.writestr(member.filename, stored.read(member))
    assert (tmp_path / "a.ckpt").stat().st_size < 2_000_000
    with pytest.raises(CheckpointError, match="it is compressed"):
        read_checkpoint(tmp_path / "a.ckpt")
    check_in_a_process(tmp_path)


def check_in_a_process(folder: Path) -> None:
    """Read ``a.ckpt`` in a process that may take little more memory than torch itself."""
    program = (
        "import resource\n"
        "from graphormer_sepnorm.errors import CheckpointError\n"
        "from graphormer_sepnorm.inference.checkpoint import read_checkpoint\n"
        "before = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (before + (64 << 20),) * 2)\n"
        "try:\n    read_checkpoint('a.ckpt')\n"
        "except CheckpointError as error:\n    print(error)\n"
        "    assert not isinstance(error.__cause__, MemoryError)\n"
    )
    done = run_python("-c", program, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a.ckpt")
    assert done.stdout.count("\n") == 1


def test_a_pickle_that_is_no_archive_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.ckpt").write_bytes(pickle.dumps(Runs()))
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        read_checkpoint("a.ckpt")
    assert not Path("ran").exists()
