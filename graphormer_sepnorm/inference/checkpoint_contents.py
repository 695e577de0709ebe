"""What a checkpoint must hold: the kind of each value that is read, looked at before it is used.

A file may be damaged, or made to do damage: nothing here trusts one value before it has seen it,
and nothing takes longer or needs more memory than the file is large.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.inference.confidence_contents import CONFIDENCE, USES, check_confidence
from graphormer_sepnorm.inference.kinds import (
    CODES,
    COUNT,
    FINITE,
    FLAG,
    NOT_NEGATIVE,
    PLAIN,
    POSITIVE,
    REAL,
    SHARE,
    TARGETS,
    TEXT,
    WEIGHTS,
    WHOLE,
    among,
    dictionary_of,
    is_text,
    is_whole,
    list_of,
    optional,
    pair_of,
    record,
    refuse,
    require,
    simple,
    tensor_of,
)
from graphormer_sepnorm.inference.tree_contents import ARRAYS, BLEND, check_trees
from graphormer_sepnorm.metrics import metrics_of
from graphormer_sepnorm.model.config import GraphormerConfig

KEY = "graphormer_sepnorm"

_MAX_DEPTH = 50
# What log-odds are multiplied by, and what is added to them.
_STEEPEST = 1000
MAX_MEMBERS = 64


def check_extent(checkpoint: Any, size: int) -> None:
    """Refuse a checkpoint of which more is to be read than there is in its file.

    A list may hold another one a thousand times, and a tensor repeat one number, at the price of a
    few bytes. `size` are the bytes of the file.

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

    Raises:
        CheckpointError: One is missing or of another kind, or two contradict each other; it names
            them.
    """
    _CHECKPOINT(checkpoint, "")
    facts, weights = checkpoint[KEY], checkpoint["state_dict"]
    task, model = facts["task"], facts["model"]
    kind, targets = task["kind"], len(task["targets"])
    summary = facts.get("training_summary") or {}
    for name, count in (
        ("task.units", len(task["units"])),
        ("target_mean", len(facts["target_mean"])),
        ("target_std", len(facts["target_std"])),
        ("model.num_targets", model.get("num_targets", 1)),
        ("task.ones", len(task.get("ones", ())) or targets),
        ("task.zeros", len(task.get("zeros", ())) or targets),
    ):
        require(count == targets, f"{name} is of {count} targets, task.targets of {targets}")
    labels = summary.get("targets")
    require(
        not labels or len(labels) == targets,
        f"training_summary.targets is of {len(labels or ())} targets, task.targets of {targets}",
    )
    metrics = [metric.name for metric in metrics_of(kind)]
    require(
        task["metric"] in metrics,
        f"task.metric is {task['metric']!r}, of {kind} targets it is one of {', '.join(metrics)}",
    )
    one_of, exclusive = task.get("one_of", ""), model.get("exclusive", False)
    require(
        bool(one_of) == exclusive and (not exclusive or (kind == "binary" and targets > 1)),
        f"task.one_of is {one_of!r}, which a network with model.exclusive {exclusive} and "
        f"{targets} {kind} targets cannot be",
    )
    for name, part in (("atom_rows", "atoms"), ("bond_rows", "bonds")):
        needed = 1 + sum(len(column) for column in facts["vocabulary"][part])
        said = f"model.{name} is {model[name]}, vocabulary.{part} needs {needed}"
        require(model[name] >= needed, said)
    extra = facts.get("extra_inputs", {"descriptors": [], "columns": []})
    named, inputs = len(extra["descriptors"]) + len(extra["columns"]), model.get("extra_inputs", 0)
    require(named == inputs, f"model.extra_inputs is {inputs}, extra_inputs names {named}")
    trained = _shapes(checkpoint.get("trained_weights", weights))
    require(trained == _shapes(weights), "trained_weights are not of the network of state_dict")
    if BLEND in checkpoint:
        _check_blend(checkpoint[BLEND], kind, targets, extra["columns"])
    if CONFIDENCE in checkpoint:
        _CONFIDENCE[kind](checkpoint[CONFIDENCE], CONFIDENCE)
        width = model.get("width", GraphormerConfig.width)
        check_confidence(checkpoint[CONFIDENCE], targets, width, checkpoint)
    shapes = _shapes(model_weights(checkpoint))
    for number, member in enumerate(checkpoint.get("members", ())):
        said = f"members[{number}] is not of the network of state_dict"
        require(_shapes(member) == shapes, said)


def _check_blend(blend: dict[str, Any], kind: str, targets: int, columns: Any) -> None:
    trees, weights = blend["trees"], len(blend["weights"])
    require(weights == targets, f"blend.weights is of {weights} targets, task.targets of {targets}")
    require(trees["logistic"] == (kind == "binary"), f"blend.trees are not for {kind} targets")
    if "stacking" in blend:
        require(kind == "binary", f"blend.stacking is not for {kind} targets")
        slope, constants = blend["stacking"]["slope"], blend["stacking"]["constants"]
        said = f"blend.stacking is of {len(constants)} targets, task.targets of {targets}"
        require(len(constants) == targets, said)
        largest = max(map(abs, (slope, *constants)))
        require(largest <= _STEEPEST, f"blend.stacking has {largest:g}, more than {_STEEPEST}")
    require(
        list(trees["columns"].get("columns", ())) == list(columns),
        "blend.trees take other columns of a table than the network",
    )
    check_trees(trees, targets)


def model_weights(checkpoint: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the state dict of the `Graphormer` in a checkpoint; of an ensemble the first one."""
    prefix = "model."
    return {
        name.removeprefix(prefix): value
        for name, value in checkpoint["state_dict"].items()
        if name.startswith(prefix)
    }


