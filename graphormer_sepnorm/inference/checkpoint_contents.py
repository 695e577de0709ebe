"""What a checkpoint must hold: the kind of each value that is read, looked at before it is used.

A file may be damaged, or made to do damage: nothing here trusts one value before it has seen it,
and nothing takes longer or needs more memory than the file is large.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import torch

from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.inference.confidence_contents import CONFIDENCE, USES, check_confidence
from graphormer_sepnorm.inference.tree_contents import ARRAYS, BLEND, check_trees
from graphormer_sepnorm.metrics import metrics_of
from graphormer_sepnorm.model.config import GraphormerConfig

KEY = "graphormer_sepnorm"

# Takes a value and the words for its place; raises CheckpointError where it is of another kind.
Kind = Callable[[Any, str], None]

_MAX_DEPTH = 50
_MAX_TEXT = 10_000
_MAX_WHOLE = 2**62
MAX_MEMBERS = 64


def check_extent(checkpoint: Any, size: int) -> None:
    """Refuse a checkpoint of which more is to be read than there is in its file.

    A list may hold another one a thousand times, and a tensor repeat one number, at the price of a
    few bytes.

    Args:
        checkpoint: What `torch.load` gives.
        size: Bytes of the file.

    Raises:
        CheckpointError: It holds itself, or more values or bytes of tensors than the file has.
    """
    values = numbers = 0
    ahead: list[tuple[Any, int]] = [(checkpoint, 0)]
    while ahead:
        value, depth = ahead.pop()
        values += 1
        if isinstance(value, torch.Tensor):
            numbers += value.numel() * value.element_size()
        # Weights and their average may be the same tensors.
        if values > size or numbers > 2 * size:
            raise CheckpointError("it says to hold more than the file does")
        if depth > _MAX_DEPTH:
            raise CheckpointError(f"its values are nested more than {_MAX_DEPTH} deep")
        if isinstance(value, dict):
            inner = [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set):
            inner = [*value]
        else:
            continue
        if len(inner) > size:
            raise CheckpointError("it says to hold more than the file does")
        ahead += [(one, depth + 1) for one in inner]


def check_contents(checkpoint: dict[str, Any]) -> None:
    """Check the kind of every value that this package and Lightning read.

    Args:
        checkpoint: Lightning's dictionary, with `KEY`.

    Raises:
        CheckpointError: One is missing or of another kind, or two contradict each other; it names
            them.
    """
    _CHECKPOINT(checkpoint, "")
    facts = checkpoint[KEY]
    model, targets = facts["model"], facts["task"]["targets"]
    for name, count in (
        ("task.units", len(facts["task"]["units"])),
        ("target_mean", len(facts["target_mean"])),
        ("target_std", len(facts["target_std"])),
        ("model.num_targets", model.get("num_targets", 1)),
    ):
        if count != len(targets):
            raise CheckpointError(f"{name} is of {count} targets, task.targets of {len(targets)}")
    task = facts["task"]
    metrics = [metric.name for metric in metrics_of(task["kind"])]
    if task["metric"] not in metrics:
        raise CheckpointError(
            f"task.metric is {task['metric']!r}, of {task['kind']} targets it is one of "
            f"{', '.join(metrics)}"
        )
    exclusive = bool(task.get("one_of"))
    if exclusive != model.get("exclusive", False) or (
        exclusive and (task["kind"] != "binary" or len(targets) < 2)
    ):
        raise CheckpointError(
            f"task.one_of is {task.get('one_of', '')!r}, which a network with model.exclusive "
            f"{model.get('exclusive', False)} and {len(targets)} {task['kind']} targets cannot be"
        )
    labels = (facts.get("training_summary") or {}).get("targets")
    if labels and len(labels) != len(targets):
        raise CheckpointError(
            f"training_summary.targets is of {len(labels)} targets, task.targets of {len(targets)}"
        )
    for name, part in (("atom_rows", "atoms"), ("bond_rows", "bonds")):
        needed = 1 + sum(len(column) for column in facts["vocabulary"][part])
        if model[name] < needed:
            raise CheckpointError(
                f"model.{name} is {model[name]}, vocabulary.{part} needs {needed}"
            )
    extra = facts.get("extra_inputs", {"descriptors": [], "columns": []})
    named = len(extra["descriptors"]) + len(extra["columns"])
    if named != model.get("extra_inputs", 0):
        raise CheckpointError(
            f"model.extra_inputs is {model.get('extra_inputs', 0)}, extra_inputs names {named}"
        )
    weights, trained = checkpoint["state_dict"], checkpoint.get("trained_weights")
    if trained is not None and _shapes(trained) != _shapes(weights):
        raise CheckpointError("trained_weights are not of the network of state_dict")
    if BLEND in checkpoint:
        _check_blend(checkpoint[BLEND], task, extra["columns"])
    if CONFIDENCE in checkpoint:
        _CONFIDENCE[task["kind"]](checkpoint[CONFIDENCE], CONFIDENCE)
        width = model.get("width", GraphormerConfig.width)
        check_confidence(checkpoint[CONFIDENCE], len(targets), width, checkpoint)
    shapes = _shapes(model_weights(checkpoint))
    for number, member in enumerate(checkpoint.get("members", ())):
        if _shapes(member) != shapes:
            raise CheckpointError(f"members[{number}] is not of the network of state_dict")


def _check_blend(blend: dict[str, Any], task: dict[str, Any], columns: Any) -> None:
    targets = len(task["targets"])
    if len(blend["weights"]) != targets:
        raise CheckpointError(
            f"blend.weights is of {len(blend['weights'])} targets, task.targets of {targets}"
        )
    if blend["trees"]["logistic"] != (task["kind"] == "binary"):
        raise CheckpointError(f"blend.trees are not for {task['kind']} targets")
    if list(blend["trees"]["columns"].get("columns", ())) != list(columns):
        raise CheckpointError("blend.trees take other columns of a table than the network")
    check_trees(blend["trees"], targets, "blend.trees")


def model_weights(checkpoint: dict[str, Any], prefix: str = "model.") -> dict[str, torch.Tensor]:
    """Return the state dict of the `Graphormer` in a checkpoint; of an ensemble the first one."""
    return {
        name.removeprefix(prefix): value
        for name, value in checkpoint["state_dict"].items()
        if name.startswith(prefix)
    }


def _shapes(weights: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in weights.items()}


def _refuse(value: Any, place: str, expected: str) -> CheckpointError:
    if value is None or isinstance(value, bool | int | float | str):
        shown = repr(value)
        shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
    else:
        shown = f"of type {type(value).__name__}"
    return CheckpointError(f"{place or 'the checkpoint'} is {shown}, expected {expected}")


def _simple(expected: str, fits: Callable[[Any], bool]) -> Kind:
    def check(value: Any, place: str) -> None:
        if not fits(value):
            raise _refuse(value, place, expected)

    return check


def _is_real(value: Any) -> bool:
    """Tell whether it is a number, of which nan and inf are some."""
    return type(value) is float or _is_whole(value)


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) < _MAX_WHOLE


def _is_finite(value: Any) -> bool:
    return _is_real(value) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_TEXT


def _is_plain(value: Any) -> bool:
    return value is None or type(value) is bool or _is_real(value) or _is_text(value)


def _is_weight(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and not (value.is_meta or value.is_quantized or value.is_complex())
    )


def _numbers(kind: str, dimensions: int = 1) -> Kind:
    """A tensor of so many dimensions."""
    return _simple(
        f"a {'row' if dimensions == 1 else 'table'} of {kind}",
        lambda value: (
            _is_weight(value) and value.ndim == dimensions and str(value.dtype) == f"torch.{kind}"
        ),
    )


def _is_increasing(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and all(_is_whole(code) for code in value)
        and all(one < other for one, other in itertools.pairwise(value))
    )


def _among(*choices: str) -> Kind:
    return _simple(" or ".join(choices), lambda value: isinstance(value, str) and value in choices)


def _list_of(kind: Kind) -> Kind:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, list | tuple):
            raise _refuse(value, place, "a list")
        for number, one in enumerate(value):
            kind(one, f"{place}[{number}]")

    return check


def _dictionary_of(kind: Kind) -> Kind:
    """Names, and values that are all of one kind."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise _refuse(value, place, "a dictionary")
        for name, one in value.items():
            if not _is_text(name):
                raise _refuse(name, f"a name in {place}", "text")
            kind(one, f"{place}.{name[:80]}")

    return check


