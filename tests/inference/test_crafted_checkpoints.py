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
from reference.checkpoints import make_checkpoint
from reference.confidence import confidence
from reference.damage import WRONG, places, replaced
from reference.processes import run_python
from reference.trees import boosted_trees

from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.inference.blend import Blend
from graphormer_sepnorm.inference.checkpoint import KEY, model_weights, read_checkpoint
from graphormer_sepnorm.inference.confidence_contents import CONFIDENCE
from graphormer_sepnorm.inference.description import describe
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.inference.tree_contents import BLEND

# Each part of a checkpoint of a run beside the weights, as small as it can be.
OF_A_RUN = {
    "epoch": 1,
    "global_step": 4,
    "pytorch-lightning_version": "2.6.0",
    "hyper_parameters": {"layers": 2, "betas": (0.9, 0.999)},
    "loops": {"fit_loop": {"state_dict": {}, "progress": {"ready": 1, "is_last_batch": True}}},
    "callbacks": {"ContinueMetrics": {"rows": 1}},
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


def use(path: Path) -> str:
    """All that is done with a model for prediction; returns its description."""
    Predictor.load(path, "cpu").predict(["CCO", "c1ccccc1"])
    return describe(read_checkpoint(path), path)


def some(path: tuple) -> bool:
    """Tell whether a place is among those that are tried: of the weights a few stand for all."""
    weights = path[0] in ("state_dict", "trained_weights", "members")
    if not weights or len(path) == 1 or isinstance(path[-1], int):
        return True
    return path[-1].endswith(("graph_token", "layers.0.ffn.0.weight", "num_batches_tracked"))


def refusal(path: Path) -> str:
    """What is said against a checkpoint; the empty string where it is taken."""
    try:
        use(path)
    except CheckpointError as error:
        return str(error)
    return ""


def test_any_wrong_value_is_one_line_or_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.ckpt"
    good, wrong = whole(), list(WRONG.values())
    torch.save(good, path)
    assert "a test" in use(path)
    refused = used = 0
    for number, place in enumerate(filter(some, places(good))):
        for value in wrong[number % 3 :: 3]:  # each with a third of them, in turn
            changed = replaced(good, place, value)
            if number < 6:  # each value twice goes through a file; torch is slow at reading
                torch.save(changed, path)
            else:
                monkeypatch.setattr(torch, "load", lambda *_, _changed=changed, **__: _changed)
            said = refusal(path)
            refused, used = refused + bool(said), used + (not said)
            if said:
                assert str(path) in said
                assert "\n" not in said
                assert len(said) < 600
    assert refused > 500
    assert used > 20


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("featuriser",), 3, r"\.featuriser is 3, expected text"),
        (("target_mean",), "x", r"\.target_mean is 'x', expected a list"),
        (("target_mean",), [0.0, 1.0], "target_mean is of 2 targets, task.targets of 1"),
        (("task", "zeros"), ["a", "b"], "task.zeros is of 2 targets, task.targets of 1"),
        (("target_std",), [0.0], r"\.target_std\[0\] is 0.0, expected a positive number"),
        (("target_std",), [float("nan")], r"target_std\[0\] is nan, expected a positive number"),
        (("target_std",), [float("inf")], r"target_std\[0\] is inf, expected a positive number"),
        (("vocabulary",), [], r"\.vocabulary is of type list, expected a dictionary"),
        (("vocabulary", "atoms"), [[3, 2]], r"atoms\[0\] is of type list, expected .* increasing"),
        (("vocabulary", "atoms"), [[*range(50)]], "atom_rows is 40, vocabulary.atoms needs 51"),
        (("task",), None, r"\.task is None, expected a dictionary"),
        (("task", "kind"), "fast", r"\.task.kind is 'fast', expected regression or binary"),
        (("training_summary",), 1, r"\.training_summary is 1, expected a dictionary"),
        (("model", "layers"), 10**7, "layers is 10000000, the weights are of 2"),
        (("model", "path_rows"), 10**8, "not path_rows 100000000 x heads 2 x heads 2"),
        (("model", "local_layers"), "2", "local_layers is '2', expected a whole number"),
        (("model", "walk_steps"), 10**8, "not width 16 x walk_steps 100000000"),
    ],
)
def test_the_line_names_what_is_wrong(place: tuple, value: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.save(replaced(whole(), (KEY, *place), value), path)
    with pytest.raises(CheckpointError, match=said):
        read_checkpoint(path)


MEMBER = model_weights(whole())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x", r"members is 'x', expected a list"),
        ([3], r"members\[0\] is 3, expected a dictionary"),
        ([{"a": 1}], r"members\[0\]\.a is 1, expected a dense tensor"),
        ([MEMBER, {}], r"members\[1\] is not of the network of state_dict"),
        ([MEMBER | {"readout.weight": torch.ones(3)}], r"members\[0\] is not of the network"),
        ([MEMBER | {"more": torch.ones(3)}], r"members\[0\] is not of the network"),
        ([{}] * 64, "members are 64, expected at most 63"),
        # Each a few bytes in the file, and a network in memory.
        ([MEMBER] * 63, "it says to hold more than the file does"),
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


def large_tensor(content: dict[str, Any]) -> None:
    """Rows that are one row, repeated."""
    content[KEY]["model"]["path_rows"] = 1 << 40
    content["state_dict"]["model.bias.path_weight"] = torch.zeros(1, 2, 2).expand(1 << 40, 2, 2)


def list_of_lists(content: dict[str, Any]) -> None:
    """2 ** 40 codes, written as 40 lists."""
    codes: list = [1, 2]
    for _ in range(40):
        codes = [codes, codes]
    content[KEY]["vocabulary"]["atoms"] = codes


def list_in_itself(content: dict[str, Any]) -> None:
    content[KEY]["card"]["loop"] = content[KEY]["card"]


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
    [large_tensor, list_of_lists, list_in_itself, allocating, running, many_layers, many_rows],
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
