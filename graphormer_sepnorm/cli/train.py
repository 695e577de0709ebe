"""The command `train.py`: its verbs, and everything that can be answered without Lightning."""

from __future__ import annotations

import sys

from graphormer_sepnorm.cli.compare import compare
from graphormer_sepnorm.cli.main import run
from graphormer_sepnorm.cli.results import results
from graphormer_sepnorm.compare.process_lifetime import end_with_the_command
from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.process import name_and_version

VERBS = {
    "fit": "train a model, then test its best checkpoint",
    "validate": "evaluate a checkpoint on the validation split",
    "test": "evaluate a checkpoint on the test split",
    "pretrain": "train a backbone on molecules without labels, for --model.from_pretrained",
    "compare": "train several arms with several seeds and report what differs",
    "results": "make the table of a project's results from run directories",
}
# Not methods of Lightning's Trainer, as the others are.
OWN_VERBS = {"compare": compare, "results": results}
# Short for another verb with options.
SHORT_VERBS = {"pretrain": ["fit", "--data.dataset", "pretraining"]}

HELP = """\
usage: train.py [--help] [--version] [--debug] VERB [-c CONFIG.yaml] [--option value ...]

Train and evaluate Graphormer with SepNorm on molecules.

verbs:
{verbs}

examples:
  train.py fit -c configs/quickstart.yaml          a few minutes on two CPU cores, no download
  train.py fit -c configs/zinc_subset.yaml --data.root DIR --model.norm sepnorm
  train.py test --ckpt_path RUN                    a run directory means its best checkpoint
  train.py fit --resume RUN                        continue a run that was interrupted
  train.py compare -c configs/quickstart.yaml --arms sharenorm,sepnorm -o DIR
  train.py results RUN DIR                         add runs to the table results.md

`train.py VERB --help` lists all options; --debug shows the traceback of an error.
Configurations that are shipped are found by name: {configs}
"""


def main(argv: list[str] | None = None) -> int:
    """Run `train.py`; return the exit status.

    Args:
        argv: Arguments; those of the process if None.
    """
    end_with_the_command()
    return run("train.py", _train, argv)


def _train(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help(), end="")
        return 0
    if arguments[0] == "--version":
        print(name_and_version())
        return 0
    verb = arguments[0]
    if verb not in VERBS:
        raise ConfigError(
            f"unknown verb '{verb}'{did_you_mean(verb, VERBS)}: use {', '.join(VERBS)}; "
            "see train.py --help"
        )
    if verb in OWN_VERBS:
        return OWN_VERBS[verb](arguments[1:])
    arguments = [*SHORT_VERBS.get(verb, [verb]), *arguments[1:]]
    from graphormer_sepnorm.cli.known_warnings import silence_known_noise

    silence_known_noise()
    from graphormer_sepnorm.cli.lightning_cli import run_verb

    run_verb(arguments)
    return 0


def _help() -> str:
    from graphormer_sepnorm.resources import config_names

    verbs = "\n".join(f"  {name:<10}{text}" for name, text in VERBS.items())
    return HELP.format(verbs=verbs, configs=", ".join(config_names()))


if __name__ == "__main__":
    sys.exit(main())