def _record(needed: dict[str, Kind], other: dict[str, Kind] | None = None) -> Kind:
    """A dictionary that has the `needed` entries, may have the `other` ones, and more."""
    kinds = needed | (other or {})

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise _refuse(value, place, "a dictionary")
        for name, kind in kinds.items():
            if name in value:
                kind(value[name], f"{place}.{name}" if place else name)
            elif name in needed:
                raise CheckpointError(f"{place}.{name} is missing".removeprefix("."))

    return check


def _optional(kind: Kind) -> Kind:
    def check(value: Any, place: str) -> None:
        if value is not None:
            kind(value, place)

    return check


def _any_of_progress(value: Any, place: str) -> None:
    """Lightning's counters: dictionaries of dictionaries of whole numbers and flags."""
    if isinstance(value, dict):
        _dictionary_of(_any_of_progress)(value, place)
    elif not (type(value) is bool or (_is_whole(value) and value >= 0)):
        raise _refuse(value, place, "a number that counts")


_TEXT = _simple(f"text of at most {_MAX_TEXT:,} characters", _is_text)
_FLAG = _simple("True or False", lambda value: type(value) is bool)
_WHOLE = _simple("a whole number", _is_whole)
_COUNT = _simple("a whole number of at least 0", lambda value: _is_whole(value) and value >= 0)
_REAL = _simple("a number", _is_real)
_FINITE = _simple("a finite number", _is_finite)
_POSITIVE = _simple("a positive number", lambda value: _is_finite(value) and value > 0)
_PLAIN = _simple("a number or text", _is_plain)
_CODES = _simple("a list of increasing whole numbers", _is_increasing)
_SHARE = _simple("a number from 0 to 1", lambda value: _is_finite(value) and 0 <= value <= 1)
_WEIGHTS = _dictionary_of(_simple("a dense tensor of real numbers", _is_weight))
_TARGETS = _list_of(_TEXT)


