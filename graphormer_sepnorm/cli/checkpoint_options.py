"""Options of a command beside those of the checkpoint that it takes up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch.cli import ArgsType, LightningArgumentParser

from graphormer_sepnorm.cli.options import LINKED, option_names
from graphormer_sepnorm.datasets.catalogue import DATASETS, PRETRAINING, TABLE, canonical_name
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.user_table.options import TUPLES, as_tuple
from graphormer_sepnorm.errors import CheckpointError, ConfigError
from graphormer_sepnorm.formatting import in_a_line
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import KEY
from graphormer_sepnorm.model.config import REGULARISATION, GraphormerConfig, norm_name
from graphormer_sepnorm.tables.columns import means

# How training goes on, which a resumed run may change; not what is trained.
CHANGEABLE = tuple(
    f"model.{name}"
    for name in (
        "learning_rate",
        "final_learning_rate",
        "warmup_steps",
        "schedule",
        "weight_decay",
        "betas",
        "eps",
        "precise_bn_graphs",
        "frozen_bn_fraction",
        "uniformity_weight",
        "uniformity_on",
        "dropout",
        "attention_dropout",
        "input_dropout",
        "drop_path",
    )
)

# Where the rows of a table stand.
_PLACES = ("data.table", "data.validation_table", "data.test_table")


def refuse_own_class_1(checkpoint: Mapping[str, Any]) -> None:
    """Raise a CheckpointError if what a model calls class 1 is not 1 where labels are read.

    An estimator's classes are in alphabetical order: of active and inactive it is inactive.
    """
    for one in Task.from_plain(checkpoint[KEY]["task"]).ones:
        if one and not means(one, 1):
            raise CheckpointError(
                f"class 1 of the model is {in_a_line(one)}, which is not 1 in the labels of a data "
                "set: predict.py --evaluate takes its words"
            )


def adopt_checkpoint(
    parser: LightningArgumentParser,
    verb_parser: LightningArgumentParser,
    verb: str,
    arguments: ArgsType,
    file: Path,
    checkpoint: dict[str, Any],
    changeable: tuple[str, ...],
) -> Namespace:
    """Parse again with the checkpoint's values as defaults.

    So a value that the user did not give is the checkpoint's, and one that differs from it must
    have been given, on the command line or in a configuration file. Those named `changeable` may
    differ. Options of the model that are younger than the checkpoint have their default in it.

    Raises:
        ConfigError: Another value contradicts the checkpoint; it names both.
        CheckpointError: The checkpoint has options that do not exist.
    """
    options = set(option_names(verb_parser))
    hyper_parameters = checkpoint.get("hyper_parameters", {})
    kept = {
        name: hyper_parameters.get(name.removeprefix("model."), verb_parser.get_default(name))
        for name in options
        if name.startswith("model.")
    }
    kept["seed_everything"] = hyper_parameters.get("seed", 0)
    kept |= _data_options(checkpoint[KEY], arguments)
    if verb == "fit":
        kept |= _step_options(checkpoint)
    unknown = sorted(kept.keys() - options - set(LINKED))
    if unknown:
        raise CheckpointError(
            f"{file} was made with --{unknown[0]}, which is no option of this version: use the "
            "version of graphormer_sepnorm that wrote it"
        )
    # Another data set with the same features may be evaluated, and a seed changes nothing.
    # So may a table that was moved: whether its content is the same is checked later.
    known = {
        name: value
        for name, value in kept.items()
        if name.startswith("model.") or (verb == "fit" and name not in _PLACES)
    }
    verb_parser.set_defaults(kept)
    config = parser.parse_args(arguments)  # type: ignore[arg-type]
    model = config[verb].model
    if model.from_pretrained and model.from_pretrained == checkpoint[KEY].get("from_pretrained"):
        # That is where the checkpoint began: it has the shape of that network, and its own weights.
        model.from_pretrained = None
        for field in dataclasses.fields(GraphormerConfig):
            if f"model.{field.name}" in kept and field.name not in REGULARISATION:
                model[field.name] = kept[f"model.{field.name}"]
    contradictions = [
        f"--{name} is {given} here and {value} in the checkpoint"
        for name, value in known.items()
        if name not in changeable and _differ(name, given := config[verb][name], value)
    ]
    if contradictions:
        raise ConfigError(
            f"{'; '.join(contradictions)} ({file}): leave the option out to use the checkpoint's"
        )
    return config


def _step_options(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return what a step is: otherwise the place in the epoch and the schedule would not fit."""
    state = checkpoint.get(MoleculeDataModule.__qualname__, {})
    names = {
        "data.batch_size": "batch_size",
        "trainer.accumulate_grad_batches": "accumulate_grad_batches",
    }
    return {option: state[name] for option, name in names.items() if name in state}


def _data_options(facts: dict[str, Any], arguments: ArgsType) -> dict[str, Any]:
    """Return the options that load what a checkpoint was trained on."""
    table = facts.get("data_options")
    if table is not None:
        return {f"data.{name}": value for name, value in table.items()} | {"data.dataset": TABLE}
    if facts["dataset"] in (*DATASETS, PRETRAINING):
        return {"data.dataset": facts["dataset"]}
    words = arguments if isinstance(arguments, list) else []
    if any(str(word).startswith("--data.") for word in words):
        return {}
    raise ConfigError(
        f"the checkpoint was trained on {facts['dataset']}, which is not among "
        f"{', '.join(DATASETS)}: say what to evaluate it on, with --data.table FILE or "
        "--data.dataset NAME"
    )


def _differ(name: str, given: Any, kept: Any) -> bool:
    if name == "model.norm":
        return norm_name(given) != norm_name(kept)
    if name == "data.dataset":  # not said: a table, which is compared itself
        return given is not None and canonical_name(given) != canonical_name(kept)
    if (option := name.removeprefix("data.")) in TUPLES:
        return as_tuple(option, given) != as_tuple(option, kept)
    if isinstance(given, list | tuple) and isinstance(kept, list | tuple):
        return list(given) != list(kept)
    return given != kept
