"""The arms of a comparison: norms by name, or a YAML file in which each arm overrides options."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.config import norm_name
from graphormer_sepnorm.resources import arms_names, arms_path

NORM = "model.norm"

# Options of `fit` that belong to the comparison, and what to use in their place.
OWN_OPTIONS = {
    "output": "the directory of the comparison is given by -o",
    "resume": "start the same command again, it continues what is unfinished",
    "ckpt_path": "all arms start from the beginning, so that they can be compared",
    "seed_everything": "the seeds are given by --seeds",
    "blend": "networks are compared; train the one that you choose again with it",
    "ensemble": "each run is a single network, with the seeds of --seeds",
    "ensemble_by": "each run is a single network, with the seeds of --seeds",
    "keep": "what a checkpoint keeps of the molecules of training is not compared; train the one "
    "that you choose again with it",
}
# A file of its own would not be kept with the comparison, as that of the command is.
FILE_OF_AN_ARM = "all begin with the configuration of the command; give the options that differ"
# And those that an arm of one cannot have.
_NOT_OF_AN_ARM = OWN_OPTIONS | {
    "baselines": "simple models stand beside all arms, give it to the command itself",
    "config": FILE_OF_AN_ARM,
}
# Options of the command itself, which all arms, and all comparisons of a set, have in common.
_OF_THE_COMMAND = ("arms", "baseline", "jobs", "seeds")
# Beside the folders of the arms.
_TAKEN = ("figures", "compare.yaml", "results.json", "predictions.csv", "report.md", "report.html")


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Attributes:
        name: Also the name of its folder.
        options: Options of ``fit`` that this arm overrides, without dashes, to their values as they
            would be typed.
    """

    name: str
    options: dict[str, str]

    @property
    def arguments(self) -> list[str]:
        """The options as words of a command line."""
        return [f"--{name}={value}" for name, value in self.options.items()]


def parse_arms(text: str, refused: Mapping[str, str] = _NOT_OF_AN_ARM) -> tuple[Arm, ...]:
    """Read the arms that ``--arms`` names.

    Args:
        text: Names of norms with commas between, or a YAML file: ``{arm: {option: value}}``, or the
            name of one that comes with the package. An option may also be written in sections, as
            in a configuration.
        refused: Options that arms may not have, and why.

    Raises:
        ConfigError: There is no such norm or file, it is of another form, has options that are not
            for arms, or two arms have the same name or train the same.
    """
    path = Path(text).expanduser()
    bundled = arms_path(text)
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        arms = read_arms(path, refused)
    elif bundled is not None:
        arms = read_arms(bundled, refused)
    else:
        names = [name.strip() for name in text.split(",")]
        if not all(names):
            raise ConfigError(
                f"--arms '{text}' has an arm without a name: give names of norms with commas "
                "between, as sharenorm,sepnorm, or a YAML file"
            )
        for name in names:
            try:
                norm_name(name)
            except ConfigError as error:
                raise ConfigError(f"{error}, a YAML file, or {' or '.join(arms_names())}") from None
        arms = [Arm(name, {NORM: name}) for name in names]
    check_arms(arms)
    return tuple(arms)


def check_arms(arms: Iterable[Arm], what: str = "arm", taken: Collection[str] = _TAKEN) -> None:
    """Refuse arms that cannot be told apart.

    Args:
        arms: Each is to have a folder of its name.
        what: They are called in messages.
        taken: Names of other things that will lie beside the folders.

    Raises:
        ConfigError: Two have the same name or the same options, or a name is no folder's.
    """
    names: set[str] = set()
    trained: dict[frozenset[tuple[str, str]], str] = {}
    for arm in arms:
        if not re.fullmatch(r"\w[\w.+-]*", arm.name) or arm.name.lower() in taken:
            raise ConfigError(
                f"'{arm.name}' cannot be the name of {_one(what)}: its folder has the same name; "
                f"use letters, digits and . _ + - (not {' or '.join(taken)})"
            )
        # Some file systems do not tell capitals from small letters.
        if arm.name.lower() in names:
            raise ConfigError(f"{what} '{arm.name}' is there twice: name it once")
        names.add(arm.name.lower())
        same = frozenset(
            (name, norm_name(value) if name == NORM else value)
            for name, value in arm.options.items()
        )
        if same in trained:
            raise ConfigError(
                f"{what}s '{trained[same]}' and '{arm.name}' are the same: leave one of them out"
            )
        trained[same] = arm.name


