"""Checkpoints: Lightning's file of a training run, which also holds all that predicting needs.

In addition to Lightning's entries there is one plain dictionary under the key
``graphormer_sepnorm``:

* ``format_version``: 3;
* ``model``: the fields of `GraphormerConfig`, table sizes filled in;
* ``task``, ``target_mean``, ``target_std``: what is predicted, and how its values were scaled;
* ``weight_scale``: what brings the weights of the training graphs to a mean of 1;
* ``vocabulary``: the atom and bond codes that occurred in training;
* ``extra_inputs``: names of the numbers that the network reads with a graph;
* ``standardize``: what is done to a molecule first, see `standardized`;
* ``featurizer``, ``feature_version``: how graphs are made from SMILES (None: not from SMILES);
* ``dataset``, ``dataset_fingerprint``, ``training_graphs``, ``training_summary``, ``data_options``:
  what it was trained on; the last one how a user's table was read and split;
* ``validation``: metrics of the last validation before it was written;
* ``packages``: versions of what it was made with;
* ``card``: facts to show, in a file of `for_prediction` only;
* ``without_networks``: whether it is of trees and a kernel alone, and the state dict empty.

Of an ensemble these are the facts of its first member; ``members`` has the state dicts of the
others. Under ``blend`` there may be trees (`Blend`), under ``confidence`` an `Uncertainty`.

Only plain values and tensors are stored, so a checkpoint is read with ``weights_only=True`` and
cannot run code. The shapes of a network are compared with its weights before it takes memory
(`build_network`); what is wrong in a file is one line (`in_one_line`).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from graphormer_sepnorm import __version__
from graphormer_sepnorm.errors import CheckpointError, ConfigError, GraphormerError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.formatting import shortened
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.runs.directory import find_checkpoint

FORMAT_VERSION = 3
# Where a checkpoint has what this package needs, a `Blend` and an `Uncertainty`.
KEY, BLEND, CONFIDENCE = "graphormer_sepnorm", "blend", "confidence"
# The weights that training continues with, if those of the model are an average.
TRAINED_WEIGHTS = "trained_weights"
REQUIRED = (
    *("model", "task", "target_mean", "target_std", "vocabulary", "featurizer"),
    *("feature_version", "dataset", "dataset_fingerprint"),
)
_FOR_TESTING = ("pytorch-lightning_version", "hyper_parameters")
_NONE = "it is not a checkpoint of this package: take one of train.py fit"
_OTHER_VERSION = "use the version of graphormer_sepnorm that wrote it, or train again"


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint file, or the best one of a run directory.

    Args:
        path: File or run directory.

    Returns:
        Lightning's dictionary; what this package needs is under `KEY`.

    Raises:
        CheckpointError: Missing, truncated, of another kind or format, or with a wrong value in it.
    """
    file = find_checkpoint(path)
    with in_one_line(file):
        with file.open("rb") as opened:
            if opened.read(2) not in (b"PK", b""):  # torch writes zip files
                raise CheckpointError(_NONE)
        with zipfile.ZipFile(file) as archive:
            # Torch does not compress: what declares more was made to take memory.
            if sum(one.file_size for one in archive.infolist()) > file.stat().st_size:
                raise CheckpointError("it declares more than the file holds")
            # Torch would make the one kind of plain value that is as long as a number says.
            for name in archive.namelist():
                if name.endswith("data.pkl") and b"\nbytearray\n" in archive.read(name):
                    raise pickle.UnpicklingError("bytearray")
            if damaged := archive.testzip():  # by check sums, which torch does not look at
                raise CheckpointError(f"{damaged} in it is damaged")
        checkpoint = torch.load(file, map_location="cpu", weights_only=True)
        check_checkpoint(checkpoint)
    return checkpoint


@contextlib.contextmanager
def in_one_line(file: str | Path) -> Iterator[None]:
    """Turn whatever goes wrong with the contents of a file into one line.

    Raises:
        CheckpointError: Something did.
    """
    try:
        yield
    except Exception as error:  # a damaged file can be wrong in nearly any way
        what = str(error)
        if not isinstance(error, GraphormerError):
            reason = getattr(error, "strerror", None) or " ".join(what.split())[:120]
            if isinstance(error, pickle.UnpicklingError):  # torch's text offers to run the code
                reason = "it is not only plain values and tensors, and was not opened"
            what = "it is damaged, not a checkpoint of this package or of another version of it "
            what += f"({type(error).__name__}: {reason})"
        # A choice, or an option, that this version does not have.
        advice = f": {_OTHER_VERSION}" if isinstance(error, ConfigError | TypeError) else ""
        raise CheckpointError(f"{file} cannot be used: {what}{advice}") from error