def _plain_or_list(value: Any, place: str) -> None:
    (_list_of(_PLAIN) if isinstance(value, list | tuple) else _PLAIN)(value, place)


def _names(value: Any, place: str) -> None:
    _TARGETS(value, place)
    if not value:
        raise CheckpointError(f"{place} is empty, expected a name for each target")


def _pair_of(kind: Kind) -> Kind:
    def check(value: Any, place: str) -> None:
        _list_of(kind)(value, place)
        if len(value) != 2:
            raise CheckpointError(f"{place} has {len(value)} numbers, expected 2")

    return check


def _members(value: Any, place: str) -> None:
    _list_of(_WEIGHTS)(value, place)
    if len(value) >= MAX_MEMBERS:
        raise CheckpointError(f"{place} are {len(value)}, expected at most {MAX_MEMBERS - 1}")


def _kinds_of_options() -> dict[str, Kind]:
    """The kind of each option of the network, as that of its default."""
    kinds = {int: _WHOLE, float: _FINITE, str: _TEXT, bool: _FLAG, type(None): _COUNT}
    return {
        field.name: kinds[type(field.default)] for field in dataclasses.fields(GraphormerConfig)
    }


_OPTIONS = _kinds_of_options()
# Younger options than these may be missing.
_NEEDED = ("norm", "layers", "width", "heads", "atom_rows", "bond_rows")
_SPREAD = {name: _REAL for name in ("mean", "std", "min", "max")}
_LABELS = _record({"labels": _COUNT, **_SPREAD})

_NEEDED_FACTS = {
    "model": _record({name: _OPTIONS[name] for name in _NEEDED}, _OPTIONS),
    "task": _record(
        {
            "kind": _among("regression", "binary"),
            "targets": _names,
            "units": _list_of(_TEXT),
            "metric": _TEXT,
        },
        {"one_of": _TEXT},
    ),
    "target_mean": _list_of(_FINITE),
    "target_std": _list_of(_POSITIVE),
    "vocabulary": _record({"atoms": _list_of(_CODES), "bonds": _list_of(_CODES)}),
    "featuriser": _optional(_TEXT),
    "feature_version": _TEXT,
    "dataset": _TEXT,
    "dataset_fingerprint": _TEXT,
}
REQUIRED = tuple(_NEEDED_FACTS)  # names of what has to be there
_TRAINING_SUMMARY = {
    "atoms": _record({"min": _COUNT, "max": _COUNT}),
    "targets": _list_of(_LABELS),
    "connected": _FLAG,
}
_OTHER_FACTS = {
    "training_graphs": _COUNT,
    "training_summary": _optional(_record({}, _TRAINING_SUMMARY)),
    "weight_scale": _FINITE,
    "extra_inputs": _record({"descriptors": _TARGETS, "columns": _TARGETS}),
    "standardise": _list_of(_among("fragment", "neutralise", "tautomer")),
    "data_options": _optional(_dictionary_of(_plain_or_list)),
    "validation": _dictionary_of(_REAL),
    "member_folds": _COUNT,
    "packages": _dictionary_of(_TEXT),
    "card": _optional(_dictionary_of(_PLAIN)),
}

