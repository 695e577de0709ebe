"""What the options of training can be; those of the network are checked by `GraphormerConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.training.loss import LOSSES
from graphormer_sepnorm.training.optimiser import DECAYED, OPTIMISERS
from graphormer_sepnorm.training.schedule import SCHEDULES
from graphormer_sepnorm.training.uniformity import UNIFORMITY_ON


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse what cannot be trained with, before any data are touched.

    Args:
        options: Of `GraphormerModule`, by name.

    Raises:
        ConfigError: A value is out of its range.
    """
    for name in ("learning_rate", "eps"):
        if not options[name] > 0:
            raise _error(name, options[name], "it must be positive")
    for name in ("warmup_steps", "final_learning_rate", "weight_decay", "uniformity_weight"):
        if not options[name] >= 0:
            raise _error(name, options[name], "it must not be negative")
    if not all(0 <= beta < 1 for beta in options["betas"]):
        raise _error("betas", list(options["betas"]), "each must be from 0 to below 1")
    for name, choices in (
        *(("optimiser", OPTIMISERS), ("weight_decay_on", DECAYED), ("schedule", SCHEDULES)),
        *(("uniformity_on", UNIFORMITY_ON), ("loss", LOSSES)),
    ):
        if options[name] not in choices:
            wanted = " or ".join(f"'{choice}'" for choice in choices)
            raise _error(name, f"'{options[name]}'", f"it must be {wanted}")
    graphs, fixed = options["batch_norm_graphs"], options["batch_norm_fixed"]
    if graphs < 0 or graphs == 1:
        raise _error("batch_norm_graphs", graphs, "it must be 0, or 2 or more")
    if not 0 <= fixed < 1:
        raise _error("batch_norm_fixed", fixed, "it must be from 0 to below 1")
    if fixed and not graphs:
        raise ConfigError(
            "--model.batch_norm_fixed needs --model.batch_norm_graphs: BatchNorm's statistics are "
            "fixed as they are measured"
        )


def _error(name: str, value: object, range_: str) -> ConfigError:
    return ConfigError(f"--model.{name} is {value}: {range_}")
