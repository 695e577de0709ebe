"""``fit --ensemble K``: K trainings of other seeds, side by side, that become one model.

They are validated on the same molecules, or each on a fold of its own and trained on the others
(``--ensemble_by folds``): then all but the test split is trained on, and each molecule is predicted
by a network that has not seen it.

Each member is what ``fit`` with its seed trains, in ``members/seed<k>`` of the run directory, in a
process of its own. The checkpoint of the run holds them all.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Trainer

from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import CheckpointError, GraphormerError, Interrupted
from graphormer_sepnorm.inference.checkpoint import KEY, joined, read_checkpoint, write_checkpoint
from graphormer_sepnorm.pipeline.predicted import Predicted, out_of_sample
from graphormer_sepnorm.process import resuming
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.runs.locks import RunLock, locked
from graphormer_sepnorm.runs.plan import RunSpec
from graphormer_sepnorm.runs.scheduler import train
from graphormer_sepnorm.training.described import Tested
from graphormer_sepnorm.training.fit import tested, whole_test
from graphormer_sepnorm.training.module import GraphormerModule

# Of all members together; what else a summary has is of the first, or of their mean.
_SUMS = ("steps", "parameters", "seconds", "training_seconds")


def members_of(run: RunDirectory, config: FitConfig) -> list[RunSpec]:
    """Return the runs of an ensemble, by their seeds."""
    runs = []
    for fold in range(config.ensemble):
        seed = config.seed_everything + fold
        directory = run.members / f"seed{seed}"
        # Baselines and the rest are made once, for the mean of all.
        own = {"baselines": False, "members": ["networks"], "keep": "none", "ensemble": 1}
        own |= {"seed_everything": seed, "output": str(directory)}
        if config.ensemble_by == "folds":
            own |= {"data.member_folds": config.ensemble, "data.member_fold": fold}
        options = config.with_options(own)
        runs.append(RunSpec(f"member seed {seed}", options, directory, "member"))
    return runs


def train_members(members: Sequence[RunSpec], metric: str, place: RunLock) -> None:
    """Train the members that are not finished, each in a process of its own.

    The directory of the ensemble stays as soon as something is in it.

    Raises:
        Interrupted: With what is left, if there is any.
        GraphormerError: A member has failed.
    """
    unfinished = [one for one in members if not one.finished]
    if not unfinished:
        return
    folder = members[0].directory.parent
    folder.mkdir(exist_ok=True)
    for one in unfinished:
        one.failure.unlink(missing_ok=True)  # of an earlier attempt
    # One thread each, unless more are wanted: sums are the same then on any number of cores.
    threads = None if os.environ.get("OMP_NUM_THREADS", "").isdigit() else 1
    ended = False
    try:
        with locked(folder) as lock:
            ended = train(members, metric=metric, lock=lock, threads=threads, called="networks")
    finally:  # however it ended, what was trained stays
        unfinished = [one for one in members if not one.finished]
        failed = next((one for one in unfinished if one.failure.is_file()), None)
        begun = any(one.finished or one.begun for one in members)
        place.worth_keeping |= failed is not None or begun or ended
    if not unfinished:
        return
    again = resuming(folder.parent)
    done = f"{len(members) - len(unfinished)} of {len(members)} members are finished"
    if failed is not None or ended:
        # Ended by nobody: there was no memory for a process, or no room to note why it failed.
        one = failed or unfinished[0]
        why = "" if failed is None else f": {failed.failure.read_text(encoding='utf-8').strip()}"
        raise GraphormerError(f"{one.name} has failed, {done}{why} ({one.log}); continue: {again}")
    if not place.worth_keeping:
        raise Interrupted("interrupted before the first step; nothing was saved")
    raise Interrupted(f"interrupted, {done}; continue with: {again}")


def evaluate_ensemble(
    trainer: Trainer,
    module: GraphormerModule,
    data: MoleculeDataModule,
    members: Sequence[RunSpec],
    run: RunDirectory,
) -> tuple[Tested, Predicted | None]:
    """Join the members and test the mean of their values.

    Returns:
        The result, and of members by folds what they predict out of fold.

    Raises:
        CheckpointError: The members were trained on other data.
    """
    checkpoint = joined({one.name: read_checkpoint(one.directory) for one in members})
    facts = checkpoint[KEY]
    if facts["dataset_fingerprint"] != data.splits.fingerprint:
        raise CheckpointError(
            f"{data.splits.name} here is not the {facts['dataset']} that the members were trained "
            "on: put that back, or train another ensemble"
        )
    write_checkpoint(checkpoint, run.best)
    options: dict[str, Any] = {"ckpt_path": str(run.best), "weights_only": True}
    found_by_test = tested(trainer, module, data, **options)
    if not found_by_test:  # without test molecules nothing has read it
        module.restore(checkpoint, members=True)
    out_of_fold, validated, folds = None, {}, data.member_folds
    if folds is not None:
        out_of_fold = out_of_sample(module, data)
        labels = data.labels(out_of_fold.indices)
        found = module.task.evaluate_learned(labels, out_of_fold.values)
        validated = {f"validation_{name}": value for name, value in found.items()}
    elif len(data.indices("validation")):
        [validated] = trainer.validate(module, datamodule=data, verbose=False, **options)
    validation = {name: float(value) for name, value in validated.items()}
    checkpoint[KEY] |= {"validation": validation, "member_folds": folds.count if folds else 0}
    write_checkpoint(checkpoint, run.best)
    predictions = whole_test(module, data)
    summaries = [dict(one.files.summary() or {}) for one in members]
    summary = {**summaries[0], **found_by_test}
    for name in summary:
        if name.startswith("best_"):
            summary[name] = validation[name.removeprefix("best_")]
    summary |= {name: sum(one[name] for one in summaries) for name in _SUMS}
    summary["epochs"] = max(one["epochs"] for one in summaries)
    summary["graphs_per_second"] = statistics.fmean(one["graphs_per_second"] for one in summaries)
    summary["checkpoint"] = str(run.best)
    summary["members"] = [
        {"seed": one.seed}
        | {name: own[name] for name in own if name.startswith(("test_", "best_validation_"))}
        for one, own in zip(members, summaries, strict=True)
    ]
    return Tested(run.best, summary, validation, predictions), out_of_fold
