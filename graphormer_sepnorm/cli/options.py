"""From the words of a command line, and configuration files, to a `FitConfig`; and the help.

Names, types, defaults, ranges and texts stand at the dataclasses of config.py.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from types import NoneType
from typing import Any, get_args, get_type_hints

import yaml

from graphormer_sepnorm.config import SECTIONS, FitConfig, flat, is_gone, read_yaml
from graphormer_sepnorm.errors import ConfigError, closest
from graphormer_sepnorm.resources import bundled_configs

# What options are called elsewhere.
_ELSEWHERE = {
    **{"lr": "model.learning_rate", "wd": "model.weight_decay", "num_layers": "model.layers"},
    **{"hidden_size": "model.width", "hidden_dim": "model.width", "num_heads": "model.heads"},
    **{"epochs": "trainer.max_epochs", "gpus": "trainer.devices", "seed": "seed_everything"},
    **dict.fromkeys(("target", "targets"), "data.target_columns"),
    **dict.fromkeys(("device", "gpu"), "trainer.accelerator"),
}
# Verb -> its usage, what it does, and the options that --help shows.
_RUN = ("config", "output", "resume", "seed_everything")
_DATA = ("data.table", "data.target_columns", "data.split", "data.dataset", "data.root")
_MODEL = ("model.norm", "model.layers", "model.width", "model.heads", "model.dropout")
_LENGTH = ("trainer.max_epochs", "model.learning_rate")
_AFTERWARDS = ("early_stopping", "ensemble", "baselines", "members")
_MACHINE = ("data.batch_size", "trainer.accelerator", "trainer.devices", "trainer.precision")
_EVALUATION = ("predictions", "config", *_DATA, *_MACHINE)
VERBS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "fit": (
        "fit -c CONFIG.yaml [--option value ...]",
        "Train a model, then test its best checkpoint.",
        (*_RUN, *_DATA, *_MODEL, *_LENGTH, *_AFTERWARDS, *_MACHINE),
    ),
    "pretrain": (
        "pretrain -c CONFIG.yaml --data.molecules FILE [--option value ...]",
        "Train a backbone on molecules without labels, for --model.from_pretrained.",
        (*_RUN, "data.molecules", "data.smiles_column", "data.root", *_MODEL, *_LENGTH, *_MACHINE),
    ),
    "validate": (
        "validate RUN [--option value ...]",
        "Evaluate a run (its best checkpoint) or a checkpoint file on the validation split.",
        _EVALUATION,
    ),
    "test": (
        "test RUN [--option value ...]",
        "Evaluate a run (its best checkpoint) or a checkpoint file on the test split.",
        _EVALUATION,
    ),
}
_ACTIONS = {
    "help": "Show the most common options and exit.",
    "help-all": "Show all options and exit.",
    "print_config": "Print the resulting configuration and exit.",
}
_OWN = {
    "config": "Configuration: a YAML file or the name of a bundled one; may be repeated. Later "
    "files override earlier ones, options override files.",
    "resume": "Run directory of an interrupted run to continue. No other option is needed; the "
    "result is that of an uninterrupted run.",
}
_PREDICTIONS = "CSV file to write, with the prediction and the label of each molecule."


@dataclass(frozen=True)
class Option:
    """An option: its type as a hint, its default and what it means."""

    hint: Any
    default: Any
    text: str


@dataclass(frozen=True)
class Request:
    """What a command line asks for.

    Attributes:
        config: All options.
        typed: Names of those on the command line itself, such as ``model.norm``.
        name: Stem of the last configuration file, by which runs are named; None without one.
        predictions: File for what an evaluation predicts of each molecule.
    """

    config: FitConfig
    typed: frozenset[str]
    name: str | None
    predictions: str | None = None


def options_of(verb: str) -> dict[str, Option]:
    """Return the options of a verb by their names, without the dashes."""
    found = {name: Option(None, None, text) for name, text in _ACTIONS.items()}
    own = _OWN | ({"predictions": _PREDICTIONS} if verb in ("test", "validate") else {})
    found |= {name: Option(str | None, None, text) for name, text in own.items()}
    for section, cls in {"": FitConfig, **SECTIONS}.items():
        texts, hints = _texts(cls), get_type_hints(cls)
        for field in dataclasses.fields(cls):
            if field.init and field.name not in SECTIONS:
                name = f"{section}.{field.name}" if section else field.name
                found[name] = Option(hints[field.name], field.default, texts[field.name])
    return dict(sorted(found.items()))


def _texts(options: type) -> dict[str, str]:
    """Return what the docstrings of a dataclass, and of its bases, tell about each field."""
    found: dict[str, str] = {}
    for cls in reversed(options.__mro__):
        entries = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[2]
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", entries, re.MULTILINE):
            found[name] = " ".join(text.split())
    return found


def parse(verb: str, words: Sequence[str], defaults: Mapping[str, Any] | None = None) -> Request:
    """Parse the words after a verb.

    Both ``--a-b`` and ``--a_b`` are options.

    Args:
        verb: One of `VERBS`.
        words: Options and configuration files; later files win, and words over files.
        defaults: Values by names as ``data.table``, in place of the defaults.

    Raises:
        ConfigError: An option is unknown, or has a value that cannot be.
        SystemExit: After help or --print_config.
    """
    options = options_of(verb)
    spellings = {name.replace("-", "_"): name for name in options}
    values = dict(defaults or {})
    typed: dict[str, Any] = {}
    stem, print_config, rest = None, False, iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        name = {"-c": "--config", "-o": "--output", "-h": "--help"}.get(name, name)
        if not name.startswith("--"):
            raise ConfigError(f"unexpected argument '{word}': options are given as --name value")
        name = name[2:].replace("-", "_")
        name = spellings.get(name, name)
        if name not in options:
            raise ConfigError(f"unknown option --{name}{_suggest(name, options)}")
        if name == "print_config":
            print_config = True
        elif name in _ACTIONS:
            print(short_help(verb) if name == "help" else long_help(verb))
            sys.exit(0)
        else:
            value = value if equals else next(rest, None)
            if value is None or (not equals and value.startswith("--") and len(value) > 2):
                raise ConfigError(f"--{name} needs a value")
            if name == "config":
                path, content = read_yaml(value)
                values |= _from_file(content, options, str(path))
                stem = path.stem
            else:
                typed[name] = _value(name, value, options[name].hint)
    if verb in ("test", "validate"):
        for name in sorted(typed.keys() - {"seed_everything", "predictions"}):
            if "." not in name:
                raise ConfigError(f"--{name} is for fit, and {verb} ignores it: leave it out")
    predictions = typed.pop("predictions", None)
    values |= {name: value for name, value in typed.items() if name != "resume"}
    config = FitConfig().with_options(values)
    if print_config:
        print(yaml.safe_dump(config.to_plain(), sort_keys=False, allow_unicode=True), end="")
        sys.exit(0)
    return Request(config, frozenset(typed), stem, predictions)


def _from_file(
    content: Mapping[str, Any], options: Mapping[str, Option], file: str
) -> dict[str, Any]:
    found = {
        name: value
        for name, value in flat(content).items()
        if (value or name not in SECTIONS) and not is_gone(name, value)
    }
    for name in found:
        if name in {**_ACTIONS, **_OWN}:
            raise ConfigError(f"{file}: {name} is given on the command line, as --{name}")
        if name not in options:
            raise ConfigError(f"{file}: unknown option {name}{_suggest(name, options)}")
    return found


def _value(name: str, text: str, hint: Any) -> Any:
    """Return a value that was typed: texts as they are, all else as in YAML.

    ``null`` stands for no value, but where a column is named: a column may have that name.
    """
    if text == "" and name != "data.units":
        raise ConfigError(f"--{name} is empty: give a value, or leave it out")
    kinds = str(hint)
    if text == "null" and NoneType in get_args(hint) and not name.endswith(("_column", "_columns")):
        return None
    is_list = "list" in kinds and text.startswith("[") and text.endswith("]")
    if re.search(r"\b(str|Literal)\b", kinds) and "int" not in kinds and not is_list:
        return text
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text  # which is refused by what it must be
    # YAML takes names such as 720 and on for something else.
    as_typed = is_list and "str" in kinds and not all(isinstance(one, str) for one in value)
    return text if as_typed and "int" not in kinds else value


def short_help(verb: str) -> str:
    """Return the help of a verb: a line for each of the options that people use."""
    usage, what, shown = VERBS[verb]
    options = options_of(verb)
    short = {"config": "-c, --config", "output": "-o, --output"}
    lines = [
        (short.get(one, f"--{one}"), _default(options[one]), options[one].text) for one in shown
    ]
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    columns = max(shutil.get_terminal_size((110, 0)).columns, sum(widths) + 36)
    body = []
    for name, default, text in lines:
        sentence = re.split(r"(?<=\.)\s", text, maxsplit=1)[0].removesuffix(".")
        head = f"  {name:<{widths[0]}}  {default:<{widths[1]}}  "
        body.append(fill(sentence, columns, initial_indent=head, subsequent_indent=" " * len(head)))
    return "\n".join(
        [
            f"usage: train.py {usage}\n\n{what}\n",
            *body,
            "\nThese are the defaults; to see the values of a configuration: "
            f"train.py {verb} ... --print_config",
            f"All {len(options)} options, with their types: train.py {verb} --help-all",
        ]
    )


def long_help(verb: str) -> str:
    """Return the help of a verb with all options, their types and defaults."""
    width = shutil.get_terminal_size((100, 0)).columns
    parts = [f"usage: train.py {VERBS[verb][0]}\n\n{VERBS[verb][1]}"]
    for name, option in options_of(verb).items():
        kind = getattr(option.hint, "__name__", str(option.hint).replace("typing.", ""))
        head = f"--{name}" + (f"  {kind}" if option.hint is not None else "")
        default = _default(option)
        head += f", default {default}" if default else ""
        parts.append(
            f"{head}\n{fill(option.text, width, initial_indent='    ', subsequent_indent='    ')}"
        )
    return "\n\n".join(parts)


def _default(option: Option) -> str:
    if option.default is None:
        return ""
    return option.default if isinstance(option.default, str) else json.dumps(option.default)


def require_data(request: Request) -> None:
    """Raise a ConfigError if no data are named, rather than download some."""
    if request.name is None and not any(name.startswith("data.") for name in request.typed):
        raise ConfigError(
            "which data? Give a configuration, for example -c quickstart (there are "
            f"{', '.join(bundled_configs())}), or --data.table FILE"
        )


def _suggest(name: str, names: Collection[str]) -> str:
    """Suggest an option whose last part, or all of it, is the same, or close to it."""
    section, _, end = name.rpartition(".")
    ends = {
        known.rpartition(".")[2]: known
        for known in sorted(names, key=lambda known: known.startswith(section))
    }
    meant = ends.get(end) or _ELSEWHERE.get(end)
    if meant not in names:
        whole = {known.replace(".", "_"): known for known in names}
        meant = ends.get(closest(end, ends, 0.75)) or whole.get(closest(name, whole, 0.9))
    return f" (did you mean '--{meant}'?)" if meant else ""
