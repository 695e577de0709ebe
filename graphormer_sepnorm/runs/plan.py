"""Many runs, planned at once: arms with seeds, or with the folds and repeats of a table.

A plan is kept as one file in the directory of its runs. What stands there is resolved, all options
with their values, so that what was begun goes on as it was begun, whatever has become of
configuration files since.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml

from graphormer_sepnorm.config import FitConfig, flat
from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.files import write_text
from graphormer_sepnorm.runs.directory import RunDirectory

_FORMAT_VERSION = 2
# Beside the folders of arms.
_TAKEN = ("compare.yaml", "results.json", "predictions.csv", "summary.md", "report.html")
# Files of data, which may be elsewhere later; the data are recognized by their fingerprint.
_FILES = ("data.table", "data.validation_table", "data.test_table", "data.molecules")
# Of a run, and not of what all runs have in common.
_OF_A_RUN = ("seed_everything", "output")
# Each run of a comparison is one network, and what it predicts is compared as it stands.
_OF_A_COMPARISON = {
    "ensemble": 1,
    "ensemble_by": "seeds",
    "keep": "none",
    "blend": False,
    "seed_everything": 0,
    "output": None,
}


@dataclass(frozen=True)
class RunSpec:
    """A run: what it is trained with, and where.

    Attributes:
        name: How it is called in messages.
        config: All its options.
        directory: Where ``fit`` keeps it.
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
    def named(self) -> bool:
        """Whether its arm has a name of its own."""
        return bool(self.arm)

    @property
    def columns(self) -> dict[str, Any]:
        """What it is called in a table of folds: ``arm``, if that has a name, and where it is."""
        arm = {"arm": self.arm} if self.named else {}
        return arm | {"repeat": self.repeat, "fold": self.fold}

    @property
    def files(self) -> RunDirectory:
        """What it leaves."""
        return RunDirectory(self.directory)

    @property
    def config_file(self) -> Path:
        """The options that it is begun with."""
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
        """Whether it is trained and tested, and all is made that was to follow."""
        return self.files.finished

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return self.files.resumable


@dataclass(frozen=True)
class Arm:
    """One way to train: its name, also that of its folder, and the options that it overrides."""

    name: str
    options: dict[str, Any]


# Without --arms: the options that are given, and no others.
ONE_MODEL = (Arm("", {}),)


def check_names(names: Iterable[str], what: str = "arm", taken: Sequence[str] = _TAKEN) -> None:
    """Raise a ConfigError for names that are no names of folders, or that are there twice."""
    seen: set[str] = set()
    for name in names:
        if not re.fullmatch(r"\w[\w.+-]*", name) or name.lower() in taken:
            raise ConfigError(
                f"{what} '{name}': its folder has the same name; use letters, digits and . _ + - "
                f"(not {' or '.join(taken)})"
            )
        if name.lower() in seen:  # some file systems do not tell capitals from small letters
            raise ConfigError(f"{what} '{name}' is there twice: name it once")
        seen.add(name.lower())


