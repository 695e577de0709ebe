"""A training, from options to a model that is saved once.

fit -> members or one network -> simple models and blend -> calibration -> test -> files
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import LambdaCallback

from graphormer_sepnorm.config import FitConfig, save_config
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.datasets.training_graphs import MemberFolds
from graphormer_sepnorm.errors import DataError, Interrupted
from graphormer_sepnorm.files import is_full
from graphormer_sepnorm.inference.checkpoint import (
    BLEND,
    CONFIDENCE,
    read_checkpoint,
    write_checkpoint,
)
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.metrics import Metric
from graphormer_sepnorm.pipeline.calibrate import Measured, measure
from graphormer_sepnorm.pipeline.held_out import HeldOut, networks_of, of_validation_split
from graphormer_sepnorm.pipeline.members import evaluate_ensemble, members_of, train_members
from graphormer_sepnorm.pipeline.report import (
    in_words_without_new_elements,
    prediction_columns,
    report_data,
    report_fit,
)
from graphormer_sepnorm.pipeline.resume import Resumed
from graphormer_sepnorm.pipeline.simple_models import (
    SimpleModels,
    evaluate,
    require_smiles,
    simple_models,
)
from graphormer_sepnorm.process import ending_with, is_first_process, resuming
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.runs.locks import RunLock
from graphormer_sepnorm.training.checkpoints import LastCheckpoint
from graphormer_sepnorm.training.fit import (
    Tested,
    evaluate_best,
    explaining,
    interruptible,
    make_evaluator,
    restorable,
    selection,
    settled_epochs,
    training_trainer,
)
from graphormer_sepnorm.training.module import GraphormerModule
from graphormer_sepnorm.uncertainty.quality import summarised
from graphormer_sepnorm.uncertainty.uncertainty import Inputs

# Tells processes that Lightning starts for other devices where the first one keeps the run.
RUN_DIRECTORY = "GRAPHORMER_RUN_DIRECTORY"
Show = Callable[[str], None]


@dataclass
class Outcome:
    """What a training came to.

    Attributes:
        run: Its directory.
        selected: What decided on the best checkpoint.
        network: The test of the network, or of the mean of an ensemble.
        summary: As ``summary.json`` keeps it, of all that the checkpoint holds.
        predictions: float64 ``[n, T]`` of the test split by all of it; None where only a part of
            the split was tested.
        held: What the networks of an ensemble by folds predict out of fold; None of others.
        simple: The models that it was compared and blended with.
        measured: Its errors; None where they are not known.
        interrupted: What was stopped; empty: nothing, and the run is finished.
        new_elements: A line on molecules with elements that training lacks; empty without any.
    """

    run: RunDirectory
    selected: Metric
    network: Tested
    summary: dict[str, Any]
    predictions: np.ndarray | None
    held: HeldOut | None
    simple: SimpleModels
    measured: Measured | None = None
    interrupted: str = ""
    new_elements: str = ""

    def model(self, device: str | None = None) -> Predictor:
        """Return the model, ready to predict."""
        return Predictor.load(self.run.path, device)


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
        splits: The data, where they are in memory; members of an ensemble are trained in this
            process then, one after the other. None: what ``data`` of the options names.
        name: Of the run, where ``output`` is not given; None: that of the data.
        resumed: The run that is continued.
        place: Holds the directory of the run; None: it is let go at the end.
        show: Is given what a user is inputs.

    Returns:
        None in all processes but the first, and where nothing could be tested.

    Raises:
        GraphormerError: Something in options or data cannot work, or a member has failed.
        Interrupted: By Ctrl-C, SIGTERM or SIGHUP; what was saved is said.
    """
    if place is None:
        with RunLock() as place:
            return fit(config, name=name, resumed=resumed, place=place, show=show, splits=splits)
    with explaining(), _explaining_full_disks(place), ending_with(lambda: nothing_trained(place)):
        return _Fit(config, name, resumed, place, show, splits).run()


def nothing_trained(place: RunLock) -> str:
    """Give the place of a run that has taken no step back; return what is said about it."""
    place.discard()
    return "interrupted before the first step; nothing was saved"


