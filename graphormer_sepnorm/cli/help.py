"""``--help`` of fit, validate and test: the options that people use; ``--help-all``: all of them.

Options are named here; their defaults and texts are the parser's, but for a few of Lightning's.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from textwrap import shorten
from typing import Any

from lightning.pytorch.cli import LightningArgumentParser

ALL = "--help-all"

_DATA = ("data.table", "data.target_columns", "data.split", "data.dataset", "data.root")
_MACHINE = ("data.batch_size", "trainer.accelerator", "trainer.devices", "trainer.precision")
_EVALUATION = {"run": ("ckpt_path", "predictions", "config"), "data": _DATA, "machine": _MACHINE}
# Verb -> group -> options, in the order in which they are shown.
SHOWN: dict[str, dict[str, tuple[str, ...]]] = {
    "fit": {
        "run": ("config", "output", "resume", "seed_everything"),
        "data": _DATA,
        "model": ("model.norm", "model.layers", "model.width", "model.heads", "model.dropout"),
        "training": (
            "trainer.max_epochs",
            "model.learning_rate",
            "early_stopping",
            "ensemble",
            "baselines",
            "blend",
        ),
        "machine": _MACHINE,
    },
    "pretrain": {
        "run": ("config", "output", "resume", "seed_everything"),
        "data": ("data.molecules", "data.smiles_column", "data.root"),
        "model": ("model.norm", "model.layers", "model.width", "model.heads", "model.dropout"),
        "training": ("trainer.max_epochs", "model.learning_rate"),
        "machine": _MACHINE,
    },
    "validate": _EVALUATION,
    "test": _EVALUATION,
}

# Lightning's texts name much that this package does not take.
_TEXTS = {
    "ckpt_path": "A run directory (its best checkpoint) or a checkpoint file",
    "trainer.max_epochs": "Epochs to train for",
    "trainer.accelerator": "auto (a GPU with CUDA if there is one), gpu or cpu",
    "trainer.devices": "auto, or how many processes or GPUs train together",
    "trainer.precision": "32-true, bf16-mixed or 16-mixed",
}
_HEAD = {
    "fit": "usage: train.py fit -c CONFIG.yaml [--option value ...]\n\n"
    "Train a model, then test its best checkpoint.",
    "pretrain": "usage: train.py pretrain -c CONFIG.yaml --data.molecules FILE [--option value ...]"
    "\n\nTrain a backbone on molecules without labels, for --model.from_pretrained.",
    "validate": "usage: train.py validate --ckpt_path RUN [--option value ...]\n\n"
    "Evaluate a checkpoint on the validation split.",
    "test": "usage: train.py test --ckpt_path RUN [--option value ...]\n\n"
    "Evaluate a checkpoint on the test split.",
}
_FOOT = """
Defaults without a configuration; what holds with one: train.py {verb} ... --print_config
All {count} options, with their types: train.py {verb} {all}"""
# Columns of a terminal that is none, a file for example.
_WIDTH = 110


class VerbParser(LightningArgumentParser):
    """The parser of a verb, whose ``--help`` is short.

    Args:
        verb: Its name; None: this is the parser of the whole command, or of a class.
        options: Those of `LightningArgumentParser`.
    """

    def __init__(self, *, verb: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.verb = verb
        if verb is not None:
            self.add_argument(ALL, action=_HelpAll, help="Show all options and exit.")

    def print_help(self, file: Any = None) -> None:
        """Show the options that people use."""
        if self.verb is None:
            self.print_help_all(file)
        else:
            self._print_message(short_help(self, self.verb), file or sys.stdout)

    def print_help_all(self, file: Any = None) -> None:
        """Show all options, as jsonargparse does."""
        super().print_help(file)


class _HelpAll(argparse._HelpAction):
    def __call__(self, parser: Any, *_: Any) -> None:
        parser.print_help_all()
        parser.exit()


def short_help(parser: LightningArgumentParser, verb: str) -> str:
    """Return the help of a verb: a line for each of the options in `SHOWN`."""
    actions = {name: action for action in parser._actions for name in action.option_strings}
    lines = [
        (
            group,
            f"--{name}",
            _plain(actions[f"--{name}"].default),
            _TEXTS.get(name, actions[f"--{name}"].help or ""),
        )
        for group, names in SHOWN[verb].items()
        for name in names
    ]
    widths = [max(len(line[column]) for line in lines) for column in (1, 2)]
    room = shutil.get_terminal_size((_WIDTH, 0)).columns - sum(widths) - 6
    text, last = [_HEAD[verb]], ""
    for group, option, default, said in lines:
        if group != last:
            text.append(f"\n{group}:")
        last = group
        text.append(f"  {option:<{widths[0]}}  {default:<{widths[1]}}  {_first(said, room)}")
    count = sum(name.startswith("--") for name in actions)
    return "\n".join([*text, _FOOT.format(verb=verb, count=count, all=ALL), ""])


def _plain(default: Any) -> str:
    """Return a default as it would be typed; nothing where there is none."""
    if default is None or default is argparse.SUPPRESS:
        return ""
    return default if isinstance(default, str) else json.dumps(default)


def _first(said: str, room: int) -> str:
    """Return the first sentence of a text, or what of it there is room for."""
    sentence = re.split(r"(?<=\.)\s", " ".join(said.split()), maxsplit=1)[0]
    return shorten(sentence.removesuffix("."), max(room, 30), placeholder=" ...")
