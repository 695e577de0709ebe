"""Makes docs/reference/options.md from the parsers of the commands.

python docs/make_reference.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

from graphormer_sepnorm.cli import predict, train
from graphormer_sepnorm.cli.options import make_parser

PAGE = Path(__file__).parent / "reference" / "options.md"
HEAD = """\
# Commands and options

Made by `python docs/make_reference.py` from the parsers. Both spellings of an option, `--a-b` and
`--a_b`, work. A user error is one line on stderr and exit status 2; `--debug` shows its traceback.
`train.py test`, `validate` and `pretrain` take the options of `train.py fit` that concern them.
"""
GROUPS = {
    "": "General",
    "data": "Data: `--data.`",
    "model": "Network and optimizer: `--model.`",
    "trainer": "Trainer: `--trainer.`",
}
COMMANDS: dict[str, tuple[Callable[[list[str]], int], list[str]]] = {
    "train.py crossvalidate": (train.main, ["crossvalidate"]),
    "train.py compare": (train.main, ["compare"]),
    "predict.py": (predict.main, []),
    "predict.py info": (predict.main, ["info"]),
    "predict.py embed": (predict.main, ["embed"]),
    "predict.py explain": (predict.main, ["explain"]),
}
Rows = dict[str, list[str]]  # of options by their group


def parser_of(command: Callable[[list[str]], int], words: list[str]) -> argparse.ArgumentParser:
    """Return the parser that a command asks for help."""
    found: list[argparse.ArgumentParser] = []
    show = patch.object(argparse.ArgumentParser, "print_help", lambda self, *_: found.append(self))
    with show, suppress(SystemExit):
        command([*words, "--help"])
    return found[0]


def rows_of(parser: argparse.ArgumentParser) -> Rows:
    """Return the rows of a table of options: name, default, meaning."""
    rows: Rows = {}
    for action in parser._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        hidden = ("--help", "--help-all", "--print_config", "--debug", "--version")
        if not action.help or (names[:1] and names[0] in (*hidden, *(f"--{g}" for g in GROUPS))):
            continue
        group, dot, name = action.dest.partition(".")
        if not dot:
            group, name = "", names[0] if names else str(action.metavar or action.dest)
        empty = action.default in (None, "", argparse.SUPPRESS, [])
        default = "" if empty or isinstance(action.default, bool) else f"`{action.default}`"
        meaning = " ".join(action.help.split()).replace("|", "\\|").replace("%%", "%")
        rows.setdefault(group, []).append(f"| `{name}` | {default} | {meaning} |")
    return rows


def table(rows: list[str]) -> str:
    """Return a table of options."""
    return "\n".join(["| option | default | meaning |", "| --- | --- | --- |", *rows])


def page() -> str:
    """Return the page."""
    fit = rows_of(make_parser("fit"))
    parts = [HEAD, "## train.py fit\n"]
    parts += [f"### {title}\n\n{table(fit[group])}\n" for group, title in GROUPS.items()]
    for name, (command, words) in COMMANDS.items():
        rows = rows_of(parser_of(command, words))[""]
        parts.append(f"## {name}\n\n{table(rows)}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
