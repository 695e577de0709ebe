"""The verbs fit, validate and test: LightningCLI with our checks, run directories and reports."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import TensorBoardLogger

from graphormer_sepnorm.cli.checkpoint_options import (
    CHANGEABLE,
    adopt_checkpoint,
    refuse_own_class_1,
)
from graphormer_sepnorm.cli.configs import resolve_in_arguments
from graphormer_sepnorm.cli.endings import explaining, interruptible, restorable
from graphormer_sepnorm.cli.ensemble import (
    check_ensemble,
    check_metric_of_members,
    evaluate_ensemble,
    members_of,
    train_members,
)
from graphormer_sepnorm.cli.fit_report import (
    predictions_file,
    report_data,
    report_evaluation,
    report_fit,
)
from graphormer_sepnorm.cli.foreign_code import (
    OPTION,
    known_classes_only,
    names_foreign_code,
    without_option,
)
from graphormer_sepnorm.cli.help import VerbParser
from graphormer_sepnorm.cli.main import Interrupted, ending_with
from graphormer_sepnorm.cli.options import (
    OPTIONS,
    PREDICTIONS,
    check_numbers,
    check_seed,
    explain,
    explain_classes,
    refuse_for_a_member,
    refuse_options_of_fit,
    refuse_shape,
    require_data,
)
from graphormer_sepnorm.cli.outcome import Tested, evaluate_best, finish
from graphormer_sepnorm.cli.resume import ResumedRun, find_resumed
from graphormer_sepnorm.cli.simple_models import require_smiles
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.graph_numbers import MemberFolds
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.files import replacing
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.inference.checkpoint import find_checkpoint, read_checkpoint
from graphormer_sepnorm.metrics import LAST, Metric
from graphormer_sepnorm.process import is_first_process, resuming
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.runs.place import RunPlace
from graphormer_sepnorm.training.callbacks.averaging import AveragedWeights
from graphormer_sepnorm.training.callbacks.checkpoints import (
    LastCheckpoint,
    ValidateAtTheEnd,
    checkpoint_callbacks,
    monitored_metric,
    undefined_targets,
)
from graphormer_sepnorm.training.callbacks.divergence import StopWhenDiverged
from graphormer_sepnorm.training.callbacks.learning_curve import LearningCurve
from graphormer_sepnorm.training.callbacks.logs import LogTraining, MetricsFile
from graphormer_sepnorm.training.callbacks.progress import ModelTable, TrainingProgress
from graphormer_sepnorm.training.callbacks.run_record import RunRecord, Throughput
from graphormer_sepnorm.training.callbacks.stopping import StopBetweenSteps
from graphormer_sepnorm.training.module import TRAINED_WEIGHTS, GraphormerModule
from graphormer_sepnorm.training.saving import DurableCheckpointIO
from graphormer_sepnorm.training.steps import settled_epochs

log = logging.getLogger(__name__)

# Options that loggers are given, beside those of the model, the data and the trainer.
_LOGGED = ("seed_everything", "ema_decay", "early_stopping", "metric", "engine")

TRAINER_DEFAULTS = {
    "enable_model_summary": False,  # our table says more
    "num_sanity_val_steps": 0,  # two validation batches before training would only cost time
    "use_distributed_sampler": False,  # the batch sampler is our own
}

# Tells processes that Lightning starts for other devices where the first one keeps the run.
RUN_DIRECTORY = "GRAPHORMER_RUN_DIRECTORY"


def run_verb(arguments: list[str], called: str | None = None) -> None:
    """Run ``fit``, ``validate`` or ``test`` with the options after it.

    Args:
        arguments: The verb and its options.
        called: The name that the verb is known by, in its help; None: its own.
    """
    arguments, any_code = without_option(arguments)
    # As all other verbs and predict.py have it.
    arguments = ["--output" if word == "-o" else word for word in arguments]
    fit = arguments[0] == "fit"
    with (
        RunPlace() as place,
        explaining(place),
        ending_with(lambda: _nothing_trained(place)) if fit else nullcontext(),
    ):
        resumed = find_resumed(arguments, place)
        if resumed is not None:
            arguments = resumed.arguments
        typed = arguments[1:]
        arguments, config_name = resolve_in_arguments(arguments)
        config = "" if resumed is None else str(RunDirectory(resumed.directory).configuration_file)
        with known_classes_only(config, allowed=any_code or resumed is None):
            TrainCLI(arguments, config_name, resumed, place, typed, called)
    # Gloo's threads, if they are still there when Python ends, can abort a run that has succeeded.
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _nothing_trained(place: RunPlace) -> str:
    """Give the place of a run that has taken no step back; return what is said about it."""
    place.discard()
    return "interrupted before the first step; nothing was saved"


class TrainCLI(LightningCLI):
    """LightningCLI for one model and one data module.

    Args:
        arguments: Verb and options, configuration files resolved.
        config_name: Stem of the configuration file, by which the run is named.
        resumed: The run that is continued in its own directory, if any.
        place: Takes the directory of the run.
        typed: Options as they were given, from which the members of an ensemble begin.
        called: See `run_verb`.

    Attributes:
        run_directory: Where a run is kept; set by `fit` before training.
        selected_by: What decides on the best checkpoint; set with it.
        finished: Whether the result of a run is written.
    """

    run_directory: RunDirectory
    selected_by: Metric

    def __init__(
        self,
        arguments: list[str],
        config_name: str | None,
        resumed: ResumedRun | None = None,
        place: RunPlace | None = None,
        typed: Sequence[str] = (),
        called: str | None = None,
    ) -> None:
        self.arguments = arguments
        self.typed = typed
        self.config_name = config_name
        self.resumed = resumed
        self.place = place or RunPlace()
        self.finished = False
        self._first_step = 0  # optimiser steps of the checkpoint that training begins with
        # Errors are raised, and printed by cli/main.py; abbreviations would hide a mistyped option.
        parsing = {"exit_on_error": False, "allow_abbrev": False}
        verb = arguments[0]
        super().__init__(
            GraphormerModule,
            MoleculeDataModule,
            save_config_callback=None,
            trainer_defaults=TRAINER_DEFAULTS,
            seed_everything_default=0,
            parser_kwargs={**parsing, verb: {**parsing, "verb": called or verb}},
            parser_class=VerbParser,
            args=arguments,
            auto_configure_optimizers=False,
        )

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """The verb, and the arguments of the trainer's method that are not options.

        Not all verbs: their parsers would take a fifth of a second each.
        """
        skipped = {"model", "datamodule", "weights_only"}
        loaders = {"train_dataloaders", "val_dataloaders"}
        verb = self.arguments[0]
        return {verb: skipped | (loaders if verb == "fit" else {"dataloaders", "verbose"})}

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the options that belong to neither trainer nor model nor data."""
        for name, (kind, default, said) in OPTIONS.items():
            parser.add_argument(f"--{name}", type=kind, default=default, help=said)
        if self.arguments[0] != "fit":  # which keeps them in its directory
            parser.add_argument("--predictions", type=str | None, default=None, help=PREDICTIONS)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Tie options together that must agree."""
        parser.link_arguments("model.max_path_length", "data.max_path_length")
        parser.link_arguments("seed_everything", "model.seed")
        parser.link_arguments("seed_everything", "data.seed")

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse; with ``--ckpt_path``, values that are not given come from the checkpoint.

        Raises:
            ConfigError: An option is unknown or has no fitting value, or a value that was given
                contradicts the checkpoint, or training is to go on from one without its state.
        """
        verb = self.arguments[0]
        with explain(self._subcommand_parsers[verb]):
            self.config = parser.parse_args(args)  # type: ignore[arg-type]
        options = self.config[verb]
        if verb != "fit":
            refuse_options_of_fit(verb, self.typed)
        else:
            check_numbers(options)
            if options.resume is not None:  # on the command line it has been taken by now
                raise ConfigError(
                    f"resume: {options.resume} stands in a configuration file, which does not "
                    "continue a run: take it out, and give --resume on the command line"
                )
            check_ensemble(options, self.typed)
        if options.ckpt_path is not None:
            self._take_checkpoint(parser, args)
        elif verb != "fit":
            raise ConfigError(f"{verb} needs --ckpt_path: a checkpoint or a run directory")

    def _take_checkpoint(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse again, beside what ``--ckpt_path`` says."""
        verb = self.arguments[0]
        options = self.config[verb]
        file = find_checkpoint(options.ckpt_path)
        run = RunDirectory(Path(options.ckpt_path).expanduser())
        if verb == "fit" and run.last.is_file():
            file = run.last  # training goes on where it was, not where it was best
        checkpoint = read_checkpoint(file)
        if verb != "fit":
            refuse_own_class_1(checkpoint)
        if verb == "fit" and "optimizer_states" not in checkpoint:
            raise ConfigError(
                f"{file} is for prediction alone: training cannot go on from it, the state of its "
                "optimiser is not there"
            )
        with explain(self._subcommand_parsers[verb]):
            self.config = adopt_checkpoint(
                parser,
                self._subcommand_parsers[verb],
                verb,
                args,
                file,
                checkpoint,
                changeable=CHANGEABLE if self.resumed else (),
            )
        self._first_step = int(checkpoint.get("global_step", 0))
        if verb == "fit" and TRAINED_WEIGHTS in checkpoint and not self.config[verb].ema_decay:
            raise ConfigError(f"{file} holds averaged weights: give --ema_decay to go on with them")
        self.config[verb].ckpt_path = str(file)

    def _set_seed(self) -> None:
        check_seed(self.config[self.config.subcommand].seed_everything)
        super()._set_seed()

    def _parse_ckpt_path(self) -> None:
        """Do nothing: LightningCLI would let the checkpoint win over the command line here."""

    def instantiate_classes(self) -> None:
        """Make what the options name.

        Raises:
            ConfigError: It cannot be made; a package that it needs is not installed, for example.
        """
        with explain_classes():
            super().instantiate_classes()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Prepare the data and the run directory, then make the trainer."""
        # A pre-trained network has its own.
        self.datamodule.max_path_length = self.model.architecture.max_path_length
        if self.subcommand != "fit":
            return self._evaluator(**kwargs)
        require_data(self.arguments)  # last, so that other mistakes are said first
        if self.model.backbone is not None:
            refuse_shape(self.typed, self.model.backbone.name)
        if self.config["fit"].blend:
            require_smiles(self.datamodule)
        options = self.config["fit"]
        if options.ensemble > 1 and options.ensemble_by == "folds":
            self.datamodule.deal_members(MemberFolds(options.ensemble))
        refuse_for_a_member(options)
        kwargs["max_epochs"] = settled_epochs(options.trainer, self.datamodule)
        options.trainer.max_epochs = kwargs["max_epochs"]
        shown = self._select(options.metric, options.early_stopping)
        self.run_directory = run = RunDirectory(self._make_run_directory())
        if options.ensemble > 1:  # its members train by themselves; this one evaluates their mean
            return self._evaluator(devices=1)
        given = self._get(self.config_init, "trainer")
        metrics_file = None if given["logger"] is False else MetricsFile(run.path)
        callbacks = [
            *_listed(given["callbacks"]),
            # First what belongs to a step, then what checkpoints keep of it; what may fail and what
            # gives the signals back comes after what saves.
            *([AveragedWeights(options.ema_decay)] if options.ema_decay else []),
            *_captured(options.engine),
            LogTraining(metrics_file),
            StopWhenDiverged(run.path),
            ValidateAtTheEnd(),
            Throughput(),
            *checkpoint_callbacks(
                run.path,
                self.selected_by.name,
                options.early_stopping,
                options.checkpoint_minutes,
            ),
            LearningCurve(run.learning_curve_file, shown.name, self.selected_by.name),
            ModelTable(),
            RunRecord(run, [Path(sys.argv[0]).name, *sys.argv[1:]]),
            StopBetweenSteps(),
        ]
        if self.resumed is not None and self.resumed.changed:
            # Also for the next time that the run is resumed, if it can go on with these options.
            callbacks.append(LambdaCallback(on_train_start=self._keep_options))
        if given["enable_progress_bar"] is not False:
            callbacks.append(TrainingProgress(shown.name))
        loggers = {}
        if metrics_file is not None:
            if self.resumed and options.ckpt_path is None:
                metrics_file.keep(0)
                if rank_zero_only.rank == 0:
                    shutil.rmtree(run.tensorboard, ignore_errors=True)
            # What TensorBoard has from after the checkpoint is not shown. The file first, so that
            # Lightning's log directory is the run directory.
            board = TensorBoardLogger(
                run.path,
                "",
                run.tensorboard.name,
                purge_step=self.resumed.step or None if self.resumed else None,
                default_hp_metric=False,
            )
            loggers["logger"] = [metrics_file, board, *_listed(given["logger"])]
        return super().instantiate_trainer(
            **{
                "default_root_dir": run.path,
                "accelerator": self._accelerator,
                "callbacks": callbacks,
                "plugins": [*_listed(given["plugins"]), DurableCheckpointIO()],
                **loggers,
                **kwargs,
            }
        )

    def _evaluator(self, **kwargs: Any) -> Trainer:
        return super().instantiate_trainer(
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            accelerator=self._accelerator,
            **kwargs,
        )

    @property
    def _accelerator(self) -> Any:
        """That of the options; Lightning would take Apple's GPU, which is for those who name it."""
        given = self._get(self.config_init, "trainer")["accelerator"]
        if given == "auto":
            return "cuda" if CUDAAccelerator.is_available() else "cpu"
        return "cuda" if given == "gpu" else given

    def _select(self, wanted: str | None, patience: int) -> Metric:
        """Say what decides on the best checkpoint; return what is shown of a validation."""
        task = self.datamodule.splits.task
        validation = self.datamodule.store.targets[self.datamodule.numbers.validated]
        self.selected_by = selected = monitored_metric(task, validation, wanted, patience)
        check_metric_of_members(self.datamodule, wanted, patience)
        # The loss is drawn anyway.
        shown = task.main if selected.kind is None else selected
        if selected is LAST:
            return shown
        if undefined := undefined_targets(task, validation, shown):
            log.warning(
                "validation %s is undefined for %s, which has not %s there: %s on the best "
                "checkpoint",
                shown.label,
                listed(undefined),
                shown.lacking.removesuffix(" among its labels"),
                "the other targets decide" if selected is shown else "the loss decides",
            )
        return shown

    def _make_run_directory(self) -> Path:
        """Make the directory of the run with its ``config.yaml``, in the first process only."""
        wanted = self._wanted_directory()
        if rank_zero_only.rank != 0 or not is_first_process():
            return Path(os.environ.get(RUN_DIRECTORY, wanted))
        if self.resumed is not None:
            print(self.resumed.message, flush=True)
            # Of an ensemble only what follows the training can be another.
            if self.resumed.changed and self.config["fit"].ensemble > 1:
                self._save_config(self.resumed.directory)
            begins = self.config["fit"].ckpt_path is None
            if begins and not RunDirectory(wanted).members.is_dir():
                self._report_data(wanted)  # the table may have been mended meanwhile
            return wanted
        directory = self.place.new(wanted)
        os.environ[RUN_DIRECTORY] = str(directory)
        self._save_config(directory)
        print(f"run    {directory}", flush=True)
        before = RunDirectory(wanted)
        if directory != wanted and before.configuration_file.is_file() and not before.finished:
            again = resuming(wanted)
            print(f"{wanted} has a run that has not ended; {again} goes on with it", flush=True)
        elif directory != wanted and self.config["fit"].output is not None:
            print(f"{wanted} is taken, and stays as it is", flush=True)
        self._report_data(directory)
        return directory

    def _report_data(self, directory: Path) -> None:
        """Say what is in a table, and keep it with the run that begins."""
        report = self.datamodule.splits.report
        if report is not None:
            report_data(
                report,
                self.datamodule,
                RunDirectory(directory),
                fine_tuned=self.model.backbone is not None,
            )

    def _keep_options(self, trainer: Trainer, *_: Any) -> None:
        """Keep the options of a resumed run, in the first process."""
        if trainer.is_global_zero and self.resumed is not None and self.resumed.changed:
            self._save_config(self.resumed.directory)

    def _save_config(self, directory: Path) -> None:
        config = self.config["fit"].clone()
        # A run can be resumed from another folder than it was started in.
        for name in ("root", "table", "validation_table", "test_table", "molecules"):
            if config.data[name] is not None:
                config.data[name] = str(Path(config.data[name]).expanduser().resolve())
        # A pre-trained network has its own, and data are prepared for it.
        config.model.max_path_length = self.model.architecture.max_path_length
        if self.resumed is not None:
            config.ckpt_path = None  # a resumed run finds its own
            if self.model.facts:  # it needs none any more, and was begun with it all the same
                config.model.from_pretrained = self.model.facts.get("from_pretrained") or None
        with replacing(RunDirectory(directory).configuration_file) as partial:
            self._parser("fit").save(config, partial, skip_none=False, overwrite=True)

    def _wanted_directory(self) -> Path:
        options = self.config["fit"]
        if self.resumed is not None:
            return self.resumed.directory
        if options.output is not None:
            return Path(options.output).expanduser()
        name = self.config_name or self.datamodule.dataset
        if self.datamodule.table_options is not None:
            name = self.datamodule.splits.name
        norm = self.model.architecture.norm
        together = f"-ensemble{options.ensemble}" if options.ensemble > 1 else ""
        return Path("runs") / name / f"{norm}-seed{options.seed_everything}{together}"

    def fit(self, **options: Any) -> None:
        """Train, test the best checkpoint, and say what came out."""
        if self.config["fit"].ensemble > 1:
            self._fit_ensemble()
            return
        with interruptible(self.trainer, self._what_was_saved):
            self._log_options()
            try:
                with restorable(options["ckpt_path"]):
                    self.trainer.fit(weights_only=True, **options)
                self._keep_options(self.trainer)  # also where nothing was left to train
            finally:
                self.place.worth_keeping |= self.trainer.global_step > self._first_step
        with interruptible(self.trainer, self._what_is_done):
            # Processes that Lightning did not start have not been told it.
            run = RunDirectory(self.trainer.strategy.broadcast(self.run_directory.path))
            tested = evaluate_best(self.trainer, self.model, self.datamodule, run, self.selected_by)
            if tested is not None:
                self._finish(tested)

    def _finish(self, tested: Tested) -> None:
        wanted = {name: self.config["fit"][name] for name in ("baselines", "blend", "keep")}
        outcome = finish(tested, self.model, self.datamodule, **wanted)
        self.finished = not outcome.interrupted
        report_fit(outcome, self.model)
        if outcome.interrupted:
            raise Interrupted(f"{outcome.interrupted} interrupted; {self._what_is_done()}")

    def _fit_ensemble(self) -> None:
        options, run = self.config["fit"], self.run_directory
        members = members_of(run, options, self.typed)
        foreign = names_foreign_code(options.trainer.as_dict())
        train_members(members, options, self.datamodule, self.place, foreign)
        with interruptible(self.trainer, self._what_is_done):
            work = (self.trainer, self.model, self.datamodule)
            tested = evaluate_ensemble(*work, members, run, self.selected_by)
            self._finish(tested)

    def _log_options(self) -> None:
        """Give the loggers the options of the run, but for their own: those can hold passwords."""
        if not self.trainer.is_global_zero:
            return
        options = self.config["fit"].as_dict()
        kept = {name: options[name] for name in (*_LOGGED, "model", "data", "trainer")}
        del kept["trainer"]["logger"]
        for logger in self.trainer.loggers:
            logger.log_hyperparams(json.loads(json.dumps(kept, default=str)))

    def _what_was_saved(self) -> str:
        last = self.run_directory.last
        if not last.is_file():
            if self.trainer.global_step > self._first_step:
                return f"interrupted at step {self.trainer.global_step:,}; nothing was saved"
            return _nothing_trained(self.place)
        callbacks: list[Any] = self.trainer.callbacks  # type: ignore[attr-defined]
        saving = next(call for call in callbacks if isinstance(call, LastCheckpoint))
        step = f" of step {saving.saved_step:,}" if saving.saved_step >= 0 else ""
        return (
            f"interrupted at step {self.trainer.global_step:,}; the checkpoint{step} is in {last}; "
            f"continue with: {self._resuming()}"
        )

    def _what_is_done(self) -> str:
        if self.finished:
            return f"trained and tested, what came out is in {self.run_directory.summary_file}"
        run = self.run_directory.path
        return f"trained, but not all that follows is done: {run}; go on with: {self._resuming()}"

    def _resuming(self) -> str:
        foreign = names_foreign_code(self.config["fit"].trainer.as_dict())
        return resuming(self.run_directory.path) + f" {OPTION}" * foreign

    def validate(self, **options: Any) -> None:
        """Evaluate a checkpoint on the validation split."""
        self._evaluate("validation", options["ckpt_path"])

    def test(self, **options: Any) -> None:
        """Evaluate a checkpoint on the test split."""
        self._evaluate("test", options["ckpt_path"])

    def _evaluate(self, split: str, checkpoint: str) -> None:
        name = self.config[self.config.subcommand].predictions
        file = predictions_file(name, self.trainer, split)
        with interruptible(self.trainer, lambda: "interrupted"), restorable(checkpoint):
            report_evaluation(self.trainer, self.model, self.datamodule, split, checkpoint, file)


def _listed(given: Any) -> list[Any]:
    """What an option of the trainer names: one, several, or True or None for none."""
    if given is None or given is True:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _captured(engine: str) -> list[Callback]:
    """The callback of an engine; loaded for its users only, since it needs Lightning's insides."""
    if engine == "eager":
        return []
    from graphormer_sepnorm.training.captured.engine import CapturedTraining

    return [CapturedTraining(engine == "compiled")]
