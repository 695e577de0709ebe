"""A training, from options to a model that is saved once.

fit -> members or one network -> baselines and blend -> calibration -> test -> files
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphormer_sepnorm.config import FitConfig, save_config
from graphormer_sepnorm.datasets.logarithms import AUTO
from graphormer_sepnorm.datasets.molecule_data import MoleculeData
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.datasets.training_graphs import MemberFolds
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import is_full, write_columns
from graphormer_sepnorm.inference.checkpoint import (
    BLEND,
    CONFIDENCE,
    KEY,
    read_checkpoint,
    write_checkpoint,
)
from graphormer_sepnorm.pages.learning_curve import draw_learning_curve
from graphormer_sepnorm.pipeline.blend import add_baselines, require_smiles
from graphormer_sepnorm.pipeline.calibrate import calibrate
from graphormer_sepnorm.pipeline.decisions import (
    choose_logarithms,
    epochs_of_table,
    explaining,
    interruptible,
    selection,
)
from graphormer_sepnorm.pipeline.predicted import Outcome, Predicted, on_split, out_of_sample
from graphormer_sepnorm.pipeline.report import prediction_columns, report_data, report_fit
from graphormer_sepnorm.pipeline.resume import Resumed
from graphormer_sepnorm.process import is_first_process, resuming
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.runs.locks import RunLock
from graphormer_sepnorm.training.described import Described, Tested

# Tells processes that Lightning starts for other devices where the first one keeps the run.
RUN_DIRECTORY = "GRAPHORMER_RUN_DIRECTORY"
Show = Callable[[str], None]


def fit(
    config: FitConfig,
    *,
    name: str | None = None,
    resumed: Resumed | None = None,
    place: RunLock | None = None,
    show: Show = print,
    splits: DatasetSplits | None = None,
) -> Outcome | None:
    """Train a model, make what goes with it, test it and save it.

    Args:
        config: All options.
        name: Of the run, where ``output`` is not given; None: that of the data.
        resumed: The run that is continued.
        place: Holds the directory of the run; None: it is let go at the end.
        show: Is given what is printed.
        splits: The data, where they are in memory; members of an ensemble are trained in this
            process then, one after the other. None: what ``data`` of the options names.

    Returns:
        None in all processes but the first, and where nothing could be tested.

    Raises:
        GraphormerError: Something in options or data cannot work, or a member has failed.
        Interrupted: By Ctrl-C, SIGTERM or SIGHUP; the message has what was saved.
    """
    with (
        explaining(),
        RunLock() if place is None else nullcontext(place) as place,
        _explaining_full_disks(place),
    ):
        return _Fit(config, name, resumed, place, show, splits).run()


@dataclass
class _Fit:
    """One training, step by step; see `fit`."""

    config: FitConfig
    name: str | None
    resumed: Resumed | None
    place: RunLock
    show: Show
    splits: DatasetSplits | None
    finished: bool = False
    learned_as: str = ""
    empty: dict[str, Any] = field(default_factory=dict)  # a checkpoint without networks
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        config, seed = self.config, self.config.seed_everything
        torch.manual_seed(seed)
        effective = config if self.resumed is None else self.resumed.effective
        self.trainer: Any = None
        self.module: Any
        if "networks" in config.members:
            from graphormer_sepnorm.datasets.data_module import MoleculeDataModule as kind
            from graphormer_sepnorm.training.module import GraphormerModule

            self.module = GraphormerModule(effective.model, seed=seed)
        else:  # nothing needs Lightning, loaded for seconds
            self.module, kind = Described(), MoleculeData
            self.module.plan_network(effective.model)
        length = self.module.architecture.max_path_length  # a pre-trained network has its own
        self.data: Any = kind(effective.data, seed=seed, max_path_length=length, splits=self.splits)
        if config.ensemble > 1 and config.ensemble_by == "folds":
            self.data.assign_members(MemberFolds(config.ensemble))
        self.blended = {*config.members} != {"networks"}
        if self.blended:
            require_smiles(self.data, config.members)
        own: dict[str, Any] = {}
        if effective.data.label_transform == AUTO:
            names, self.learned_as = choose_logarithms(self.data)
            self.data.learn_logarithms(names)
            own["data.label_transform"] = names or None
        trainer, splits = config.trainer, self.data.splits
        open_ended = trainer.max_epochs is None and trainer.max_steps == -1
        if open_ended and splits.groups is not None:
            shown = self.data.numbers.trained_on
            own["trainer.max_epochs"] = epochs_of_table(shown, splits.task.kind)
        self.config = config.with_options(own)
        self.selected, self.shown = selection(self.config, self.data)

    def run(self) -> Outcome | None:
        """Do all of it."""
        self.files = RunDirectory(self._begin())
        if "networks" not in self.config.members:
            ended = self._without_networks()
        else:
            ended = self._ensemble() if self.config.ensemble > 1 else self._network()
        if ended is None:
            return None
        with interruptible(self.trainer, self._what_is_done):
            outcome = self._finish(*ended)
            self.show(report_fit(outcome, self.module))
        return outcome

    def _begin(self) -> Path:
        """Make the directory of the run with its ``config.yaml``, in the first process only."""
        config, resumed, data = self.config, self.resumed, self.data
        wanted = self._wanted_directory()
        if not is_first_process():
            return Path(os.environ.get(RUN_DIRECTORY, wanted))
        directory = wanted if resumed is not None else self.place.new(wanted)
        if resumed is None:
            os.environ[RUN_DIRECTORY] = str(directory)
            self.show(f"run    {directory}")
            if directory != wanted:
                self.show(f"{wanted} is taken, and stays as it is")
        else:
            self.show(resumed.message)
        # Of an ensemble only what follows the training can be changed; of one network changed
        # options are stored once it can go on with them.
        if resumed is None or (resumed.changed and config.ensemble > 1):
            self._save_config(directory)
        run = RunDirectory(directory)
        begins = resumed is None or (resumed.checkpoint is None and not run.members.is_dir())
        if begins and data.splits.report is not None:  # a table may have been corrected meanwhile
            self.show(report_data(data, run))
        if begins and self.learned_as:
            self.show(self.learned_as)
        return directory

    def _wanted_directory(self) -> Path:
        config = self.config
        if self.resumed is not None:
            return self.resumed.directory
        if config.output is not None:
            return Path(config.output).expanduser()
        name = self.name or self.data.dataset
        if self.data.table_options is not None:
            name = self.data.splits.name
        what, together = self.module.architecture.norm, ""
        if "networks" not in config.members:
            what = "+".join(config.members)
        elif config.ensemble > 1:
            together = f"-ensemble{config.ensemble}"
        return Path("runs") / name / f"{what}-seed{config.seed_everything}{together}"

    def _save_config(self, directory: Path) -> None:
        config = self.config
        # A run can be resumed from another folder than it was started in.
        own: dict[str, Any] = {
            f"data.{name}": str(Path(given).expanduser().resolve())
            for name in ("root", "table", "validation_table", "test_table", "molecules")
            if (given := getattr(config.data, name)) is not None
        }
        # A pre-trained network has its own, and data are prepared for it.
        length = self.module.architecture.max_path_length
        own["model.max_path_length"] = length
        own["model.path_rows"] = max(length, config.model.path_rows)
        save_config(config.with_options(own), RunDirectory(directory).configuration_file)

    def _network(self) -> tuple[Tested, Predicted | None] | None:
        """Train one network and test its best checkpoint."""
        from lightning.pytorch.callbacks import LambdaCallback

        from graphormer_sepnorm.training.fit import evaluate_best, training_trainer

        resumed = self.resumed
        checkpoint = None if resumed is None else resumed.checkpoint
        self._first_step = 0 if resumed is None else resumed.step
        store = LambdaCallback(on_train_start=self._store_options, on_fit_end=self._store_options)
        self.trainer = training_trainer(
            self.config,
            self.files,
            self.selected,
            self.shown,
            None if checkpoint is None else self._first_step,
            [store] if resumed is not None and resumed.changed else [],
            validated=len(self.data.numbers.validated) > 0,
            alone=self.splits is not None,
        )
        with interruptible(self.trainer, self._what_was_saved):
            try:
                self.trainer.fit(
                    self.module,
                    datamodule=self.data,
                    ckpt_path=None if checkpoint is None else str(checkpoint),
                    weights_only=True,
                )
            finally:
                self.place.worth_keeping |= self.trainer.global_step > self._first_step
                if self.trainer.is_global_zero and self.splits is None:
                    draw_learning_curve(self.files, self.shown.name, self.selected.name)
        with interruptible(self.trainer, self._what_is_done):
            # Processes that Lightning did not start do not know it.
            self.files = RunDirectory(self.trainer.strategy.broadcast(self.files.path))
            self._forget_earlier_end()
            work = self.trainer, self.module, self.data
            tested = evaluate_best(*work, self.files, self.selected)
            return None if tested is None else (tested, None)

    def _store_options(self, trainer: Any, *_: Any) -> None:
        if trainer.is_global_zero:
            self._save_config(self.files.path)

    def _ensemble(self) -> tuple[Tested, Predicted | None]:
        """Train the members, each in a process of its own, and test the mean of them."""
        from graphormer_sepnorm.pipeline.members import evaluate_ensemble, members_of, train_members
        from graphormer_sepnorm.training.fit import make_evaluator

        self.trainer = make_evaluator(self.config.trainer, devices=1)
        members = members_of(self.files, self.config)
        if self.splits is None:
            train_members(members, self.data.splits.task.metric, self.place)
        else:
            for member in members:
                fit(member.config, show=self.show, splits=self.splits)
        with interruptible(self.trainer, self._what_is_done):
            self._forget_earlier_end()
            return evaluate_ensemble(self.trainer, self.module, self.data, members, self.files)

    def _without_networks(self) -> tuple[Tested, None]:
        """Begin the checkpoint that trees and kernel are added to."""
        data, task, best = self.data, self.data.splits.task, self.files.best
        self.place.worth_keeping = True
        self.module.describe(data)
        facts = {**self.module.facts, "without_networks": True, "from_pretrained": ""}
        self.empty = {KEY: facts, "state_dict": {}}
        summary = {
            "dataset": data.dataset,
            "seed": self.config.seed_everything,
            "dataset_fingerprint": data.splits.fingerprint,
            "checkpoint": str(best),
        }
        values = np.full((len(data.indices("test")), len(task.targets)), np.nan)
        return Tested(best, summary, {}, values if len(values) else None), None

    def _forget_earlier_end(self) -> None:
        """Remove what an earlier end of the run has left: until this one it is not finished."""
        made = ("summary", "uncertainty", "geometry", "test_predictions", "validation_predictions")
        files = [getattr(self.files, f"{name}_file") for name in made]
        first = self.trainer is None or self.trainer.is_global_zero
        for file in (*files, self.files.test_predictions_figure) if first else ():
            file.unlink(missing_ok=True)

    def _finish(self, tested: Tested, out_of_fold: Predicted | None) -> Outcome:
        """Make what goes with the network, and store all of it when all is made."""
        config, module, data = self.config, self.module, self.data
        outcome = Outcome(
            self.files, self.selected, tested, dict(tested.summary), unseen=out_of_fold
        )
        outcome.out_of_fold = self.data.member_folds is not None
        known = data.splits.smiles is not None and data.splits.featurizer is not None
        known = known and len(data.numbers.validated) > 0
        whole = tested.predictions is not None or not len(data.indices("test"))
        calibrated = config.keep != "none" and known and whole
        if out_of_fold is None and known and (self.blended or calibrated):
            outcome.unseen = out_of_sample(module, data)
        if tested.predictions is not None and (self.blended or calibrated):
            outcome.test = on_split(module, data, "test", tested.predictions)
        checkpoint = self.empty or read_checkpoint(tested.checkpoint)
        earlier = [checkpoint.pop(name, None) for name in (BLEND, CONFIDENCE)]
        if config.baselines or self.blended:
            add_baselines(outcome, module, data, config.baselines, config.members)
        if self.empty:  # an earlier model has stayed until here
            self._forget_earlier_end()
            self._save_config(self.files.path)
        self._summarize_blend(outcome)
        if outcome.blend is not None:
            checkpoint[BLEND] = outcome.blend.to_plain()
        if calibrated:
            calibrate(outcome, module, data, config.keep, checkpoint)
        if any(earlier) or checkpoint.keys() & {BLEND, CONFIDENCE}:
            write_checkpoint(checkpoint, tested.checkpoint)
        self._store_results(outcome)
        self.finished = True
        return outcome

    def _summarize_blend(self, outcome: Outcome) -> None:
        """Let the summary be that of the blend; the network's own is under ``network`` then."""
        summary, blend, test = outcome.summary, outcome.blend, outcome.test
        if outcome.baselines:
            summary["baselines"] = [dataclasses.asdict(one) for one in outcome.baselines]
        if blend is None:
            return
        slope = {} if blend.stacking is None else {"slope": blend.stacking.slope}
        share = round(float(np.mean(blend.kernel_share)), 2)
        of_all: dict[str, Any] = {"network_weight": blend.weight, "kernel_share": share, **slope}
        if len(blend.weights) > 1 and self.module.task.kind == "regression":
            each = zip(self.module.task.targets, blend.weights.tolist(), strict=True)
            of_all["network_weights"] = dict(each)
        summary["blend"] = of_all
        if test is not None:
            labels = self.data.labels(test.indices)
            found = self.module.task.evaluate_learned(labels, test.values)
            own = {f"test_{name}": value for name, value in found.items()}
            own |= {f"best_validation_{name}": value for name, value in blend.validation.items()}
            if not self.module.has_network:
                summary |= own
                return
            names = [name for name in summary if name.startswith(("test_", "best_validation_"))]
            network = {name: summary.pop(name) for name in names}
            summary |= {name: own[name] for name in names if name in own} | {"network": network}

    def _store_results(self, outcome: Outcome) -> None:
        """Write each test and validation molecule, and the summary."""
        module, data = self.module, self.data
        values = outcome.network.predictions if outcome.test is None else outcome.test.values
        if values is not None:
            columns = prediction_columns(data, data.indices("test"), values, outcome.columns)
            write_columns(self.files.test_predictions_file, columns)
        unseen = outcome.unseen
        if unseen is None and module.has_network and len(data.numbers.validated):
            unseen = out_of_sample(module, data)
        if unseen is not None:
            columns = prediction_columns(data, unseen.indices, unseen.values)
            write_columns(self.files.validation_predictions_file, columns)
        outcome.summary.setdefault("seconds", round(time.monotonic() - self.started, 1))
        self.files.write_summary(outcome.summary)
        if values is not None:
            from graphormer_sepnorm.pages.predictions import draw_predictions

            task, labels = module.task, data.labels(data.indices("test"))
            both = task.in_units(labels), task.in_units(values)
            draw_predictions(self.files.test_predictions_figure, task, *both)

    def _what_was_saved(self) -> str:
        from graphormer_sepnorm.training.checkpoints import LastCheckpoint

        step, last = self.trainer.global_step, self.files.last
        if not last.is_file():
            if step > self._first_step:
                return f"interrupted at step {step:,}; nothing was saved"
            self.place.discard()
            return "interrupted before the first step; nothing was saved"
        callbacks: list[Any] = self.trainer.callbacks
        saving = next(call for call in callbacks if isinstance(call, LastCheckpoint))
        of = f" of step {saving.saved_step:,}" if saving.saved_step >= 0 else ""
        return (
            f"interrupted at step {step:,}; the checkpoint{of} is in {last}; continue with: "
            f"{resuming(self.files.path)}"
        )

    def _what_is_done(self) -> str:
        if self.finished:
            return f"trained and tested, the result is in {self.files.summary_file}"
        run = self.files.path
        return f"trained, but not all that follows is done: {run}; continue with: {resuming(run)}"


@contextmanager
def _explaining_full_disks(place: RunLock) -> Iterator[None]:
    """Tell what to do where there is no room on the disk."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch.save makes the second of the first
        if not is_full(error) or place.path is None:
            raise
        then = "make room, or choose another place with --output; nothing was trained"
        if place.worth_keeping:
            then = f"make room and continue with: {resuming(place.path)}"
        raise DataError(f"there is no room on the disk of {place.path}: {then}") from error