_BLEND = _record(
    {
        "weights": _list_of(_SHARE),
        "trees": _record(
            {
                "columns": _record(
                    {
                        "environments": _CODES,
                        "descriptors": _list_of(_TEXT),
                        "medians": _list_of(_FINITE),
                        "rdkit": _TEXT,
                    },
                    {"columns": _TARGETS},
                ),
                "logistic": _FLAG,
                **{name: _numbers(kind) for name, kind in ARRAYS.items()},
            }
        ),
    },
    {"validation": _dictionary_of(_REAL), "exclusive": _FLAG},
)

_SHARES = _list_of(_SHARE)
_NOT_NEGATIVE = _simple("a number of at least 0", lambda value: _is_finite(value) and value >= 0)
_FINITES = _list_of(_FINITE)
_INTERVALS = _record(
    {
        "scale": _record(
            {**dict.fromkeys(("low", "high", "weights"), _FINITES), "constant": _FINITE}
        ),
        "scores": _list_of(_NOT_NEGATIVE),
        "labels": _COUNT,
        "unit": _POSITIVE,
    }
)
_CALIBRATION = _record(
    {
        "map": _record(
            {
                "a": _NOT_NEGATIVE,
                "b": _NOT_NEGATIVE,
                "c": _FINITE,
                "knots": _list_of(_pair_of(_FINITE)),
            }
        ),
        "zeros": _SHARES,
        "ones": _SHARES,
        "counts": _pair_of(_COUNT),
    }
)
# By the kind of the targets.
_CONFIDENCE = {
    kind: _record(
        {"targets": _list_of(_optional(one)), "uses": _list_of(_among(*USES))},
        {
            "domain": _record(
                {"border": _SHARE, "larger": _NOT_NEGATIVE, "molecules": _COUNT},
                {"furthest": _optional(_POSITIVE), "larger_beyond": _NOT_NEGATIVE},
            ),
            "neighbours": _record(
                {
                    "environments": _numbers("int16"),
                    "sizes": _numbers("int16"),
                    "numbers": _numbers("int32"),
                },
                {"smiles": _TARGETS, "labels": _numbers("float64", 2)},
            ),
            "errors": _numbers("float32", 2),
            "tokens": _record(
                {
                    "clouds": _list_of(
                        _record(
                            {
                                "centre": _numbers("float32"),
                                "axes": _numbers("float32", 2),
                                "points": _numbers("float16", 2),
                            }
                        )
                    ),
                    "usual": _POSITIVE,
                }
            ),
        },
    )
    for kind, one in (("regression", _INTERVALS), ("binary", _CALIBRATION))
}

_CHECKPOINT = _record(
    {KEY: _record(_NEEDED_FACTS, _OTHER_FACTS), "state_dict": _WEIGHTS},
    {
        BLEND: _BLEND,
        # Lightning's. What is in the states of callbacks and optimisers is their own affair.
        "epoch": _COUNT,
        "global_step": _COUNT,
        "pytorch-lightning_version": _simple(
            "a version", lambda value: _is_text(value) and value[:1].isdigit()
        ),
        "hyper_parameters": _dictionary_of(_plain_or_list),
        "loops": _any_of_progress,
        "callbacks": _dictionary_of(_simple("a dictionary", lambda value: isinstance(value, dict))),
        "optimizer_states": _list_of(_record({})),
        "lr_schedulers": _list_of(_record({})),
        "MoleculeDataModule": _dictionary_of(_COUNT),
        # Of `GraphormerModule` and `AveragedWeights`.
        "epoch_loss": _pair_of(_REAL),
        "batch_norm_fixed": _FLAG,
        "trained_weights": _WEIGHTS,
        # Of `joined`.
        "members": _members,
    },
)