def check_checkpoint(checkpoint: Any) -> None:
    """Check that a checkpoint is whole, before anything is made of it.

    Raises:
        CheckpointError: It is of another kind or format, a part is missing, or a network has other
            shapes than its weights.
    """
    if not isinstance(checkpoint, dict) or KEY not in checkpoint:
        raise CheckpointError(_NONE)
    facts = checkpoint[KEY]
    if (version := facts.get("format_version")) != FORMAT_VERSION:
        raise CheckpointError(
            f"it has checkpoint format {shortened(str(version), 20)}, this version reads "
            f"{FORMAT_VERSION}: {_OTHER_VERSION}"
        )
    missing = [name for name in REQUIRED if name not in facts]
    if missing or "state_dict" not in checkpoint:
        raise CheckpointError(f"it is incomplete: {', '.join(missing or ['state_dict'])}")
    for weights in networks_of(checkpoint):
        build_network(facts["model"], weights)


class _WithoutNormal(TorchFunctionMode):
    """Leaves out normal initial values: on the meta device they load torch's compiler, a second."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        return given["tensor"] if func is torch.nn.init.normal_ else func(*args, **given)


def build_network(options: dict[str, Any], weights: dict[str, Tensor]) -> Graphormer:
    """Build a network of these weights; an option that is missing has its default.

    It has no values of its own before: a number in a file must not decide how much memory is taken.

    Raises:
        CheckpointError: It has other shapes, or other parameters.
    """
    config = GraphormerConfig(**options)
    layers = {name.split(".")[1] for name in weights if name.startswith("layers.")}
    if config.layers != len(layers):
        raise CheckpointError(f"model.layers is {config.layers}, the weights are of {len(layers)}")
    with torch.device("meta"), _WithoutNormal():
        model = Graphormer(config)
    kinds = {name: one.dtype for name, one in model.state_dict().items()}
    own = {name: one.to(kinds.get(name, one.dtype), copy=True) for name, one in weights.items()}
    try:
        model.load_state_dict(own, assign=True)
    except RuntimeError as error:
        raise CheckpointError(shortened(" ".join(str(error).split()), 300)) from error
    return model


def model_weights(checkpoint: dict[str, Any]) -> dict[str, Tensor]:
    """Return the state dict of the `Graphormer` in a checkpoint; of an ensemble the first one."""
    prefix = "model."
    return {
        name.removeprefix(prefix): value
        for name, value in checkpoint["state_dict"].items()
        if name.startswith(prefix)
    }


def networks_of(checkpoint: dict[str, Any]) -> list[dict[str, Tensor]]:
    """Return the state dicts of all networks of a checkpoint: one, those of an ensemble, none."""
    if checkpoint[KEY].get("without_networks"):
        return []
    return [model_weights(checkpoint), *checkpoint.get("members", ())]


def joined(checkpoints: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Make one checkpoint of those of members, by their names, without what only training needs.

    Raises:
        CheckpointError: Their networks, data, targets or scaling differ, so that a mean of their
            values means nothing.
    """
    (name, first), *others = checkpoints.items()
    for other, checkpoint in others:
        of_both = checkpoint[KEY], first[KEY]
        # Options of the network that are younger than a checkpoint have their default in it.
        own, known = ({**facts, "model": GraphormerConfig(**facts["model"])} for facts in of_both)
        for fact in (*REQUIRED, "weight_scale"):
            if own.get(fact) != known.get(fact):
                raise CheckpointError(
                    f"{name} and {other} differ in {fact}: members of an ensemble are trained with "
                    "the same options on the same data"
                )
    return {
        KEY: {**first[KEY], "validation": {}},
        "state_dict": first["state_dict"],
        "members": [model_weights(checkpoint) for _, checkpoint in others],
        **{entry: first[entry] for entry in _FOR_TESTING if entry in first},
    }


def for_prediction(
    checkpoint: dict[str, Any], card: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a checkpoint without what only training needs.

    It is a third of the size and holds no path of the machine it was made on. Training cannot be
    continued from it.

    Args:
        checkpoint: What `read_checkpoint` gives.
        card: Facts to show about the model (name, test results, ...): strings and numbers.
    """
    facts = {**checkpoint[KEY], "data_options": None, "card": card or {}}
    facts["from_pretrained"] = Path(facts.get("from_pretrained") or "").name
    weights = {f"model.{name}": value for name, value in model_weights(checkpoint).items()}
    rest = (*_FOR_TESTING, "members", BLEND, CONFIDENCE)  # train.py test needs the first two
    parts = {name: checkpoint[name] for name in rest if name in checkpoint}
    return {KEY: facts, "state_dict": weights, **parts}


def write_checkpoint(checkpoint: dict[str, Any], path: str | Path) -> None:
    """Write a checkpoint; the file has its name when it is complete and safe on disk."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(Path(path)) as partial, partial.open("wb") as file:
        torch.save(checkpoint, file)
        file.flush()
        os.fsync(file.fileno())


def package_versions() -> dict[str, str]:
    """Versions of the packages that decide how a checkpoint behaves, for the record."""
    versions = {"graphormer-sepnorm": __version__}
    for name in ("torch", "lightning", "torch-geometric", "rdkit", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
