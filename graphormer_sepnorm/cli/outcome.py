"""What is done and printed when training or evaluation has ended."""

from __future__ import annotations

import logging
import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphormer_sepnorm.cli.main import Interrupted
from graphormer_sepnorm.cli.predictions_file import write_test_predictions
from graphormer_sepnorm.datasets.data_report import DataReport
from graphormer_sepnorm.errors import GraphormerError
from graphormer_sepnorm.files import write_json
from graphormer_sepnorm.inference.checkpoint import BEST, KEY, LAST, read_checkpoint
from graphormer_sepnorm.model.summary import count_parameters
from graphormer_sepnorm.program import command
from graphormer_sepnorm.training.report import METRIC_NAMES, format_table, units
from graphormer_sepnorm.training.run_record import RunRecord
from graphormer_sepnorm.training.throughput import Throughput

if TYPE_CHECKING:
    from graphormer_sepnorm.cli.lightning_cli import TrainCLI
    from graphormer_sepnorm.datasets.baselines import Baseline

log = logging.getLogger(__name__)


def report_data(report: DataReport, directory: Path) -> None:
    """Print the report on a user's table and keep it in the run directory.

    Beside it go the split of every row and the rows that cannot be used, with reasons.
    """
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(f"\n{report.text(unicode=unicode)}", flush=True)
    write_json(directory / "data_report.json", report.to_plain())
    report.write_splits(directory / "splits.csv")
    if report.invalid:
        path = directory / "invalid_rows.csv"
        report.write_invalid(path)
        print(f"rows that are left out, with reasons: {path}", flush=True)
    print()


def report_evaluation(cli: TrainCLI, split: str, checkpoint: str) -> None:
    """Evaluate a checkpoint and print its metrics.

    Args:
        cli: The command.
        split: ``validation`` or ``test``.
        checkpoint: Checkpoint file.
    """
    evaluate = cli.trainer.validate if split == "validation" else cli.trainer.test
    values = evaluate(
        cli.model, datamodule=cli.datamodule, ckpt_path=checkpoint, verbose=False, weights_only=True
    )[0]
    if cli.trainer.is_global_zero:
        print(f"checkpoint  {checkpoint}")
        print(format_table([(name, f"{value:.6g}") for name, value in values.items()]))


def report_fit(cli: TrainCLI, run_directory: Path) -> None:
    """Test the best checkpoint of a finished run; print the table and keep what came out.

    ``summary.json`` has the numbers, ``test_predictions.csv`` each molecule.

    Raises:
        Interrupted: During the baselines; all else has been kept and printed.
    """
    trainer: Any = cli.trainer
    module = cli.model
    if trainer.fast_dev_run:
        return
    folder = run_directory / "checkpoints"
    best = next((folder / name for name in (BEST, LAST) if (folder / name).is_file()), None)
    if best is None:
        print("no checkpoint was written: training took no step")
        return
    metric = module.task.metric
    epochs, steps = trainer.current_epoch, trainer.global_step
    checkpoint = read_checkpoint(best)
    best_value = checkpoint[KEY]["validation"].get(f"validation_{metric}", math.nan)
    # Not by `ckpt_path`: Lightning would set the callbacks back too, and with them metrics.csv and
    # the time that was measured.
    module.load_state_dict(checkpoint["state_dict"])
    values = trainer.test(module, datamodule=cli.datamodule, verbose=False)[0]
    if not trainer.is_global_zero:
        return
    throughput = next(call for call in trainer.callbacks if isinstance(call, Throughput))
    record = next(call for call in trainer.callbacks if isinstance(call, RunRecord))
    result = {
        "dataset": cli.datamodule.dataset,
        "norm": module.model.config.norm,
        "seed": module.hparams["seed"],
        "dataset_fingerprint": cli.datamodule.splits.fingerprint,
        **{name: float(value) for name, value in values.items()},
        f"best_validation_{metric}": best_value,
        "epochs": epochs,
        "steps": steps,
        "parameters": count_parameters(module.model),
        "seconds": record.seconds,
        "training_seconds": round(throughput.seconds, 1),
        "graphs_per_second": round(throughput.graphs_per_second * trainer.world_size, 1),
        "checkpoint": str(best),
    }
    predictions = module.test_predictions()
    # Of a part of the split (--trainer.limit_test_batches) there is no table.
    if len(predictions) == len(cli.datamodule.indices("test")):
        write_test_predictions(run_directory, cli.datamodule, predictions)
    write_json(run_directory / "summary.json", result, indent=None)
    cli.tested = True
    name, unit = METRIC_NAMES[metric], units(module)
    rows = [(f"Graphormer, {module.model.config.norm}", f"{values[f'test_{metric}']:.4f}{unit}")]
    baselines, left_out, interrupted = _baselines(cli)
    rows = [*((one.name, f"{one.test:.4f}{unit}") for one in baselines), *rows]
    if len(module.task.targets) > 1:
        rows += [
            (f"  {target}", f"{values[f'test_{metric}_{target}']:.4f}{f' {unit}' * bool(unit)}")
            for target, unit in zip(module.task.targets, module.task.units, strict=True)
        ]
    print(f"\ntest {name}")
    print(format_table([(f"  {label}", value) for label, value in rows]))
    if left_out:
        print(f"  {left_out}")
    print(
        f"\nbest validation {name} {best_value:.4f}; "
        f"{epochs} epochs, {steps:,} steps, {result['parameters']:,} parameters, "
        f"{result['seconds']:.0f} s, {result['graphs_per_second']:.0f} graphs/s"
    )
    print(f"checkpoint  {best}")
    if module.facts["featuriser"] is not None:
        print(f'try         {command("predict")} {shlex.quote(str(run_directory))} "CCO"')
    if interrupted:
        raise Interrupted(f"baselines interrupted; the run is whole: {run_directory}")


def _baselines(cli: TrainCLI) -> tuple[list[Baseline], str, bool]:
    """The simple models if they were asked for, what they leave out, and whether they were stopped.

    Training is over, so that whatever happens here leaves its result as it is.
    """
    if not cli.config["fit"].baselines:
        return [], "", False
    from graphormer_sepnorm.datasets.baselines import baselines_of

    try:
        return *baselines_of(cli.datamodule), False
    except GraphormerError as error:  # a molecule that has a graph, but no fingerprint
        log.warning("no baselines: %s", error)
    except KeyboardInterrupt:
        return [], "", True
    return [], "", False