def read_arms(path: Path, refused: Mapping[str, str], what: str = "arm") -> list[Arm]:
    """Read a YAML file ``{arm: {option: value}}``.

    Args:
        path: Of the file.
        refused: Options that no entry may have, and why.
        what: The entries are called in messages.

    Raises:
        ConfigError: It cannot be read, is of another form, or has options that are not for arms.
    """
    # The nodes and not the values: YAML would keep the last of two arms of the same name, and
    # values are to reach `fit` as they were typed.
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path}{line}: the {what}s cannot be read ({problem})") from error
    if not isinstance(root, yaml.MappingNode) or not root.value:
        raise ConfigError(
            f"{path}: expected {what}s, each with its options: {{{what}: {{option: value}}}}"
        )
    return [
        Arm(str(name.value), dict(_options(path, refused, what, str(name.value), "", options)))
        for name, options in root.value
    ]


def in_common(name: str, what: str) -> str:
    """Say where an option is given that is not one arm's; empty of any other name."""
    if name.replace("-", "_") not in _OF_THE_COMMAND:
        return ""
    return f"{name} is the same for all {what}s: give --{name} on the command line"


def _one(what: str) -> str:
    return f"an {what}" if what == "arm" else f"a {what}"


def _options(
    path: Path,
    refused: Mapping[str, str],
    what: str,
    name_of_arm: str,
    section: str,
    node: yaml.Node,
) -> list[tuple[str, str]]:
    """Return the options of an arm, those in sections with the section's name before theirs."""
    where = f"{path}, line {node.start_mark.line + 1}, {what} '{name_of_arm}'"
    if not section and isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~"):
        return []  # an arm that overrides nothing
    if not isinstance(node, yaml.MappingNode):
        if not section and (common := in_common(name_of_arm, what)):
            raise ConfigError(f"{path}, line {node.start_mark.line + 1}: {common}")
        raise ConfigError(f"{where}: expected options, as {{model.norm: sepnorm}}")
    found: list[tuple[str, str]] = []
    for key, value in node.value:
        name = section + str(key.value).lstrip("-")
        if name in refused:
            raise ConfigError(f"{where}: --{name} is not for {_one(what)}: {refused[name]}")
        if common := in_common(name, what):
            raise ConfigError(f"{where}: {common}")
        if isinstance(value, yaml.MappingNode):
            found += _options(path, refused, what, name_of_arm, f"{name}.", value)
        else:
            found.append((name, _typed(value)))
    if twice := [name for name, times in Counter(name for name, _ in found).items() if times > 1]:
        raise ConfigError(f"{where}: {min(twice)} is there twice: give it once")
    return found


def _typed(node: yaml.Node) -> str:
    """Return a value as it would be typed on the command line: in one word."""
    if isinstance(node, yaml.ScalarNode) and (node.style or node.value):
        return str(node.value)
    return _in_flow(node)


def _in_flow(node: yaml.Node) -> str:
    """Return a part of a list or of a mapping in one line, numbers as they were typed."""
    if isinstance(node, yaml.SequenceNode):
        return f"[{', '.join(map(_in_flow, node.value))}]"
    if isinstance(node, yaml.MappingNode):
        pairs = (f"{_in_flow(key)}: {_in_flow(value)}" for key, value in node.value)
        return f"{{{', '.join(pairs)}}}"
    assert isinstance(node, yaml.ScalarNode)
    # On lines of its own a word may hold what means something else within brackets.
    quoted = node.style or set(node.value) & set(",:[]{}")
    return json.dumps(node.value, ensure_ascii=False) if quoted else node.value or "null"
