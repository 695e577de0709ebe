"""The command `train.py`: its subcommands, and what can be answered without Lightning."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from graphormer_sepnorm import __version__
from graphormer_sepnorm.cli.compare import compare, crossvalidate, pool
from graphormer_sepnorm.cli.fit import evaluate, fit
from graphormer_sepnorm.cli.main import run
from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.process import end_with_the_command

# Verb -> its line in --help, and what runs it: takes the words after it, may return an exit status.
VERBS: dict[str, tuple[str, Callable[[list[str]], int | None]]] = {
    "fit": ("train a model, then test its best checkpoint", fit),
    "validate": ("evaluate a run on the validation split", partial(evaluate, "validate")),
    "test": ("evaluate a run on the test split", partial(evaluate, "test")),
    "pretrain": (
        "train a backbone on molecules without labels, for --model.from_pretrained",
        partial(fit, verb="pretrain"),
    ),
    "crossvalidate": ("train on every fold of your own table", crossvalidate),
    "compare": ("train several arms with several seeds and report what differs", compare),
    "pool": ("pool the results of several comparisons", pool),
}

HELP = """\
usage: train.py [--help] [--version] [--debug] SUBCOMMAND [-c CONFIG.yaml] [--option value ...]

Train and evaluate Graphormer with SepNorm on molecules.

subcommands:
{subcommands}

examples:
  train.py fit -c configs/quickstart.yaml          a few minutes on two CPU cores, no download
  train.py fit -c configs/zinc_subset.yaml --data.root DIR --model.norm sepnorm
  train.py test RUN                                a run directory means its best checkpoint
  train.py fit --resume RUN                        continue a run that was interrupted
  train.py crossvalidate -c table_regression --data.table FILE --folds 5 -o DIR
  train.py compare -c configs/quickstart.yaml --arms sharenorm,sepnorm -o DIR

`train.py SUBCOMMAND --help` explains one, `fit --help-all` all options; --debug shows the traceback
of an error.
Configurations that are shipped are found by name: {configs}
"""


def main(argv: list[str] | None = None) -> int:
    """Run `train.py` with these arguments (those of the process if None); return the status."""
    end_with_the_command()
    return run("train.py", _train, argv, unread=True)


def _train(arguments: list[str]) -> int | None:
    if not arguments or arguments[0] in ("-h", "--help"):
        from graphormer_sepnorm.resources import bundled_configs

        width = max(map(len, VERBS)) + 2
        subcommands = "\n".join(f"  {name:<{width}}{text}" for name, (text, _) in VERBS.items())
        print(HELP.format(subcommands=subcommands, configs=", ".join(bundled_configs())), end="")
        return 0
    if arguments[0] == "--version":
        print(f"graphormer_sepnorm {__version__}")
        return 0
    verb = arguments[0]
    if verb in ("predict", "info", "embed", "explain"):
        raise ConfigError(f"'{verb}' is done by predict.py, see its --help")
    if verb.startswith("-"):
        guess = did_you_mean(verb, ("--help", "--version"))
        raise ConfigError(f"unknown option {verb}{guess}: first comes the subcommand, see --help")
    if verb not in VERBS:
        raise ConfigError(
            f"unknown subcommand '{verb}'{did_you_mean(verb, VERBS)}: use {', '.join(VERBS)}; "
            "see train.py --help"
        )
    return VERBS[verb][1](arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
