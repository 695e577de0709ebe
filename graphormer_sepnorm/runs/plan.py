"""Many runs, planned at once: arms with seeds, or with the folds and repeats of a table.

A plan is stored as one file in the directory of its runs, all options with their values: what was
started continues as it was, whatever has become of configuration files since.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.files import write_text
from graphormer_sepnorm.runs.directory import RunDirectory

COMPARISON, CROSS_VALIDATION = "compare.yaml", "crossvalidation.yaml"
_FORMAT_VERSION = 2
# Of a file of another version: its path, its format and that of this version.
OTHER_FORMAT = "{} is of format {}, and here it is {}: use the version that wrote it"
# Next to the folders of arms.
_TAKEN = (COMPARISON, "results.json", "summary.md", "report.html")
# Files of data, which may be elsewhere later; the data are recognized by their fingerprint.
DATA_FILES = ("data.table", "data.validation_table", "data.test_table", "data.molecules")
# Of a run, and not of what all runs have in common.
_OF_A_RUN = ("seed_everything", "output")
# Each run of a comparison is one network, and what it predicts is compared as it stands.
OF_A_COMPARISON = {
    "ensemble": 1,
    "ensemble_by": "seeds",
    "keep": "none",
    "members": ["networks"],
    "baselines": False,
    "seed_everything": 0,
    "output": None,
}


@dataclass(frozen=True)
class RunSpec:
    """A run: what it is trained with, and where.

    Attributes:
        name: How it is called in messages.
        config: All its options.
        directory: Where ``fit`` writes it.
        arm: Name of its arm; empty if arms have no names.
        repeat: Of a cross-validation, from 0.
    """

    name: str
    config: FitConfig = field(compare=False, repr=False)
    directory: Path
    arm: str = ""
    repeat: int = 0

    @property
    def seed(self) -> int:
        """Of initial values, order and dropout."""
        return self.config.seed_everything

    @property
    def fold(self) -> int:
        """Of a cross-validation: the fold that is the test split, from 0."""
        return self.config.data.fold or 0

    @property
    def files(self) -> RunDirectory:
        """The files in its directory."""
        return RunDirectory(self.directory)

    @property
    def config_file(self) -> Path:
        """The options that it is started with."""
        return self.directory.with_name(f"{self.directory.name}.yaml")

    @property
    def log(self) -> Path:
        """What its processes print, one after the other."""
        return self.directory.with_name(f"{self.directory.name}.log")

    @property
    def failure(self) -> Path:
        """Why its last process failed, if it did."""
        return self.directory.with_name(f"{self.directory.name}.failed")

    @property
    def finished(self) -> bool:
        """Whether it is trained and tested, and all files of its results are written."""
        return self.files.finished

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to continue from, or members of an ensemble."""
        run = self.files
        return run.last.is_file() or run.previous.is_file() or run.members.is_dir()


@dataclass(frozen=True)
class Arm:
    """One way to train: its name, also that of its folder, and the options that it overrides."""

    name: str
    options: dict[str, Any]


# Without --arms: the options that are given, and no others.
ONE_MODEL = (Arm("", {}),)


