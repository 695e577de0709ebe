"""Checking options of ``fit`` without training, for several arms at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightning.pytorch.cli import ArgsType, LightningArgumentParser

from graphormer_sepnorm.cli.configs import resolve_in_arguments
from graphormer_sepnorm.cli.ensemble import check_ensemble, check_metric_of_members
from graphormer_sepnorm.cli.lightning_cli import TrainCLI
from graphormer_sepnorm.cli.options import (
    check_numbers,
    explain,
    explain_classes,
    refuse_shape,
    require_data,
)
from graphormer_sepnorm.compare.arms import Arm
from graphormer_sepnorm.compare.runner import SINGLE
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.graph_numbers import MemberFolds
from graphormer_sepnorm.errors import ConfigError, GraphormerError
from graphormer_sepnorm.graphs.loading import EpochBatches
from graphormer_sepnorm.model.config import norm_name
from graphormer_sepnorm.training.callbacks.checkpoints import monitored_metric
from graphormer_sepnorm.training.steps import planned_steps, settled_epochs

# They belong to a run and not to what is compared.
_OF_A_RUN = ("seed_everything", "output", "resume", "ckpt_path")


class FitOptions(TrainCLI):
    """The options of ``fit``, parsed with the same parser and the same checks, and no more."""

    def __init__(self, arguments: Sequence[str]) -> None:
        words, _ = resolve_in_arguments(["fit", *arguments])
        super().__init__(words, None)
        self._shared = ["fit", *arguments]
        self._typed = arguments

    def _take_checkpoint(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Refuse one: it cannot be of all runs."""
        raise ConfigError(
            f"ckpt_path: {self.config['fit'].ckpt_path} stands in a configuration, and every run "
            "starts from the beginning: take it out"
        )

    def _set_seed(self) -> None:
        """Leave this process as it is."""

    def instantiate_classes(self) -> None:
        """Make nothing yet: options may be whole only with those of an arm."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Do not train."""

    def configuration(self) -> dict[str, Any]:
        """Return the shared options as sections, defaults too."""
        self._dump_config()
        return {
            name: {k: value for k, value in section.items() if k not in ("seed", "member_fold")}
            if isinstance(section, dict)
            else section
            for name, section in self.config_dump.items()
            if name not in _OF_A_RUN
        }

    def check(self, arm: Arm, ensembles: bool) -> tuple[Any, MoleculeDataModule]:
        """Make the model and the data module of an arm; return its options and its data."""
        single = () if ensembles else SINGLE
        words, _ = resolve_in_arguments([*self._shared, *arm.arguments, *single])
        with explain(self._subcommand_parsers["fit"]):
            config = self.parser.parse_args(words)
        with explain_classes():
            data = self.parser.instantiate_classes(config)["fit"]["data"]
        check_numbers(config.fit)
        check_ensemble(config.fit, [*self._typed, *arm.arguments])
        if backbone := config.fit.model.from_pretrained:
            refuse_shape([*self._typed, *arm.arguments], backbone)
        if config.fit.ensemble > 1 and config.fit.ensemble_by == "folds":
            data.deal_members(MemberFolds(config.fit.ensemble))
        require_data(words)  # last, so that other mistakes are said first
        return config.fit, data


@dataclass(frozen=True)
class CheckedFit:
    """What is known before training.

    Attributes:
        configuration: The options that all arms share, defaults too.
        metric: Main metric of the task; empty if the data were not prepared.
        steps: Optimiser steps of each arm.
        fingerprint: Of the data; empty if they were not prepared.
        devices: Accelerator and number of devices of a run, as the options say.
        seed: Of initial values, order and dropout, as the options say.
        same: Pairs of arms that come to the same options.
    """

    configuration: dict[str, Any]
    metric: str
    fingerprint: str
    steps: dict[str, int]
    devices: tuple[str, str]
    seed: int
    same: tuple[tuple[str, str], ...]


def check_fit(
    base: Sequence[str], arms: Sequence[Arm], prepare: bool, ensembles: bool = False
) -> CheckedFit:
    """Check what is to be trained, and prepare the data for all processes if they are needed.

    Args:
        base: Options that all arms share.
        arms: With their own.
        prepare: Whether the data are needed: to train, or to know which they are.
        ensembles: Whether a run may be one.

    Raises:
        GraphormerError: Something in the options or the data cannot work.
    """
    options = FitOptions(base)
    checked = _check_arms(options, arms, ensembles)
    trainer = checked[arms[0].name][0].trainer
    steps: dict[str, int] = {}
    metric = fingerprint = ""
    if prepare:
        for name, (config, data) in _prepared(checked).items():
            batches = len(EpochBatches(data.indices("train"), config.data.batch_size, 0))
            steps[name] = config.ensemble * planned_steps(
                config.trainer, batches, settled_epochs(config.trainer, data)
            )
            task, fingerprint = data.splits.task, data.splits.fingerprint
            metric = task.metric
            validated = data.store.targets[data.numbers.validated]
            monitored_metric(task, validated, config.metric, config.early_stopping)
            check_metric_of_members(data, config.metric, config.early_stopping)
    devices = (str(trainer.accelerator), str(trainer.devices))
    seed = int(options.config["fit"].seed_everything)
    configuration, same = options.configuration(), _same(checked)
    return CheckedFit(configuration, metric, fingerprint, steps, devices, seed, same)


def _check_arms(
    options: FitOptions, arms: Sequence[Arm], ensembles: bool
) -> dict[str, tuple[Any, MoleculeDataModule]]:
    checked, errors = {}, {}
    for arm in arms:
        try:
            checked[arm.name] = options.check(arm, ensembles)
        except GraphormerError as error:
            errors[arm.name] = error
    if errors:
        name, error = next(iter(errors.items()))
        shared = len(errors) == len(arms) and len({str(one) for one in errors.values()}) == 1
        raise error if shared else type(error)(f"arm '{name}': {error}")
    return checked


def _same(checked: dict[str, tuple[Any, MoleculeDataModule]]) -> tuple[tuple[str, str], ...]:
    """Pairs of arms with the same options, however they were written."""
    first: dict[str, str] = {}
    found = []
    for name, (config, _) in checked.items():
        options = config.as_dict()
        options["model"]["norm"] = norm_name(options["model"]["norm"])
        before = first.setdefault(json.dumps(options, sort_keys=True, default=str), name)
        if before != name:
            found.append((before, name))
    return tuple(found)


def _prepared(
    checked: dict[str, tuple[Any, MoleculeDataModule]],
) -> dict[str, tuple[Any, MoleculeDataModule]]:
    """Prepare the data, the same only once, since reading a table can take a while."""
    known: dict[str, MoleculeDataModule] = {}
    prepared = {}
    for name, (config, data) in checked.items():
        options = config.data.as_dict() | {"batch_size": 0}
        # The members of an ensemble may have folds, each arm its own.
        key = json.dumps([options, data.member_folds], sort_keys=True, default=str)
        data = known.setdefault(key, data)
        _ = data.store
        prepared[name] = (config, data)
    first, (_, reference) = next(iter(prepared.items()))
    for name, (_, data) in prepared.items():
        if data.splits.fingerprint != reference.splits.fingerprint:
            raise ConfigError(
                f"arms '{first}' and '{name}' have different data ({reference.splits.name}, "
                f"{data.splits.name}) or splits: only arms with the same molecules can be compared"
            )
    return prepared