@dataclass(frozen=True)
class Plan:
    """Arms, seeds, and the options that all arms share.

    Attributes:
        base: Options of all arms.
        arms: What is compared.
        seeds: Each arm is trained with each.
        baseline: Name of the arm that the others are compared with.
        threads: Of each process on a CPU: with other numbers of them sums are added up in another
            order, so they stay the same however the plan is continued.
        dataset_fingerprint: Of the data that it was begun with.

    Raises:
        ConfigError: Arms have the same name, or train the same, or an option cannot be.
    """

    file: ClassVar[str]
    base: FitConfig
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    baseline: str
    threads: int = 1
    dataset_fingerprint: str = ""

    def __post_init__(self) -> None:
        if self.arms != ONE_MODEL:
            check_names([arm.name for arm in self.arms])
        configs = [(arm.name, self.config_of(arm)) for arm in self.arms]
        for (one, config), (other, same) in itertools.combinations(configs, 2):
            if config == same:
                raise ConfigError(f"arms '{one}' and '{other}' are the same: leave one out")
        names = [name for name, _ in configs]
        if self.baseline not in names:
            close = did_you_mean(self.baseline, names)
            raise ConfigError(f"--baseline {self.baseline} is no arm{close}: use one of {names}")

    def config_of(self, arm: Arm) -> FitConfig:
        """Return all options of an arm."""
        try:
            return self.base.with_options(arm.options)
        except ConfigError as error:
            raise ConfigError(f"arm '{arm.name}': {error}") from error

    def runs(self, directory: Path) -> list[RunSpec]:
        """Return all runs, in the order in which they are trained."""
        raise NotImplementedError

    @property
    def configuration(self) -> dict[str, Any]:
        """The options that all runs share, in sections."""
        plain = self.base.to_plain()
        return {name: value for name, value in plain.items() if name not in _OF_A_RUN}

    @property
    def base_options(self) -> tuple[str, ...]:
        """The options that are others than the defaults, as words of a command line."""
        found = FitConfig().differences(self.base)
        return tuple(
            f"--{name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, (_, value) in found.items()
            if name not in _OF_A_RUN
        )

    def _command(self, verb: str, *words: str) -> list[str]:
        plain = all(arm.options == {"model.norm": arm.name} for arm in self.arms)
        names = ",".join(arm.name for arm in self.arms)
        arms = [] if self.arms == ONE_MODEL else ["--arms", names if plain else "arms.yaml"]
        return ["python", "train.py", verb, *self.base_options, *arms, *words, "-o", "DIR"]

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Read what is kept in a directory; None if nothing of the kind was begun there.

        Raises:
            ConfigError: The file is damaged or of another version.
        """
        path = directory / cls.file
        if not path.is_file():
            return None
        try:
            kept = yaml.safe_load(path.read_text(encoding="utf-8"))
            version = kept.pop("format_version")
            if version != _FORMAT_VERSION:
                raise ConfigError(other_format(path, version, _FORMAT_VERSION))
            kept["base"] = FitConfig.from_plain(kept["base"])
            kept["arms"] = tuple(Arm(name, dict(own)) for name, own in kept["arms"].items())
            return cls(**{**kept, "seeds": tuple(kept["seeds"])})
        except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise ConfigError(f"{path} is damaged: begin in another directory") from error

    def write(self, directory: Path) -> None:
        """Keep it in a directory."""
        kept = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        kept |= {"base": self.base.to_plain(), "seeds": [*self.seeds]}
        kept["arms"] = {arm.name: arm.options for arm in self.arms}
        kept = {"format_version": _FORMAT_VERSION, **kept}
        text = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)
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
            f"{where}--{name} is {_shown(now)} here and {_shown(before)} in {self.file}"
            for where, kept, given in pairs
            for name, (before, now) in kept.differences(given).items()
            if not _moved(name, before, now)
        ]
        if differing:
            raise ConfigError(
                f"it was begun with other options: {'; '.join(differing)}: leave them out to "
                "continue, or begin in another directory"
            )
        return plan


def _moved(name: str, before: Any, now: Any) -> bool:
    if name in _FILES and before and now:
        return Path(before).name == Path(now).name
    return name == "data.root"


def _shown(value: Any) -> str:
    return "not given" if value is None else str(value)


@dataclass(frozen=True)
class Comparison(Plan):
    """What ``compare`` trains: each arm with each seed."""

    file: ClassVar[str] = "compare.yaml"

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", self.base.with_options(_OF_A_COMPARISON))
        super().__post_init__()

    def runs(self, directory: Path) -> list[RunSpec]:
        """Return all runs, seed by seed, so that what is finished early is paired."""
        # Simple models stand beside all of them once, see compare/results.py.
        configs = {arm.name: self.config_of(arm) for arm in self.arms}
        return [
            RunSpec(
                f"{name} seed {seed}",
                config.with_options({"seed_everything": seed, "baselines": False}),
                directory / name / f"seed{seed}",
                name,
            )
            for seed in self.seeds
            for name, config in configs.items()
        ]

    def command_line(self) -> list[str]:
        """The words of one command that does all of this, however it was really put together."""
        own = ["--baseline", self.baseline] if self.baseline != self.arms[0].name else []
        return self._command("compare", "--seeds", ",".join(map(str, self.seeds)), *own)


@dataclass(frozen=True)
class CrossValidation(Plan):
    """What ``crossvalidate`` trains: each arm on every fold, in every repeat.

    `seeds` are those of the repeats, one after the other: each repeat has other folds and begins
    with other values. The data of `dataset_fingerprint` are the first fold's.

    Attributes:
        folds: How many.
    """

    file: ClassVar[str] = "crossvalidation.yaml"
    folds: int = 5

    @property
    def split_seed(self) -> int:
        """Of the folds of the first repeat."""
        return self.base.data.split_seed

    def runs(self, directory: Path) -> list[RunSpec]:
        """Return all runs, fold by fold, so that what is finished early is paired."""
        configs = {arm.name: self.config_of(arm) for arm in self.arms}
        return [
            RunSpec(
                f"{name} repeat {repeat} fold {fold}".lstrip(),
                config.with_options(
                    {
                        "data.folds": self.folds,
                        "data.fold": fold,
                        "data.split_seed": self.split_seed + repeat,
                        "seed_everything": seed,
                    }
                ),
                directory / name / f"repeat{repeat}" / f"fold{fold}",
                name,
                repeat,
            )
            for repeat, seed in enumerate(self.seeds)
            for fold in range(self.folds)
            for name, config in configs.items()
        ]

    def command_line(self) -> list[str]:
        """The words of one command that does all of this, however it was really put together."""
        own = ["--folds", str(self.folds), "--repeats", str(len(self.seeds))]
        return self._command("crossvalidate", *own)


def other_format(path: Path, found: Any, known: int) -> str:
    """Say that a file of a comparison is of a version that cannot be read."""
    return (
        f"{path} is of format {found}, and this version of graphormer_sepnorm knows format {known} "
        "only: use the version that wrote it, or begin in another directory"
    )


def moved_options(spec: RunSpec) -> list[str]:
    """Return where the data of a run that was begun lie now, as words for ``fit --resume``."""
    before, now = flat(spec.files.configuration()), flat(spec.config.to_plain())
    return [
        f"--{name}={now[name]}"
        for name in ("data.root", *_FILES)
        if now[name] is not None and before.get(name) != now[name]
    ]