def _shapes(weights: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in weights.items()}


def _any_of_progress(value: Any, place: str) -> None:
    """Lightning's counters: dictionaries of dictionaries of whole numbers and flags."""
    if isinstance(value, dict):
        dictionary_of(_any_of_progress)(value, place)
    elif not (type(value) is bool or (is_whole(value) and value >= 0)):
        raise refuse(value, place, "a number that counts")


def _plain_or_list(value: Any, place: str) -> None:
    (list_of(PLAIN) if isinstance(value, list | tuple) else PLAIN)(value, place)


def _names(value: Any, place: str) -> None:
    TARGETS(value, place)
    require(value, f"{place} is empty, expected a name for each target")


def _members(value: Any, place: str) -> None:
    list_of(WEIGHTS)(value, place)
    said = f"{place} are {len(value)}, expected at most {MAX_MEMBERS - 1}"
    require(len(value) < MAX_MEMBERS, said)


# The kind of each option of the network, as that of its default.
_BY_DEFAULT = {int: WHOLE, float: FINITE, str: TEXT, bool: FLAG, type(None): COUNT}
_OPTIONS = {
    field.name: _BY_DEFAULT[type(field.default)] for field in dataclasses.fields(GraphormerConfig)
}  # of those that may be None a checkpoint has numbers
# Younger options than these may be missing.
_NEEDED = ("norm", "layers", "width", "heads", "atom_rows", "bond_rows")
_SPREAD = {name: REAL for name in ("mean", "std", "min", "max")}
_LABELS = record({"labels": COUNT, **_SPREAD})

_NEEDED_FACTS = {
    "model": record({name: _OPTIONS[name] for name in _NEEDED}, _OPTIONS),
    "task": record(
        {
            "kind": among("regression", "binary"),
            "targets": _names,
            "units": list_of(TEXT),
            "metric": TEXT,
        },
        {"one_of": TEXT, "ones": list_of(TEXT), "zeros": list_of(TEXT)},
    ),
    "target_mean": list_of(FINITE),
    "target_std": list_of(POSITIVE),
    "vocabulary": record({"atoms": list_of(CODES), "bonds": list_of(CODES)}),
    "featuriser": optional(TEXT),
    "feature_version": TEXT,
    "dataset": TEXT,
    "dataset_fingerprint": TEXT,
}
REQUIRED = tuple(_NEEDED_FACTS)  # names of what has to be there
_TRAINING_SUMMARY = {
    "atoms": record({"min": COUNT, "max": COUNT}),
    "elements": CODES,
    "targets": list_of(_LABELS),
    "connected": FLAG,
}
_OTHER_FACTS = {
    "training_graphs": COUNT,
    "training_summary": optional(record({}, _TRAINING_SUMMARY)),
    "weight_scale": FINITE,
    "from_pretrained": TEXT,
    "extra_inputs": record({"descriptors": TARGETS, "columns": TARGETS}),
    "standardise": list_of(among("fragment", "neutralise", "tautomer")),
    "data_options": optional(dictionary_of(_plain_or_list)),
    "validation": dictionary_of(REAL),
    "member_folds": COUNT,
    "packages": dictionary_of(TEXT),
    "card": optional(dictionary_of(PLAIN)),
}

