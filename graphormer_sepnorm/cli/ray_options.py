"""predict.py on many machines: its options, and `--engine ray`."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from graphormer_sepnorm.cli.main import Interrupted, check_least
from graphormer_sepnorm.cli.table_verbs import (
    finished,
    limits_of,
)
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.process import command

if TYPE_CHECKING:
    from graphormer_sepnorm.inference.predictor import Predictor

# Options -> what they are where they are not given.
_OF_RAY = {
    "num_actors": None,
    "address": None,
    "id_column": None,
    "top": None,
    "by": None,
    "lowest": False,
}
_DEVICES = (None, "cpu", "cuda")
_NOT_OF_RAY = ("sheet", "header_row", "evaluate", "jobs", "shard", "input_format", "output_format")


def add_ray(parser: argparse._ActionsContainer) -> None:
    """Add what divides a table or a library among machines."""
    add = parser.add_argument
    add("--shard", metavar="K/N", help="predict part K of N of a table only")
    add(
        "--engine",
        choices=("processes", "ray"),
        default="processes",
        help="ray: -i is a folder or a pattern of Parquet or CSV files, -o a folder",
    )
    add("--num_actors", type=int, metavar="N", help="that predict (one per GPU, else per CPU)")
    add("--address", help="of a running Ray cluster, auto finds it; default: start one here")
    add(
        "--id_column", metavar="NAME", help="with another value in each row; CSV needs it to resume"
    )
    add("--top", type=int, metavar="N", help="keep the N highest rows only")
    add("--by", metavar="COLUMN", help="by which they are chosen; default: the first pred_")
    add("--lowest", action="store_true", help="keep the lowest rows instead")


def check_ray(options: argparse.Namespace) -> None:
    """Raise a ConfigError for options of the other engine, and for those that are missing."""
    if options.engine != "ray":
        for name, default in _OF_RAY.items():
            if getattr(options, name) != default:
                raise ConfigError(f"--{name} is for --engine ray")
        return
    if options.input in (None, "-") or options.output == "-":
        raise ConfigError("--engine ray reads files and writes a folder: give -i DIR -o DIR")
    for name in _NOT_OF_RAY:
        if getattr(options, name):
            raise ConfigError(f"--{name} is not for --engine ray: leave it out")
    if options.device not in _DEVICES:
        raise ConfigError(
            f"--engine ray takes --device cpu or cuda, not {options.device}: which GPU an actor "
            "gets Ray decides"
        )
    check_least(options, {"num_actors": 1, "top": 1})
    if options.top is None and (options.by or options.lowest):
        raise ConfigError("--by and --lowest say which rows --top N keeps: give that too")
    if options.top is not None and options.resume:
        raise ConfigError("--top keeps nothing to continue from: leave --resume out")


def predict_by_ray(
    options: argparse.Namespace, arguments: list[str], load: Callable[[str], Predictor]
) -> int:
    """Predict a library; return the exit status.

    `load` gives the model on a device, ready for what is asked of it.
    """
    from graphormer_sepnorm.inference.checkpoint import find_checkpoint
    from graphormer_sepnorm.inference.ray_cluster import load_ray
    from graphormer_sepnorm.inference.ray_engine import (
        RayJob,
        check_places,
        is_continuable,
        predict_library,
    )
    from graphormer_sepnorm.inference.table_job import Outcome, TableJob

    job = TableJob(
        source=options.input,
        destination=options.output.rstrip("/"),
        smiles_column=options.smiles_column,
        output_format="parquet",
        resume=options.resume,
        overwrite=options.overwrite,
        quiet=options.quiet,
        asked=json.dumps(options.asked) if options.asked else "",
        **limits_of(options),
    )
    load_ray()
    check_places(job)
    predictor = load("cpu")
    of_ray = RayJob(
        job,
        find_checkpoint(options.model).absolute(),
        options.device,
        options.num_actors,
        options.address,
        options.id_column,
        options.top,
        options.by,
        options.lowest,
    )
    outcome = Outcome()
    started = time.monotonic()
    try:
        predict_library(predictor, of_ray, outcome)
    except KeyboardInterrupt:
        if not job.partial.exists():
            raise
        if not is_continuable(job):
            raise Interrupted(
                "interrupted; CSV whose rows no --id_column tells apart cannot be continued: begin "
                "anew with --overwrite"
            ) from None
        again = shlex.join(word for word in arguments if word != "--resume")
        raise Interrupted(
            f"interrupted: {job.partial} holds what is done; continue with: "
            f"{command('predict')} {again} --resume"
        ) from None
    return finished(job, outcome, started)
