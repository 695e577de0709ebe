"""A training, from options to a model that is saved once.

fit -> members or one network -> baselines and blend -> calibration -> test -> files
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
from graphormer_sepnorm.datasets.graph_numbers import MemberFolds
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import DataError, Interrupted
from graphormer_sepnorm.files import is_full, write_json
from graphormer_sepnorm.inference.checkpoint import (
    BLEND,
    CONFIDENCE,
    KEY,
    read_checkpoint,
    write_checkpoint,
)
from graphormer_sepnorm.inference.moved import SAMPLE, sampled
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.metrics import Metric
from graphormer_sepnorm.pipeline.blend import Blended, add_baselines, require_smiles
from graphormer_sepnorm.pipeline.calibrate import Calibrated, calibrate
from graphormer_sepnorm.pipeline.members import evaluate_ensemble, members_of, train_members
from graphormer_sepnorm.pipeline.predicted import Predicted, on_split, out_of_sample
from graphormer_sepnorm.pipeline.report import (
    prediction_columns,
    report_data,
    report_fit,
    without_new_elements,
)
from graphormer_sepnorm.pipeline.resume import Resumed
from graphormer_sepnorm.process import ending_with, is_first_process, resuming
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.runs.place import RunPlace
from graphormer_sepnorm.training.callbacks.checkpoints import LastCheckpoint
from graphormer_sepnorm.training.endings import explaining, interruptible, restorable
from graphormer_sepnorm.training.fit import (
    Tested,
    evaluate_best,
    make_evaluator,
    selection,
    training_trainer,
)
from graphormer_sepnorm.training.module import GraphormerModule
from graphormer_sepnorm.training.steps import settled_epochs
from graphormer_sepnorm.uncertainty.quality import summarised

# Tells processes that Lightning starts for other devices where the first one keeps the run.
RUN_DIRECTORY = "GRAPHORMER_RUN_DIRECTORY"
Show = Callable[[str], None]


@dataclass
class Outcome:
    """The result of a training.

    Attributes:
        run: Its directory.
        selected: What decided on the best checkpoint.
        network: The test of the network, or of the mean of an ensemble.
        out_of_fold: Whether it was validated out of fold, as an ensemble by folds.
        summary: As ``summary.json`` stores it, of all that the checkpoint holds.
        blended: Predictions, the blend and the baselines.
        calibrated: The uncertainty of the model; None where it is not known.
        interrupted: What was interrupted; empty: nothing, and the run is finished.
        new_elements: A line on molecules with elements that training lacks; empty without any.
    """

    run: RunDirectory
    selected: Metric
    network: Tested
    out_of_fold: bool
    summary: dict[str, Any]
    blended: Blended
    calibrated: Calibrated | None = None
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
    place: RunPlace | None = None,
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
    if place is None:
        with RunPlace() as place:
            return fit(config, name=name, resumed=resumed, place=place, show=show, splits=splits)
    with explaining(), _explaining_full_disks(place), ending_with(lambda: _nothing_trained(place)):
        return _Fit(config, name, resumed, place, show, splits).run()


class _Fit:
    """One training, step by step; see `fit`."""

    def __init__(
        self,
        config: FitConfig,
        name: str | None,
        resumed: Resumed | None,
        place: RunPlace,
        show: Show,
        splits: DatasetSplits | None,
    ) -> None:
        self.name, self.resumed, self.place, self.show = name, resumed, place, show
        self.splits = splits
        seed = config.seed_everything
        torch.manual_seed(seed)
        effective = config if resumed is None else resumed.effective
        self.module = GraphormerModule(effective.model, seed=seed)
        length = self.module.architecture.max_path_length  # a pre-trained network has its own
        self.data = MoleculeDataModule(
            effective.data, seed=seed, max_path_length=length, splits=splits
        )
        if config.ensemble > 1 and config.ensemble_by == "folds":
            self.data.deal_members(MemberFolds(config.ensemble))
        if config.blend:
            require_smiles(self.data)
        epochs = settled_epochs(config.trainer, self.data)
        trainer = dataclasses.replace(config.trainer, max_epochs=epochs)
        self.config = dataclasses.replace(config, trainer=trainer)
        self.selected, self.shown = selection(self.config, self.data)
        self.finished = False

    def run(self) -> Outcome | None:
        """Do all of it."""
        self.files = RunDirectory(self._begin())
        tested, out_of_fold = self._ensemble() if self.config.ensemble > 1 else self._network()
        if tested is None:
            return None
        with interruptible(self.trainer, self._what_is_done):
            outcome = self._finish(tested, out_of_fold)
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
                self._report_data(wanted)  # the table may have been corrected meanwhile
            return wanted
        directory = self.place.new(wanted)
        os.environ[RUN_DIRECTORY] = str(directory)
        self._save_config(directory)
        self.show(f"run    {directory}")
        before = RunDirectory(wanted)
        if directory != wanted and before.configuration_file.is_file() and not before.finished:
            self.show(f"{wanted} has a run that has not ended; {resuming(wanted)} continues it")
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

    def _save_config(self, directory: Path) -> None:
        config = self.config
        # A run can be resumed from another folder than it was started in.
        paths = {
            name: str(Path(given).expanduser().resolve())
            for name in ("root", "table", "validation_table", "test_table", "molecules")
            if (given := getattr(config.data, name)) is not None
        }
        # A pre-trained network has its own, and data are prepared for it.
        length = self.module.architecture.max_path_length
        rows = max(length, config.model.path_rows)
        model = dataclasses.replace(config.model, max_path_length=length, path_rows=rows)
        data = dataclasses.replace(config.data, **paths)
        config = dataclasses.replace(config, data=data, model=model)
        save_config(config, RunDirectory(directory).configuration_file)

    def _network(self) -> tuple[Tested | None, Predicted | None]:
        """Train one network and test its best checkpoint."""
        resumed = self.resumed
        checkpoint = None if resumed is None else resumed.checkpoint
        self._first_step = 0 if resumed is None else resumed.step
        changed = resumed is not None and resumed.changed
        # Changed options are stored for the next time, if it can go on with them.
        store = LambdaCallback(on_train_start=self._store_options)
        self.trainer = training_trainer(
            self.config,
            self.files,
            self.selected,
            self.shown,
            None if checkpoint is None else self._first_step,
            [store] if changed else [],
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
                    self._store_options(self.trainer)
            finally:
                self.place.worth_keeping |= self.trainer.global_step > self._first_step
        with interruptible(self.trainer, self._what_is_done):
            # Processes that Lightning did not start do not know it.
            self.files = RunDirectory(self.trainer.strategy.broadcast(self.files.path))
            self._forget_earlier_end()
            work = self.trainer, self.module, self.data
            return evaluate_best(*work, self.files, self.selected), None

    def _ensemble(self) -> tuple[Tested, Predicted | None]:
        """Train the members, each in a process of its own, and test the mean of them."""
        self.trainer = make_evaluator(self.config.trainer, devices=1)
        members = members_of(self.files, self.config)
        if self.splits is None:
            train_members(members, self.config, self.data, self.place)
        else:
            for member in members:
                fit(member.config, show=self.show, splits=self.splits)
        with interruptible(self.trainer, self._what_is_done):
            self._forget_earlier_end()
            return evaluate_ensemble(self.trainer, self.module, self.data, members, self.files)

    def _store_options(self, trainer: Trainer, *_: Any) -> None:
        if trainer.is_global_zero:
            self._save_config(self.files.path)

    def _forget_earlier_end(self) -> None:
        """Remove what an earlier end of the run has left: until this one it is not finished."""
        run, made = self.files, ("summary", "test_predictions", "confidence", "geometry")
        files = [getattr(run, f"{name}_file") for name in made]
        for file in (*files, run.test_predictions_figure) if self.trainer.is_global_zero else ():
            file.unlink(missing_ok=True)

    def _finish(self, tested: Tested, out_of_fold: Predicted | None) -> Outcome:
        """Make what goes with the network, and store all of it.

        Training is over, so that whatever happens here leaves its result as it is.
        """
        config, module, data = self.config, self.module, self.data
        known = data.splits.smiles is not None and data.splits.featuriser is not None
        known = known and len(data.numbers.validated) > 0
        whole = tested.predictions is not None
        sure = config.keep != "none" and known and (whole or not len(data.indices("test")))
        unseen, test = out_of_fold, None
        if unseen is None and known and (config.blend or config.baselines or sure):
            unseen = out_of_sample(module, data)
        if tested.predictions is not None:
            test = on_split(module, data, "test", tested.predictions)
        wanted = {"baselines": config.baselines, "blend": config.blend}
        blended = add_baselines(module, data, unseen, test, **wanted)
        summary = _with_blend(tested.summary, blended, module, data)
        outcome = Outcome(
            self.files, self.selected, tested, out_of_fold is not None, summary, blended
        )
        outcome.interrupted = "the baselines" if blended.interrupted else ""
        checkpoint = read_checkpoint(tested.checkpoint)
        earlier = checkpoint.keys() & {BLEND, CONFIDENCE}
        checkpoint = {name: part for name, part in checkpoint.items() if name not in earlier}
        if blended.blend is not None:
            checkpoint[BLEND] = blended.blend.to_plain()
        if sure and blended.unseen is not None and not outcome.interrupted:
            try:
                self._calibrate(outcome, blended.unseen, checkpoint)
            except KeyboardInterrupt:
                outcome.interrupted = "the calibration"
        if earlier or checkpoint.keys() & {BLEND, CONFIDENCE}:
            write_checkpoint(checkpoint, tested.checkpoint)
        self._store_results(outcome)
        self.finished = not outcome.interrupted
        return outcome

    def _calibrate(self, outcome: Outcome, unseen: Predicted, checkpoint: dict[str, Any]) -> None:
        """Measure the uncertainty of the model; `checkpoint` and `outcome` get it."""
        module, data = self.module, self.data
        found = calibrate(module, data, unseen, outcome.blended.test, self.config.keep)
        outcome.calibrated = found
        checkpoint[CONFIDENCE] = found.uncertainty.to_plain()
        neighbours = found.uncertainty.neighbours
        if neighbours is not None and neighbours.smiles:
            sample = sampled(Predictor(checkpoint, "cpu"), neighbours.smiles)
            checkpoint[KEY] = {**checkpoint[KEY], SAMPLE: sample}
        write_json(self.files.confidence_file, found.to_plain())
        if found.values is None:
            return
        outcome.summary |= {"confidence": summarised(found.quality.values())}
        if module.task.kind == "binary":
            values = module.task.evaluate(data.labels(data.indices("test")), found.values)
            outcome.summary |= {f"test_{name}": value for name, value in values.items()}

    def _store_results(self, outcome: Outcome) -> None:
        """Write each test molecule, and, where nothing was interrupted, the summary."""
        module, data, test, found = self.module, self.data, outcome.blended.test, outcome.calibrated
        columns: Mapping[str, np.ndarray] = {} if found is None else found.columns
        predictions = None if test is None else test.values
        if found is not None and found.values is not None:
            predictions = found.values
        if predictions is not None:
            value = outcome.summary[f"test_{module.task.metric}"]
            new, outcome.new_elements = without_new_elements(
                module, data, "test", predictions, value
            )
            self.files.write_test_predictions(
                prediction_columns(data, "test", predictions, new, columns)
            )
        if outcome.interrupted:
            return
        self.files.write_summary(outcome.summary)
        if predictions is not None:
            from graphormer_sepnorm.compare.predictions_figure import draw_predictions

            labels = data.labels(data.indices("test"))
            draw_predictions(self.files.test_predictions_figure, module.task, labels, predictions)

    def _what_was_saved(self) -> str:
        step, last = self.trainer.global_step, self.files.last
        if not last.is_file():
            if step > self._first_step:
                return f"interrupted at step {step:,}; nothing was saved"
            return _nothing_trained(self.place)
        callbacks: list[Any] = self.trainer.callbacks  # type: ignore[attr-defined]
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


def _with_blend(
    summary: Mapping[str, Any], blended: Blended, module: GraphormerModule, data: MoleculeDataModule
) -> dict[str, Any]:
    """Return the summary of a network with that of its blend; its own is under ``network`` then."""
    summary, blend = dict(summary), blended.blend
    if blend is not None:
        slope = {} if blend.stacking is None else {"slope": blend.stacking.slope}
        summary["blend"] = {"network_weight": blend.weight, **slope}
    if blend is not None and blended.test is not None:
        test = module.task.evaluate(data.labels(blended.test.indices), blended.test.values)
        own = {f"test_{name}": value for name, value in test.items()}
        own |= {f"best_validation_{name}": value for name, value in blend.validation.items()}
        names = [name for name in summary if name.startswith(("test_", "best_validation_"))]
        network = {name: summary.pop(name) for name in names}
        summary |= {name: own[name] for name in names if name in own} | {"network": network}
    if blended.baselines:
        summary["baselines"] = [one.to_plain() for one in blended.baselines]
    return summary


def _nothing_trained(place: RunPlace) -> str:
    """Give the place of a run that has taken no step back; return what is told about it."""
    place.discard()
    return "interrupted before the first step; nothing was saved"


@contextmanager
def _explaining_full_disks(place: RunPlace) -> Iterator[None]:
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