_BLEND = record(
    {
        "weights": list_of(SHARE),
        "trees": record(
            {
                "columns": record(
                    {
                        "environments": CODES,
                        "descriptors": list_of(TEXT),
                        "medians": list_of(FINITE),
                        "rdkit": TEXT,
                    },
                    {"columns": TARGETS},
                ),
                "logistic": FLAG,
                **{name: tensor_of(kind) for name, kind in ARRAYS.items()},
            }
        ),
    },
    {
        "validation": dictionary_of(REAL),
        "exclusive": FLAG,
        "stacking": record({"slope": POSITIVE, "constants": list_of(FINITE)}),
    },
)

_SHARES = list_of(SHARE)
_FINITES = list_of(FINITE)
_INTERVALS = record(
    {
        "scale": record(
            {**dict.fromkeys(("low", "high", "weights"), _FINITES), "constant": FINITE}
        ),
        "scores": list_of(NOT_NEGATIVE),
        "labels": COUNT,
        "unit": POSITIVE,
    }
)
_CALIBRATION = record(
    {
        "map": record(
            {
                "a": NOT_NEGATIVE,
                "b": NOT_NEGATIVE,
                "c": FINITE,
                "knots": list_of(pair_of(FINITE)),
            }
        ),
        "zeros": _SHARES,
        "ones": _SHARES,
        "counts": pair_of(COUNT),
    }
)
# By the kind of the targets.
_CONFIDENCE = {
    kind: record(
        {"targets": list_of(optional(one)), "uses": list_of(among(*USES))},
        {
            "domain": record(
                {"border": SHARE, "larger": NOT_NEGATIVE, "molecules": COUNT},
                {"furthest": optional(POSITIVE), "larger_beyond": NOT_NEGATIVE},
            ),
            "neighbours": record(
                {
                    "environments": tensor_of("int16"),
                    "sizes": tensor_of("int16"),
                    "numbers": tensor_of("int32"),
                },
                {"smiles": TARGETS, "labels": tensor_of("float64", 2)},
            ),
            "errors": tensor_of("float32", 2),
            "temperature": POSITIVE,
            "tokens": record(
                {
                    "clouds": list_of(
                        record(
                            {
                                "centre": tensor_of("float32"),
                                "axes": tensor_of("float32", 2),
                                "points": tensor_of("float16", 2),
                            }
                        )
                    ),
                    "usual": POSITIVE,
                }
            ),
        },
    )
    for kind, one in (("regression", _INTERVALS), ("binary", _CALIBRATION))
}

_CHECKPOINT = record(
    {KEY: record(_NEEDED_FACTS, _OTHER_FACTS), "state_dict": WEIGHTS},
    {
        BLEND: _BLEND,
        # Lightning's. What is in the states of callbacks and optimisers is their own affair.
        "epoch": COUNT,
        "global_step": COUNT,
        "pytorch-lightning_version": simple(
            "a version", lambda value: is_text(value) and value[:1].isdigit()
        ),
        "hyper_parameters": dictionary_of(_plain_or_list),
        "loops": _any_of_progress,
        "callbacks": dictionary_of(simple("a dictionary", lambda value: isinstance(value, dict))),
        "optimizer_states": list_of(record({})),
        "lr_schedulers": list_of(record({})),
        "MoleculeDataModule": dictionary_of(COUNT),
        # Of `GraphormerModule` and `AveragedWeights`.
        "epoch_loss": pair_of(REAL),
        "batch_norm_fixed": FLAG,
        "trained_weights": WEIGHTS,
        # Of `joined`.
        "members": _members,
    },
)
