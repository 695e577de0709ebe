"""From the words of a command line, and configuration files, to a `FitConfig`; and the help.

jsonargparse over the dataclasses of config.py: names, types, defaults and texts stand there.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import jsonargparse

from graphormer_sepnorm.cli.configs import resolve_config
from graphormer_sepnorm.config import SECTIONS, FitConfig, ModelConfig
from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.model.config import REGULARISATION, GraphormerConfig
from graphormer_sepnorm.resources import config_names

ALL = "--help-all"
_AS_TYPED = "\ue000"  # before a text that is not for YAML to read
# What options are called elsewhere.
_ELSEWHERE = {
    "lr": "model.learning_rate",
    "wd": "model.weight_decay",
    "hidden_size": "model.width",
    "hidden_dim": "model.width",
    "num_layers": "model.layers",
    "num_heads": "model.heads",
    "epochs": "trainer.max_epochs",
    "gpus": "trainer.devices",
    "seed": "seed_everything",
    "target": "data.target_columns",
    "targets": "data.target_columns",
}
# Verb -> its usage, what it does, and the options that --help shows.
_RUN = ("config", "output", "resume", "seed_everything")
_DATA = ("data.table", "data.target_columns", "data.split", "data.dataset", "data.root")
_MODEL = ("model.norm", "model.layers", "model.width", "model.heads", "model.dropout")
_LENGTH = ("trainer.max_epochs", "model.learning_rate")
_AFTERWARDS = ("early_stopping", "ensemble", "baselines", "blend")
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
_TRAINING_ALONE = (  # of which an evaluation takes no notice
    *(name for name in FitConfig.names() if name not in (*SECTIONS, "seed_everything")),
    "resume",
)


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


def parse(verb: str, words: Sequence[str], defaults: Mapping[str, Any] | None = None) -> Request:
    """Parse the words after a verb.

    Args:
        verb: One of `VERBS`.
        words: Options and configuration files; later files win, and words over files.
        defaults: Values by names as ``data.table``, in place of the defaults.

    Raises:
        ConfigError: An option is unknown, or has a value that cannot be.
        SystemExit: After help or --print_config.
    """
    parser = make_parser(verb)
    names = option_names(parser)
    parser.set_defaults({k: v for k, v in (defaults or {}).items() if k in names})
    given, typed, stem = _normalized(words, parser)
    if verb in ("test", "validate"):
        for name in sorted(typed & {*_TRAINING_ALONE}):
            raise ConfigError(
                f"--{name} is for fit, and {verb} takes no notice of it: leave it out"
            )
    try:
        found = _unmarked(parser.parse_args(given).as_dict())
    except argparse.ArgumentError as error:
        raise ConfigError(_one_line(str(error), names)) from error
    if found.get("resume") is not None:
        raise ConfigError(
            f"resume: {found['resume']} stands in a configuration file, which does not continue a "
            "run: take it out, and give --resume on the command line"
        )
    own = {name: found[name] for name in (*FitConfig.names(),) if name in found}
    predictions = found.get("predictions")
    return Request(FitConfig.from_plain(own), frozenset(typed), stem, predictions)


def make_parser(verb: str) -> jsonargparse.ArgumentParser:
    """Return the parser of a verb: the options of `FitConfig`, and its own."""
    parser = _Parser(verb)
    parser.add_argument(ALL, action=_HelpAll, help="Show all options and exit.")
    parser.add_argument("-c", "--config", action="config", help="YAML file of options.")
    parser.add_argument(
        "--resume",
        type=str | None,
        default=None,
        help="Run directory to continue in, whatever ended the run; no other option is needed, and "
        "the result is that of a run never interrupted.",
    )
    if verb in ("test", "validate"):
        parser.add_argument(
            "--predictions",
            type=str | None,
            default=None,
            help="CSV file for what is predicted of each molecule of the split, beside its label.",
        )
    parser.add_class_arguments(FitConfig, skip={*SECTIONS}, as_group=False)
    for section, options in SECTIONS.items():
        parser.add_class_arguments(options, section)
    texts = _texts(FitConfig) | {
        f"{section}.{name}": text
        for section, options in SECTIONS.items()
        for name, text in _texts(options).items()
    }
    for action in parser._actions:
        if action.dest in texts:
            action.help = texts[action.dest]
    return parser


class _Parser(jsonargparse.ArgumentParser):
    def __init__(self, verb: str) -> None:
        super().__init__(prog=f"train.py {verb}", exit_on_error=False, allow_abbrev=False)
        self.verb = verb

    def print_help(self, file: Any = None) -> None:
        """Show the options that people use."""
        self._print_message(short_help(self), file or sys.stdout)

    def print_help_all(self) -> None:
        """Show all options, as jsonargparse does."""
        super().print_help()


class _HelpAll(argparse._HelpAction):
    def __call__(self, parser: Any, *_: Any) -> None:
        parser.print_help_all()
        parser.exit()


def short_help(parser: _Parser) -> str:
    """Return the help of a verb: a line for each of the options that people use."""
    usage, what, shown = VERBS[parser.verb]
    actions = {name: action for action in parser._actions for name in action.option_strings}
    rows = [(f"--{name}", actions[f"--{name}"]) for name in shown]
    lines = [(name, _as_typed(action.default), action.help or "") for name, action in rows]
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    room = shutil.get_terminal_size((110, 0)).columns - sum(widths) - 6
    body = [
        f"  {name:<{widths[0]}}  {default:<{widths[1]}}  {_first_sentence(text, room)}"
        for name, default, text in lines
    ]
    count = sum(name.startswith("--") for name in actions)
    return "\n".join(
        [
            f"usage: train.py {usage}\n\n{what}\n",
            *body,
            "\nDefaults without a configuration; what holds with one: "
            f"train.py {parser.verb} ... --print_config",
            f"All {count} options, with their types: train.py {parser.verb} {ALL}\n",
        ]
    )


def _as_typed(default: Any) -> str:
    if default is None or default is argparse.SUPPRESS:
        return ""
    return default if isinstance(default, str) else json.dumps(default)


def _first_sentence(text: str, room: int) -> str:
    sentence = re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]
    return shorten(sentence.removesuffix("."), max(room, 30), placeholder=" ...")


def _texts(options: type) -> dict[str, str]:
    """Return what the docstrings of a dataclass, and of its bases, say of each field."""
    from docstring_parser import parse

    metrics = ", ".join(one.name for one in METRICS.values() if one.kind)
    found: dict[str, str] = {}
    for cls in reversed(options.__mro__):
        for one in parse(cls.__dict__.get("__doc__") or "").params:
            found[one.arg_name] = " ".join((one.description or "").split())
    return {name: text.replace("{metrics}", metrics) for name, text in found.items()}


def option_names(parser: jsonargparse.ArgumentParser) -> list[str]:
    """Return the names of all options of a verb, without the dashes."""
    names = {name for action in parser._actions for name in action.option_strings}
    return sorted(name.removeprefix("--") for name in names if name.startswith("--"))


def _normalized(
    words: Sequence[str], parser: jsonargparse.ArgumentParser
) -> tuple[list[str], set[str], str | None]:
    """Return the words as the parser takes them, the names of their options, and the file's stem.

    Files come first, so that words win wherever they stand. Both ``--a-b`` and ``--a_b`` are
    options. Text arrives as it was typed, where YAML would take it for something else.
    """
    actions = {name: action for action in parser._actions for name in action.option_strings}
    files, given, typed, stem = list[str](), list[str](), set[str](), None
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        name = {"-c": "--config", "-o": "--output"}.get(name, name)
        if name.startswith("--") and name not in actions:
            name = "--" + name[2:].replace("-", "_")
        action = actions.get(name)
        if action is None or action.nargs == 0 or name == "--print_config":
            given.append(f"{name}{equals}{value}" if action else word)
            continue
        if not equals:
            following = next(rest, None)
            if following is None or (following.startswith("--") and len(following) > 2):
                raise ConfigError(f"{name} needs a value")
            value = following
        if name == "--config":
            files.append(f"--config={resolve_config(value)}")
            stem = Path(resolve_config(value)).stem
            continue
        typed.add(action.dest)
        given.append(f"{name}={_as_text(name, value, action)}")
    return [*files, *given], typed, stem


def _as_text(name: str, value: str, action: argparse.Action) -> str:
    """Mark a text, which YAML might read as a comment, nothing or a list.

    ``null`` stands for no value, but where a column is named: a column may have that name.
    """
    kind = str(getattr(action, "_typehint", ""))
    if not re.search(r"\bstr\b", kind) or re.search(r"\b(int|Literal)\b", kind):
        return value
    columns = name.endswith(("_column", "_columns", "_columns+"))
    if value == "" and not name.startswith("--data.units"):
        raise ConfigError(f"{name} is empty: give a value, or leave it out")
    if "None" not in kind or (value == "null" and not columns):
        return value
    is_list = value.startswith("[") and value.endswith("]")
    return value if is_list else f"{_AS_TYPED}{value}"


def _unmarked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _unmarked(one) for name, one in value.items()}
    return value.removeprefix(_AS_TYPED) if isinstance(value, str) else value


def require_data(request: Request) -> None:
    """Raise a ConfigError if nothing says which data, rather than download some."""
    if request.name is None and not any(name.startswith("data.") for name in request.typed):
        raise ConfigError(
            "which data? Give a configuration, for example -c quickstart (there are "
            f"{', '.join(config_names())}), or --data.table FILE"
        )


def refuse_shape(request: Request) -> None:
    """Raise a ConfigError for typed options of a shape that a pre-trained network decides.

    In a configuration they have no effect; who types one means it.
    """
    backbone = request.config.model.from_pretrained
    shape = {f"model.{name}" for name in {*GraphormerConfig.names()} - {*REGULARISATION}}
    shape &= {f"model.{name}" for name in ModelConfig.names()}
    if backbone and (named := sorted(shape & request.typed)):
        raise ConfigError(
            f"--{named[0]} is decided by the pre-trained network {backbone}: leave it out, or give "
            "--model.from_pretrained null"
        )


def _one_line(message: str, names: Collection[str]) -> str:
    message = " ".join(message.split())
    if unknown := re.search(r"unrecognized arguments: (\S+)", message):
        word = unknown[1]
        if not word.startswith("-"):
            return f"unexpected argument '{word}': options are given as --name value"
        name = word.lstrip("-").partition("=")[0]
        return f"unknown option --{name}{_suggest(name, names)}"
    if key := re.search(r"does not accept option '([\w.]+)'", message):  # in a configuration file
        return f"unknown option {key[1]} in a configuration{_suggest(key[1], names)}"
    if value := re.fullmatch(r'(?:Parser|Validation).*?key "([\w.]+)": (.*)', message):
        return f"--{value[1]}{_expected(value[2])}"
    return message


def _expected(message: str) -> str:
    """Say in our words which kind of value jsonargparse did not get."""
    given = re.search(r"(?:Given|Got) value: (.*)", message)
    if given is None:
        return f": {message}"
    literal = re.findall(r"'([^']+)'", message.partition("iteral[")[2].partition("]")[0])
    kinds = {"int": "a whole number", "float": "a number", "bool": "true or false"}
    named = [word for kind, word in kinds.items() if f"class '{kind}'" in message]
    wanted = literal or named or ["another kind of value"]
    close = did_you_mean(given[1], literal) if literal else ""
    return f" is {given[1]}{close}: it must be {' or '.join(wanted)}"


def _suggest(name: str, names: Collection[str]) -> str:
    """Suggest an option; one whose last part is the same, such as model.norm for norm, first."""
    end = name.rpartition(".")[2]
    same_end = [known for known in names if known.rpartition(".")[2] == end]
    if not same_end and _ELSEWHERE.get(end) in names:
        same_end = [_ELSEWHERE[end]]
    suggestion = f" (did you mean '{same_end[0]}'?)" if same_end else did_you_mean(name, names)
    return suggestion.replace("'", "'--", 1) if suggestion else ""
