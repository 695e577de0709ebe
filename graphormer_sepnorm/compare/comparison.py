"""What a comparison was asked to do, kept as ``compare.yaml`` in its directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml

from graphormer_sepnorm.compare.arms import NORM, Arm, check_arms
from graphormer_sepnorm.compare.runner import ROOT, SINGLE, Run
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.runs.directory import flat

FILE = "compare.yaml"
# Copies of the configuration files that it was begun with: a user may edit his own for the next one
# while runs of this one wait for their turn.
COPIES = "configs"
_FORMAT_VERSION = 1


@dataclass(frozen=True)
class Comparison:
    """Arms, seeds and the options that all arms share.

    Attributes:
        base_options: Words of the command line for ``fit``, of all arms.
        arms: What is compared.
        seeds: Each arm is trained once with each.
        baseline: Name of the arm that the others are compared with.
        threads: Of each process on a CPU: with other numbers of them sums are added up in another
            order, so they stay the same however the comparison is continued.
        dataset_fingerprint: Of the data that it was begun with.
        configuration: All options of ``fit`` as `base_options` set them, defaults too; by these
            a later command is held against the first.
    """

    file: ClassVar[str] = FILE
    base_options: tuple[str, ...]
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    baseline: str
    threads: int = 1
    dataset_fingerprint: str = ""
    configuration: Mapping[str, Any] = dataclasses.field(default_factory=dict)

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
            version = kept["format_version"]
            if version != _FORMAT_VERSION:
                raise ConfigError(other_format(path, version, _FORMAT_VERSION))
            found = {field.name: kept[field.name] for field in dataclasses.fields(cls)}
            found |= {name: tuple(found[name]) for name in ("base_options", "seeds")}
            found["arms"] = tuple(
                Arm(str(name), dict(options)) for name, options in found["arms"].items()
            )
            return cls(**found)
        except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"{path} is damaged: begin in another directory") from error

    def write(self, directory: Path) -> None:
        """Keep it in a directory."""
        arms = {arm.name: arm.options for arm in self.arms}
        content = {"format_version": _FORMAT_VERSION, **dataclasses.asdict(self), "arms": arms}
        with replacing(directory / self.file) as partial:
            partial.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")

    def runs(self, directory: Path) -> Sequence[Run]:
        """Return all runs, seed by seed, so that what is finished early is paired."""
        # Networks are compared.
        unblended = ["--blend=false"] if self.configuration.get("blend") else []
        base_options = self.words_in(directory)
        return [
            Run(
                arm.name,
                seed,
                place := directory / arm.name / f"seed{seed}",
                (
                    *base_options,
                    *arm.arguments,
                    *SINGLE,
                    *unblended,
                    "--baselines=false",  # once for all of them: see results.py
                    f"--seed_everything={seed}",
                    f"--output={place}",
                ),
                again=self.again(arm),
            )
            for seed in self.seeds
            for arm in self.arms
        ]

    def again(self, arm: Arm) -> tuple[str, ...]:
        """Return what a run that was begun goes on with: its data may lie elsewhere now."""
        root = arm.options.get(ROOT) or self.configuration.get("data", {}).get("root")
        return (f"--{ROOT}={root}",) if root else ()

    def moved_to(self, root: str) -> Self:
        """Return this with another data root: where data lie is no part of what is compared."""
        divided = _divided(self.base_options, (f"--{ROOT}",))
        words = [word for earlier, given in divided if not earlier for word in given]
        data = self.configuration["data"] | {"root": root}
        return dataclasses.replace(
            self,
            base_options=(*words, f"--{ROOT}={root}"),
            configuration={**self.configuration, "data": data},
        )

    def copies(self, directory: Path) -> list[tuple[str, Path]]:
        """Return the configuration files that are named, and where a copy of each belongs."""
        named = [file for file, _ in _divided(self.base_options) if file]
        return [
            (file, directory / COPIES / str(number) / f"{Path(file).stem}.yaml")
            for number, file in enumerate(named, start=1)
        ]

    def words_in(self, directory: Path) -> tuple[str, ...]:
        """Return `base_options`, with the copies that are there in place of the files."""
        copies = iter(self.copies(directory))
        words: list[str] = []
        for file, given in _divided(self.base_options):
            copied = file and (copy := next(copies)[1]).is_file()
            words += ["-c", str(copy)] if copied else given
        return tuple(words)

    def command_line(self) -> list[str]:
        """The words of one command that does all of this, however it was really put together."""
        baseline = ["--baseline", self.baseline] if self.baseline != self.arms[0].name else []
        return [
            "python",
            "train.py",
            "compare",
            *self.base_options,
            *self.arms_option(),
            "--seeds",
            ",".join(map(str, self.seeds)),
            *baseline,
            "-o",
            "DIR",
        ]

    def arms_option(self) -> list[str]:
        """``--arms`` as words; arms that are not norms stand in a file ``arms.yaml``."""
        plain = all(arm.options == {NORM: arm.name} for arm in self.arms)
        return ["--arms", ",".join(arm.name for arm in self.arms) if plain else "arms.yaml"]

    def with_more(self, arms: tuple[Arm, ...], seeds: tuple[int, ...]) -> Self:
        """Return this with arms and seeds added that it does not have yet.

        Raises:
            ConfigError: An arm is there with other options.
        """
        known = {arm.name: arm for arm in self.arms}
        for arm in arms:
            if known.get(arm.name, arm) != arm:
                raise ConfigError(
                    f"arm '{arm.name}' is {_said(arm)} here and {_said(known[arm.name])} in "
                    f"{self.file}: give it another name, or begin in another directory"
                )
        more = tuple(arm for arm in arms if arm.name not in known)
        check_arms([*self.arms, *more])
        seeds = (*self.seeds, *(seed for seed in seeds if seed not in self.seeds))
        return dataclasses.replace(self, arms=(*self.arms, *more), seeds=seeds)

    def differences(self, configuration: Mapping[str, Any]) -> list[str]:
        """Say which options are others in another configuration, but for the data root.

        An option that only one of the two knows is of another version, and not a difference.
        """
        kept, given = dict(flat(self.configuration)), dict(flat(configuration))
        for one, other in ((kept, given), (given, kept)):
            for name in one:  # a value in one of them may be a class with options in the other
                options = {n: value for n, value in other.items() if n.startswith(f"{name}.")}
                other |= {name: options} if options else {}
        return [
            f"--{name} is {_plain(given[name])} here and {_plain(kept[name])} in {self.file}"
            for name in kept
            if name in given and given[name] != kept[name] and name != ROOT
        ]


def _divided(
    words: Sequence[str], names: Collection[str] = ("-c", "--config")
) -> Iterator[tuple[str, list[str]]]:
    """Give the value of each option of these names with its words, of others an empty one."""
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name not in names:
            yield "", [word]
        elif equals:
            yield value, [word]
        else:
            value = next(rest, "")
            yield value, [word, value]


def other_format(path: Path, found: Any, known: int) -> str:
    """Say that a file of a comparison is of a version that cannot be read."""
    return (
        f"{path} is of format {found}, and this version of graphormer_sepnorm knows format {known} "
        "only: use the version that wrote it, or begin in another directory"
    )


def _plain(value: Any) -> str:
    return "not given" if value is None else str(value)


def _said(arm: Arm) -> str:
    return " ".join(arm.arguments) or "without options"
