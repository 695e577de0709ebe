"""What stands in a checkpoint of how sure a model is: parts that must fit each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphormer_sepnorm.inference.kinds import requirement

# Where a checkpoint keeps a `Confidence`.
CONFIDENCE = "confidence"
# What an interval may be made with, beside what the neighbours say -> what has to be there for it.
USES = {"spread": "members", "apart": "blend"}


def check_confidence(
    plain: dict[str, Any], targets: int, width: int, there: dict[str, Any]
) -> None:
    """Check that the parts of a `Confidence`, of the right kinds each, fit together.

    And to the model: the number of its targets, the channels of its tokens, what is there beside.

    Raises:
        CheckpointError: They do not.
    """
    require = requirement(CONFIDENCE)
    count = len(plain["targets"])
    require(count == targets, f"is of {count} targets, task.targets of {targets}")
    for name in plain["uses"]:
        require(there.get(USES[name]), f"uses {name}, and there are no {USES[name]}")
    neighbours, errors, tokens = (plain.get(name) for name in ("neighbours", "errors", "tokens"))
    signals = len(plain["uses"]) + sum(one is not None for one in (neighbours, errors, tokens))
    if tokens is not None:
        networks, clouds = 1 + len(there.get("members", ())), tokens["clouds"]
        require(len(clouds) == networks, f"has {len(clouds)} clouds of {networks} networks")
        for number, cloud in enumerate(clouds):
            shapes = tuple(tuple(cloud[name].shape) for name in ("centre", "axes", "points"))
            axes, points = shapes[1][1], shapes[2][0]
            fits = shapes == ((width,), (width, axes), (points, axes)) and axes and points
            require(fits, f"tokens.clouds[{number}] is not of {width} channels, or empty")
            finite = all(bool(cloud[name].isfinite().all()) for name in cloud)
            require(finite, f"tokens.clouds[{number}] is not finite")
    for number, one in enumerate(plain["targets"]):
        at = f"targets[{number}]"
        if one is None:
            continue
        if "scale" in one:
            lengths = {len(one["scale"][name]) for name in ("low", "high", "weights")}
            require(lengths == {signals}, f"{at} is not of {signals} signals")
            for name in ("scores", "beyond"):
                require(_ascends(one.get(name, ())), f"{at}.{name} do not ascend")
            require(0 < len(one["scores"]) <= one["labels"], f"{at}.scores are not of its labels")
        else:
            knots = np.array(one["map"]["knots"], np.float64).reshape(-1, 2)
            require(_ascends(knots[:, 0]) and _ascends(knots[:, 1]), f"{at}.map turns the order")
            for name, labels in zip(("zeros", "ones"), one["counts"], strict=True):
                require(_ascends(one[name]), f"{at}.{name} do not ascend")
                require(len(one[name]) <= labels, f"{at}.{name} are more than its labels")
                require(bool(one[name]) == bool(labels), f"{at}.{name} are missing")
    alike = (plain.get("domain") is None) == (neighbours is None)
    require(alike, "has one of domain and neighbours without the other")
    if neighbours is None:
        require(errors is None, "has errors without neighbours")
        return
    sizes, molecules = neighbours["sizes"], len(neighbours["sizes"])
    total = int(sizes.sum(dtype=None)) if molecules else 0
    require(molecules > 0 and bool((sizes >= 0).all()), "has no neighbours")
    require(total == len(neighbours["environments"]), "has environments of no molecule")
    for name in ("numbers", "smiles", "labels"):
        rows = len(neighbours.get(name, sizes))
        require(rows == molecules, f"has {name} of {rows} neighbours, there are {molecules}")
    for name, table in (("labels", neighbours.get("labels")), ("errors", errors)):
        if table is not None:
            shape = tuple(table.shape)
            require(shape == (molecules, targets), f"has {name} of another shape, {shape}")


def _ascends(values: Any) -> bool:
    return bool((np.diff(np.array(values, np.float64)) >= 0).all())
