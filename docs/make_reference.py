"""Makes docs/reference/options.md from the parsers of the commands.

python docs/make_reference.py
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

from graphormer_sepnorm.cli import predict, train
from graphormer_sepnorm.cli.options import options_of

PAGE = Path(__file__).parent / "reference" / "options.md"
HEAD = """\
# Commands and options

Made by `python docs/make_reference.py` from the parsers. Both spellings of an option, `--a-b` and
`--a_b`, work. A user error is one line on stderr and exit status 2; `--debug` shows its traceback.
`train.py test`, `validate` and `pretrain` take the options of `train.py fit` that concern them;
`test` and `validate` also take `--predictions FILE.csv`, to write each molecule's prediction.
"""
GROUPS = {
    "": "General",
    "data": "Data: `--data.`",
    "model": "Network and optimizer: `--model.`",
    "trainer": "Trainer: `--trainer.`",
}
COMMANDS = (
    *("train.py crossvalidate", "train.py pool", "train.py compare"),
    *("predict.py", "predict.py info", "predict.py embed", "predict.py explain"),
)


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser that a command asks for help."""
    program, *words = command.split()
    found: list[argparse.ArgumentParser] = []
    show = patch.object(argparse.ArgumentParser, "print_help", lambda self, *_: found.append(self))
    with show, suppress(SystemExit):
        {"train.py": train, "predict.py": predict}[program].main([*words, "--help"])
    return found[0]


def fit_rows() -> dict[str, list[str]]:
    """Return the rows of a table of the options of ``train.py fit``, by group."""
    rows: dict[str, list[str]] = {}
    for name, option in options_of("fit").items():
        group, _, short = name.rpartition(".")
        if option.hint is not None:  # help and its kind
            shown = short if group else f"--{name}"
            rows.setdefault(group, []).append(row(shown, option.default, option.text))
    return rows


def rows_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the rows of a table of options."""
    rows = []
    for action in parser._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        if action.help and names[:1] not in (["--help"], ["--debug"], ["--version"]):
            name = names[0] if names else str(action.metavar or action.dest)
            rows.append(row(name, action.default, action.help.replace("%%", "%")))
    return rows


def row(name: str, default: object, meaning: str) -> str:
    """Return the row of an option: name, default, meaning."""
    empty = default is False or default in (None, "", argparse.SUPPRESS, [])
    text = " ".join(meaning.split()).replace("|", "\\|")
    return f"| `{name}` | {'' if empty else f'`{default}`'} | {text} |"


def table(rows: list[str]) -> str:
    """Return a table of options."""
    return "\n".join(["| option | default | meaning |", "| --- | --- | --- |", *rows])


def page() -> str:
    """Return the page."""
    fit = fit_rows()
    parts = [HEAD, "## train.py fit\n"]
    parts += [f"### {title}\n\n{table(fit[group])}\n" for group, title in GROUPS.items()]
    parts += [f"## {name}\n\n{table(rows_of(parser_of(name)))}\n" for name in COMMANDS]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