def prepared(
    config: FitConfig, splits: DatasetSplits | None = None
) -> tuple[GraphormerModule, MoleculeDataModule]:
    """Return network and data of a training, nothing loaded yet.

    Raises:
        ConfigError: The options contradict each other.
    """
    seed = config.seed_everything
    module = GraphormerModule(config.model, seed=seed)
    length = module.architecture.max_path_length  # a pre-trained network has its own
    options: dict[str, Any] = {"seed": seed, "max_path_length": length}
    if splits is None:
        data = MoleculeDataModule(config.data, **options)
    else:
        data = MoleculeDataModule.from_splits(splits, config.data, **options)
    if config.ensemble > 1 and config.ensemble_by == "folds":
        data.deal_members(MemberFolds(config.ensemble))
    if config.blend:
        require_smiles(data)
    return module, data


class _Fit:
    """One training, step by step; see `fit`."""

    def __init__(
        self,
        config: FitConfig,
        name: str | None,
        resumed: Resumed | None,
        place: RunLock,
        show: Show,
        splits: DatasetSplits | None,
    ) -> None:
        self.name, self.resumed, self.place, self.show = name, resumed, place, show
        self.splits = splits
        torch.manual_seed(config.seed_everything)
        effective = config if resumed is None else resumed.effective
        self.module, self.data = prepared(effective, splits)
        epochs = settled_epochs(config.trainer, self.data)
        trainer = dataclasses.replace(config.trainer, max_epochs=epochs)
        self.config = dataclasses.replace(config, trainer=trainer)
        self.selected, self.shown = selection(self.config, self.data)
        self.finished = False

    def run(self) -> Outcome | None:
        """Do all of it."""
        self.files = RunDirectory(self._begin())
        tested, held = self._ensemble() if self.config.ensemble > 1 else self._network()
        if tested is None:
            return None
        with interruptible(self.trainer, self._what_is_done):
            outcome = self._finish(tested, held)
            self.show(report_fit(outcome, self.module))
            if outcome.interrupted:
                raise Interrupted(f"{outcome.interrupted} interrupted; {self._what_is_done()}")
        return outcome

    def _begin(self) -> Path:
        """Make the directory of the run with its ``config.yaml``, in the first process only."""
        wanted = self._wanted_directory()
        if rank_zero_only.rank != 0 or not is_first_process():
            return Path(os.environ.get(RUN_DIRECTORY, wanted))
        if self.resumed is not None:
            self.show(self.resumed.message)
            # Of an ensemble only what follows the training can be another.
            if self.resumed.changed and self.config.ensemble > 1:
                self._save_config(wanted)
            if self.resumed.checkpoint is None and not RunDirectory(wanted).members.is_dir():
                self._report_data(wanted)  # the table may have been mended meanwhile
            return wanted
        directory = self.place.new(wanted)
        os.environ[RUN_DIRECTORY] = str(directory)
        self._save_config(directory)
        self.show(f"run    {directory}")
        before = RunDirectory(wanted)
        if directory != wanted and before.configuration_file.is_file() and not before.finished:
            self.show(f"{wanted} has a run that has not ended; {resuming(wanted)} goes on with it")
        elif directory != wanted and self.config.output is not None:
            self.show(f"{wanted} is taken, and stays as it is")
        self._report_data(directory)
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
        together = f"-ensemble{config.ensemble}" if config.ensemble > 1 else ""
        norm = self.module.architecture.norm
        return Path("runs") / name / f"{norm}-seed{config.seed_everything}{together}"

    def _report_data(self, directory: Path) -> None:
        if self.data.splits.report is not None:
            tuned = self.module.backbone is not None
            self.show(report_data(self.data, RunDirectory(directory), fine_tuned=tuned))

    def _save_config(self, directory: Path, *_: Any) -> None:
        config = self.config
        # A run can be resumed from another folder than it was started in.
        places = {
            name: str(Path(given).expanduser().resolve())
            for name in ("root", "table", "validation_table", "test_table", "molecules")
            if (given := getattr(config.data, name)) is not None
        }
        # A pre-trained network has its own, and data are prepared for it.
        length = self.module.architecture.max_path_length
        model = dataclasses.replace(
            config.model,
            max_path_length=length,
            path_rows=max(length, config.model.path_rows),
        )
        data = dataclasses.replace(config.data, **places)
        config = dataclasses.replace(config, data=data, model=model)
        save_config(config, RunDirectory(directory).configuration_file)

    def _network(self) -> tuple[Tested | None, HeldOut | None]:
        """Train one network and test its best checkpoint."""
        resumed = self.resumed
        checkpoint = None if resumed is None else resumed.checkpoint
        self._first_step = 0 if resumed is None else resumed.step
        changed = resumed is not None and resumed.changed
        more = []
        if changed:  # also for the next time, if it can go on with these options
            more.append(LambdaCallback(on_train_start=self._keep_options))
        self.trainer = training_trainer(
            self.config,
            self.files,
            self.selected,
            self.shown,
            None if checkpoint is None else self._first_step,
            more,
            validated=len(self.data.numbers.validated) > 0,
            alone=self.splits is not None,
        )
        with interruptible(self.trainer, self._what_was_saved):
            try:
                with restorable(checkpoint):
                    self.trainer.fit(
                        self.module,
                        datamodule=self.data,
                        ckpt_path=None if checkpoint is None else str(checkpoint),
                        weights_only=True,
                    )
                if changed:  # also where nothing was left to train
                    self._keep_options(self.trainer)
            finally:
                self.place.worth_keeping |= self.trainer.global_step > self._first_step
        with interruptible(self.trainer, self._what_is_done):
            # Processes that Lightning did not start have not been inputs it.
            self.files = RunDirectory(self.trainer.strategy.broadcast(self.files.path))
            self._forget_earlier_end()
            work = self.trainer, self.module, self.data
            return evaluate_best(*work, self.files, self.selected), None

    def _ensemble(self) -> tuple[Tested, HeldOut | None]:
        """Train the members, each in a process of its own, and test the mean of them."""
        self.trainer = make_evaluator(self.config.trainer, devices=1)
        members = members_of(self.files, self.config)
        if self.splits is None:
            train_members(members, self.config, self.data, self.place)
        else:
            for one in members:
                fit(one.config, show=self.show, splits=self.splits)
        with interruptible(self.trainer, self._what_is_done):
            self._forget_earlier_end()
            return evaluate_ensemble(self.trainer, self.module, self.data, members, self.files)

    def _forget_earlier_end(self) -> None:
        """Take away what an earlier end of the run has left: until this one it is not finished."""
        if not self.trainer.is_global_zero:
            return
        run = self.files
        for made in (
            run.summary_file,
            run.test_predictions_file,
            run.test_predictions_figure,
            run.confidence_file,
            run.geometry_file,
        ):
            made.unlink(missing_ok=True)

    def _finish(self, tested: Tested, held: HeldOut | None) -> Outcome:
        """Make what goes with the network, and keep all of it.

        Training is over, so that whatever happens here leaves its result as it is.
        """
        config, module, data = self.config, self.module, self.data
        known = data.splits.smiles is not None and data.splits.featuriser is not None
        known = known and len(data.numbers.validated) > 0
        untested = not len(data.indices("test"))
        sure = config.keep != "none" and known and (untested or tested.predictions is not None)
        unseen = held
        if held is None and known and (config.blend or config.baselines or sure):
            unseen = of_validation_split(module, data)
        simple = simple_models(
            module,
            data,
            tested.predictions,
            unseen,
            baselines=config.baselines,
            blend=config.blend,
        )
        outcome = Outcome(
            self.files, self.selected, tested, tested.summary, tested.predictions, held, simple
        )
        parts = _with_simple_models(outcome)
        outcome.interrupted = "the baselines" if simple.interrupted else ""
        columns: Mapping[str, np.ndarray] = {}
        checkpoint = read_checkpoint(tested.checkpoint)
        earlier = checkpoint.keys() & {BLEND, CONFIDENCE}
        checkpoint = {k: v for k, v in checkpoint.items() if k not in earlier} | parts
        if sure and unseen is not None and not outcome.interrupted:
            try:
                checkpoint = self._calibrate(outcome, unseen, checkpoint)
                columns = outcome.measured.columns if outcome.measured else {}
            except KeyboardInterrupt:
                outcome.interrupted = "the measuring of its errors"
        if earlier or checkpoint.keys() & {BLEND, CONFIDENCE}:
            write_checkpoint(checkpoint, tested.checkpoint)
        self._keep(outcome, columns)
        self.finished = not outcome.interrupted
        return outcome

    def _calibrate(
        self, outcome: Outcome, unseen: HeldOut, checkpoint: dict[str, Any]
    ) -> dict[str, Any]:
        """Measure how wrong the model is; return the checkpoint with what it knows of that."""
        module, data = self.module, self.data
        blended, predictions, inputs = outcome.simple.blended, outcome.predictions, None
        if blended is not None:
            unseen = blended.held
        if predictions is not None:
            inputs = Inputs(predictions) if blended is None else blended.inputs
            if blended is None and module.members:
                networks = networks_of(module, data, "test", predictions)
                inputs = inputs._replace(spread=networks.std(axis=0, ddof=1))
        work = module, data, self.files, checkpoint
        measured, checkpoint = measure(*work, unseen, inputs, self.config.keep)
        outcome.measured = measured
        if measured.predictions is None:
            return checkpoint
        outcome.summary |= {"confidence": summarised(measured.quality.values())}
        if module.task.kind == "binary":  # calibrated now
            values = evaluate(data, module.task, "test", measured.predictions)
            outcome.summary |= {f"test_{name}": value for name, value in values.items()}
        outcome.predictions = measured.predictions
        return checkpoint

    def _keep(self, outcome: Outcome, columns: Mapping[str, np.ndarray]) -> None:
        """Write each test molecule, and, where nothing was interrupted, the summary."""
        module, data, predictions = self.module, self.data, outcome.predictions
        if predictions is not None:
            value = outcome.summary[f"test_{module.task.metric}"]
            found, outcome.new_elements = in_words_without_new_elements(
                module, data, "test", predictions, value
            )
            self.files.write_test_predictions(
                prediction_columns(data, "test", predictions, found, columns)
            )
        if outcome.interrupted:
            return
        self.files.write_summary(outcome.summary)
        if predictions is not None:
            from graphormer_sepnorm.compare.figures import draw_predictions

            labels = data.labels(data.indices("test"))
            draw_predictions(self.files.test_predictions_figure, module.task, labels, predictions)

    def _keep_options(self, trainer: Trainer, *_: Any) -> None:
        """Keep the options of a resumed run, in the first process."""
        if trainer.is_global_zero:
            self._save_config(self.files.path)

    def _what_was_saved(self) -> str:
        step, last = self.trainer.global_step, self.files.last
        if not last.is_file():
            if step > self._first_step:
                return f"interrupted at step {step:,}; nothing was saved"
            return nothing_trained(self.place)
        callbacks: list[Any] = self.trainer.callbacks  # type: ignore[attr-defined]
        saving = next(call for call in callbacks if isinstance(call, LastCheckpoint))
        of = f" of step {saving.saved_step:,}" if saving.saved_step >= 0 else ""
        return (
            f"interrupted at step {step:,}; the checkpoint{of} is in {last}; continue with: "
            f"{resuming(self.files.path)}"
        )

    def _what_is_done(self) -> str:
        if self.finished:
            return f"trained and tested, what came out is in {self.files.summary_file}"
        run = self.files.path
        return f"trained, but not all that follows is done: {run}; go on with: {resuming(run)}"


def _with_simple_models(outcome: Outcome) -> dict[str, Any]:
    """Take over what simple models came to; return what the checkpoint gets of them."""
    simple, parts = outcome.simple, {}
    outcome.summary = dict(outcome.summary)
    if simple.blended is not None:
        outcome.summary = simple.blended.in_summary(outcome.summary)
        outcome.predictions = simple.blended.predictions
        parts = {BLEND: simple.blended.blend.to_plain()}
    if simple.baselines:
        outcome.summary["baselines"] = [one.to_plain() for one in simple.baselines]
    return parts


@contextmanager
def _explaining_full_disks(place: RunLock) -> Iterator[None]:
    """Say what to do where there is no room on the disk."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch.save makes the second of the first
        if not is_full(error) or place.path is None:
            raise
        then = "make room, or choose another place with --output; nothing was trained"
        if place.worth_keeping:
            then = f"make room and continue with: {resuming(place.path)}"
        raise DataError(f"there is no room on the disk of {place.path}: {then}") from error
