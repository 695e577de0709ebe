"""The command `predict.py`: a checkpoint and SMILES in, a table of predicted values out."""

from __future__ import annotations

import argparse
import csv
import sys

from graphormer_sepnorm.cli.main import run


def main(argv: list[str] | None = None) -> int:
    """Run `predict.py` with these arguments (those of the process if None)."""
    return run("predict.py", _predict, argv)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="predict.py",
        description="Predict molecular properties from SMILES. Writes CSV to standard output: one "
        "row per SMILES, in the order given, with the reason where there is no value.",
        epilog='example: predict.py runs/quickstart/bn+ln-seed0 "CCO" "c1ccccc1O"',
    )
    parser.add_argument("checkpoint", help="a checkpoint file, or a run directory (its best one)")
    parser.add_argument("smiles", nargs="+", help="molecules, one argument each")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 ...; a GPU is used if there is one")
    return parser


def _predict(arguments: list[str]) -> None:
    options = _parser().parse_args(arguments)
    from graphormer_sepnorm.inference.predictor import Predictor

    predictor = Predictor.load(options.checkpoint, options.device)
    predictions = predictor.predict(options.smiles)
    columns = [
        f"{target} ({unit})" if unit else target
        for target, unit in zip(predictor.task.targets, predictor.task.units, strict=True)
    ]
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["smiles", *columns, "error"])
    rows = zip(predictions.smiles, predictions.values, predictions.errors, strict=True)
    for smiles, values, error in rows:
        shown = ["" if error else f"{value:.4f}" for value in values]
        table.writerow([smiles, *shown, error])


if __name__ == "__main__":
    sys.exit(main())