@dataclass(frozen=True)
class Plan:
    """What ``compare`` trains, arms x seeds; or ``crossvalidate``, arms x repeats x folds.

    Attributes:
        base: Options of all arms.
        arms: What is compared.
        seeds: Each arm is trained with each. In a cross-validation one for each repeat, which has
            other folds and other initial values.
        baseline: Name of the arm that the others are compared with.
        threads: Of each process on a CPU: with other numbers of them sums are added up in another
            order, so they stay the same however the plan is continued.
        dataset_fingerprint: Of the data that it was started with; of the first fold.
        folds: Of a cross-validation; 0: this is a comparison.

    Raises:
        ConfigError: Arms have the same name, or train the same, or an option cannot be.
    """

    base: FitConfig
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    baseline: str
    threads: int = 1
    dataset_fingerprint: str = ""
    folds: int = 0

    def __post_init__(self) -> None:
        if not self.folds:
            object.__setattr__(self, "base", self.base.with_options(OF_A_COMPARISON))
        names = [arm.name for arm in self.arms]
        for name in names if self.arms != ONE_MODEL else ():
            # Some file systems do not tell capitals from small letters.
            if [other.lower() for other in names].count(name.lower()) > 1:
                raise ConfigError(f"arm '{name}' is there twice: name it once")
            if not re.fullmatch(r"\w[\w.+-]*", name) or name.lower() in _TAKEN:
                raise ConfigError(
                    f"arm '{name}': its folder has the same name; use letters, digits and . _ + - "
                    f"(not {' or '.join(_TAKEN)})"
                )
        configs = [(arm.name, self.config_of(arm)) for arm in self.arms]
        for (one, config), (other, same) in itertools.combinations(configs, 2):
            if config == same:
                raise ConfigError(f"arms '{one}' and '{other}' are the same: remove one of them")
        self.check_baseline(self.baseline, names)

    @staticmethod
    def check_baseline(baseline: str, arms: Sequence[str]) -> None:
        """Raise a ConfigError if a baseline is none of the arms."""
        if baseline not in arms:
            close = did_you_mean(baseline, arms)
            raise ConfigError(f"--baseline {baseline} is no arm{close}: use one of {[*arms]}")

    @property
    def file(self) -> str:
        """The name of the file that it is stored in."""
        return CROSS_VALIDATION if self.folds else COMPARISON

    @property
    def configuration(self) -> dict[str, Any]:
        """The options that all runs share, in sections."""
        plain = self.base.to_plain()
        return {name: value for name, value in plain.items() if name not in _OF_A_RUN}

    def config_of(self, arm: Arm) -> FitConfig:
        """Return all options of an arm."""
        try:
            return self.base.with_options(arm.options)
        except ConfigError as error:
            raise ConfigError(f"arm '{arm.name}': {error}") from error

    def runs(self, directory: Path) -> list[RunSpec]:
        """Return all runs: seed by seed, fold by fold, so that what is finished early is paired."""
        configs = {arm.name: self.config_of(arm) for arm in self.arms}
        runs = []
        for repeat, seed in enumerate(self.seeds):
            for fold in range(self.folds or 1):
                for arm, config in configs.items():
                    own: dict[str, Any] = {"seed_everything": seed}
                    name, path = f"{arm} seed {seed}", directory / arm / f"seed{seed}"
                    if self.folds:
                        name = f"{arm} repeat {repeat} fold {fold}".lstrip()
                        path = directory / arm / f"repeat{repeat}" / f"fold{fold}"
                        split_seed = self.base.data.split_seed + repeat
                        own |= {"data.folds": self.folds, "data.fold": fold}
                        own |= {"data.split_seed": split_seed}
                    runs.append(RunSpec(name, config.with_options(own), path, arm, repeat))
        return runs

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read what a file holds; None if there is none, a ConfigError if it cannot be used."""
        if not path.is_file():
            return None
        try:
            stored = yaml.safe_load(path.read_text(encoding="utf-8"))
            version = stored.pop("format_version")
            if version != _FORMAT_VERSION:
                raise ConfigError(OTHER_FORMAT.format(path, version, _FORMAT_VERSION))
            stored["base"] = FitConfig.from_plain(stored["base"])
            stored["arms"] = tuple(Arm(name, dict(own)) for name, own in stored["arms"].items())
            return cls(**{**stored, "seeds": tuple(stored["seeds"])})
        except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise ConfigError(f"{path} is damaged: start in another directory") from error

    def write(self, directory: Path) -> None:
        """Store it in a directory."""
        stored: dict[str, Any] = {"format_version": _FORMAT_VERSION}
        stored |= {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        stored |= {"base": self.base.to_plain(), "seeds": [*self.seeds]}
        stored["arms"] = {arm.name: arm.options for arm in self.arms}
        text = yaml.safe_dump(stored, sort_keys=False, allow_unicode=True)
        write_text(directory / self.file, text)

    def with_more(self, base: FitConfig, arms: Sequence[Arm], seeds: Sequence[int]) -> Self:
        """Return this with arms and seeds added, and with files of data that have moved.

        Raises:
            ConfigError: Options in `base` are others, or those of an arm that is there already.
        """
        known = {arm.name: arm for arm in self.arms}
        more = tuple(arm for arm in arms if arm.name not in known)
        seeds = tuple(dict.fromkeys((*self.seeds, *seeds)))
        plan = dataclasses.replace(self, base=base, arms=(*self.arms, *more), seeds=seeds)
        pairs = [("", self.base, plan.base)]
        pairs += [
            (f"arm '{arm.name}': ", plan.config_of(known[arm.name]), plan.config_of(arm))
            for arm in arms
            if arm not in more
        ]
        differing = [
            f"{where}--{name} is {now} here and {before} in {self.file}"
            for where, stored, given in pairs
            for name, (before, now) in stored.differences(given).items()
            if name != "data.root"
            and not (name in DATA_FILES and before and now and Path(before).name == Path(now).name)
        ]
        if differing:
            raise ConfigError(
                f"it was started with other options: {'; '.join(differing)}: remove them to "
                "continue, or start in another directory"
            )
        return plan
