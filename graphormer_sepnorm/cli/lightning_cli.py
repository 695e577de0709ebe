"""The verbs fit, validate and test: LightningCLI with our checks, run directories and reports."""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import Logger
from lightning.pytorch.trainer.connectors import checkpoint_connector

from graphormer_sepnorm.cli.configs import resolve_in_arguments
from graphormer_sepnorm.cli.foreign_code import (
    OPTION,
    known_classes_only,
    names_foreign_code,
    without_option,
)
from graphormer_sepnorm.cli.help import VerbParser
from graphormer_sepnorm.cli.main import Interrupted, ending_with
from graphormer_sepnorm.cli.options import (
    CHANGEABLE,
    adopt_checkpoint,
    explain,
    explain_classes,
)
from graphormer_sepnorm.cli.outcome import report_data, report_evaluation, report_fit
from graphormer_sepnorm.cli.resume import ResumedRun, find_resumed
from graphormer_sepnorm.cli.simple_models import require_smiles
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import CheckpointError, ConfigError, DataError, GraphormerError
from graphormer_sepnorm.files import is_full, replacing
from graphormer_sepnorm.formatting import listed
from graphormer_sepnorm.inference.checkpoint import find_checkpoint, read_checkpoint
from graphormer_sepnorm.metrics import METRICS, Metric
from graphormer_sepnorm.process import command, is_first_process
from graphormer_sepnorm.resources import config_names
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
from graphormer_sepnorm.training.callbacks.logs import (
    Board,
    ContinueMetrics,
    LogTraining,
    MetricsFile,
)
from graphormer_sepnorm.training.callbacks.progress import TrainingProgress
from graphormer_sepnorm.training.callbacks.run_record import RunRecord
from graphormer_sepnorm.training.callbacks.stopping import StopBetweenSteps
from graphormer_sepnorm.training.callbacks.throughput import Throughput
from graphormer_sepnorm.training.module import TRAINED_WEIGHTS, GraphormerModule
from graphormer_sepnorm.training.report import ModelTable
from graphormer_sepnorm.training.saving import DurableCheckpointIO

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


def run_verb(arguments: list[str]) -> None:
    """Run ``fit``, ``validate`` or ``test`` with the options after it."""
    arguments, any_code = without_option(arguments)
    fit = arguments[0] == "fit"
    with (
        RunPlace() as place,
        _explaining(place),
        ending_with(lambda: _nothing_trained(place)) if fit else nullcontext(),
    ):
        resumed = find_resumed(arguments, place)
        if resumed is not None:
            arguments = resumed.arguments
        arguments, config_name = resolve_in_arguments(arguments)
        config = "" if resumed is None else str(RunDirectory(resumed.directory).configuration_file)
        with known_classes_only(config, allowed=any_code or resumed is None):
            TrainCLI(arguments, config_name, resumed, place)
    # Gloo's threads, if they are still there when Python ends, can abort a run that has succeeded.
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@contextmanager
def _explaining(place: RunPlace) -> Iterator[None]:
    """Turn what Lightning and the system say of a user's mistake, or a full disk, into one line."""
    try:
        yield
    except MisconfigurationException as error:  # as Lightning calls a mistake in its own options
        raise ConfigError(" ".join(str(error).split())) from error
    except OSError as error:
        if not is_full(error) or place.path is None:
            raise
        if place.worth_keeping:
            then = f"make room and continue with: {resuming(place.path)}"
        else:
            then = "make room, or choose another place with --output; nothing was trained"
        raise DataError(f"there is no room on the disk of {place.path}: {then}") from error


def _nothing_trained(place: RunPlace) -> str:
    """Give the place of a run that has taken no step back; return what is said about it."""
    place.discard()
    return "interrupted before the first step; nothing was saved"


def resuming(directory: Path) -> str:
    """Return the command that continues a run."""
    return f"{command('train')} fit --resume {shlex.quote(str(directory))}"


def require_data(arguments: Sequence[str]) -> None:
    """Refuse to begin, and perhaps to download, the default data set without being asked to.

    Args:
        arguments: Options of ``fit``.

    Raises:
        ConfigError: None of them says which data.
    """
    names = {word.partition("=")[0] for word in arguments}
    enough = {"-c", "--config", "--ckpt_path", "--data"}
    if not any(name in enough or name.startswith("--data.") for name in names):
        raise ConfigError(
            "which data? Give a configuration, for example -c quickstart (there are "
            f"{', '.join(config_names())}), or --data.table FILE"
        )


@contextmanager
def interruptible(trainer: Trainer, what_was_saved: Callable[[], str]) -> Iterator[None]:
    """Turn Lightning's way of ending after Ctrl-C into ours.

    Lightning lets its callbacks save the state, then exits with status 1. Outside of its loops
    there is a KeyboardInterrupt, or an end at once while something is imported.

    Raises:
        Interrupted: With what `what_was_saved` says.
    """
    with ending_with(what_was_saved):
        try:
            yield
        except KeyboardInterrupt:
            raise Interrupted(what_was_saved()) from None
        except SystemExit:
            if not trainer.interrupted:
                raise
            raise Interrupted(what_was_saved()) from None


@contextmanager
def restorable(file: str | None) -> Iterator[None]:
    """Say which checkpoint it is that Lightning cannot put back.

    What callbacks, optimisers and loops keep of themselves is checked by nobody before.

    Raises:
        CheckpointError: It failed in restoring the state of training.
    """
    try:
        yield
    except (GraphormerError, MisconfigurationException):
        raise
    except Exception as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        names = [
            frame.f_code.co_name.lstrip("_")
            for frame in frames
            if frame.f_globals.get("__name__") == checkpoint_connector.__name__
        ]
        if not any(name.startswith(("restore", "resume")) for name in names):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise CheckpointError(
            f"{file} cannot be restored ({reason}): it is damaged, or of another version of "
            "Lightning or torch"
        ) from error


class TrainCLI(LightningCLI):
    """LightningCLI for one model and one data module.

    Args:
        arguments: Verb and options, configuration files resolved.
        config_name: Stem of the configuration file, by which the run is named.
        resumed: The run that is continued in its own directory, if any.
        place: Takes the directory of the run.

    Attributes:
        run_directory: Where a run is kept; set by `fit` before training.
        selected_by: What decides on the best checkpoint; set with it.
        tested: Whether the result of a run is written.
    """

    run_directory: RunDirectory
    selected_by: Metric

    def __init__(
        self,
        arguments: list[str],
        config_name: str | None,
        resumed: ResumedRun | None = None,
        place: RunPlace | None = None,
    ) -> None:
        self.arguments = arguments
        self.config_name = config_name
        self.resumed = resumed
        self.place = place or RunPlace()
        self.tested = False
        # Optimiser steps of the checkpoint that training begins with.
        self._first_step = 0
        # Errors are raised, and printed by cli/main.py; abbreviations would hide a mistyped option.
        parsing = {"exit_on_error": False, "allow_abbrev": False}
        verbs = {verb: {**parsing, "verb": verb} for verb in self.subcommands()}
        super().__init__(
            GraphormerModule,
            MoleculeDataModule,
            save_config_callback=None,
            trainer_defaults=TRAINER_DEFAULTS,
            seed_everything_default=0,
            parser_kwargs={**parsing, **verbs},
            parser_class=VerbParser,
            args=arguments,
            auto_configure_optimizers=False,
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The verbs, and the arguments of the trainer's methods that are not options."""
        skipped = {"model", "datamodule", "weights_only"}
        return {
            "fit": skipped | {"train_dataloaders", "val_dataloaders"},
            "validate": skipped | {"dataloaders", "verbose"},
            "test": skipped | {"dataloaders", "verbose"},
        }

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the options that belong to neither trainer nor model nor data."""
        parser.add_argument(
            "--seed_everything",
            type=int,
            default=0,
            help="Decides initial parameters, order of training and dropout: same seed, same run.",
        )
        parser.add_argument(
            "--output",
            type=str | None,
            default=None,
            help="Directory of the run (fit). Default: runs/<config, or name of your table>/"
            "<norm>-seed<seed>. If it is taken, a number is added; nothing is overwritten.",
        )
        parser.add_argument(
            "--resume",
            type=str | None,
            default=None,
            help="Run directory to continue in, whatever ended the run (fit); no other option is "
            "needed, and the result is that of a run never interrupted. Classes that are neither "
            f"Lightning's nor of this package need {OPTION}: a run may come from elsewhere.",
        )
        parser.add_argument(
            "--checkpoint_minutes",
            type=float,
            default=10.0,
            help="Time between two checkpoints inside an epoch (fit); an epoch ends with one "
            "unless the last one is less than a minute old, and training always does.",
        )
        parser.add_argument(
            "--ema_decay",
            type=float,
            default=0.0,
            help="Validate, save and test an exponential moving average of the weights (fit): the "
            "share that is kept at each step, as 0.999; 0 takes the weights as they are.",
        )
        parser.add_argument(
            "--engine",
            type=Literal["eager", "captured", "compiled"],
            default="eager",
            help="How steps are taken on one GPU (fit): eager starts kernel after kernel; captured "
            "replays them as a CUDA graph, several steps for one turn of Lightning's loop, from "
            "data that stay on the GPU; compiled compiles them first, which takes minutes. Where "
            "one of these cannot be, a line says why and eager is taken.",
        )
        parser.add_argument(
            "--early_stopping",
            type=int,
            default=0,
            help="Stop after this many validations without improvement (fit); 0 never stops.",
        )
        parser.add_argument(
            "--metric",
            type=str | None,
            default=None,
            help="What decides on the validation split which checkpoint is the best, and when to "
            f"stop early (fit): {', '.join(METRICS)}. Default: mae or auroc; with real values of "
            "several targets the loss.",
        )
        parser.add_argument(
            "--baselines",
            type=bool,
            default=False,
            help="Show the test metric of simple models beside the model's (fit): a random forest "
            "and gradient boosting on Morgan fingerprints and descriptors, of real values the mean "
            "too; for data sets with SMILES. Bounded: 40,000 molecules of each split, drawn at "
            "random, and the first targets, at most 50; what is left out is said.",
        )
        parser.add_argument(
            "--blend",
            type=bool,
            default=False,
            help="Let the best checkpoint predict a weighted mean of network and gradient boosting "
            "(fit), which is fitted after training; the validation split chooses the weight. "
            "Descriptors make prediction slower by 4 to 10 ms a molecule.",
        )

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
        with explain(self._subcommand_parsers, args):
            self.config = parser.parse_args(args)  # type: ignore[arg-type]
        verb = self.config.subcommand
        options = self.config[verb]
        if options.ckpt_path is None:
            if verb != "fit":
                raise ConfigError(f"{verb} needs --ckpt_path: a checkpoint or a run directory")
            return
        file = find_checkpoint(options.ckpt_path)
        run = RunDirectory(Path(options.ckpt_path).expanduser())
        if verb == "fit" and run.last.is_file():
            file = run.last  # training goes on where it was, not where it was best
        checkpoint = read_checkpoint(file)
        if verb == "fit" and "optimizer_states" not in checkpoint:
            raise ConfigError(
                f"{file} is for prediction alone: training cannot go on from it, the state of its "
                "optimiser is not there"
            )
        with explain(self._subcommand_parsers, args):
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
        seed = self.config[self.config.subcommand].seed_everything
        if not 0 <= seed < 2**32:
            raise ConfigError(f"--seed_everything is {seed}: it must be from 0 to {2**32 - 1}")
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
        if self.subcommand != "fit":
            return super().instantiate_trainer(
                logger=False, enable_checkpointing=False, enable_progress_bar=False, **kwargs
            )
        require_data(self.arguments)  # last, so that other mistakes are said first
        if self.config["fit"].blend:
            require_smiles(self.datamodule)
        task = self.datamodule.splits.task
        store = self.datamodule.store
        validation = store.targets[self.datamodule.indices("validation")]
        selected = monitored_metric(task, validation, self.config["fit"].metric)
        self.selected_by = selected
        # The loss is drawn anyway.
        shown = task.main if selected.kind is None else selected
        if undefined := undefined_targets(task, validation, shown):
            names, all_of_them = listed(undefined), selected is not shown
            decides = "the loss decides" if all_of_them else "the other targets decide"
            log.warning(
                "validation %s is undefined for %s, which has not %s there: %s on the best "
                "checkpoint",
                *(shown.label, names, shown.lacking.removesuffix(" among its labels"), decides),
            )
        options = self.config["fit"]
        self.run_directory = run = RunDirectory(self._make_run_directory())
        given = self._get(self.config_init, "trainer")
        callbacks = [
            *(given["callbacks"] or []),
            # First what belongs to a step, then what checkpoints keep of it; what may fail and what
            # gives the signals back comes after what saves.
            *([AveragedWeights(options.ema_decay)] if options.ema_decay else []),
            *_captured(options.engine),
            LogTraining(),
            StopWhenDiverged(run.path),
            ValidateAtTheEnd(),
            Throughput(),
            *checkpoint_callbacks(
                run.path, selected.name, options.early_stopping, options.checkpoint_minutes
            ),
            LearningCurve(run.learning_curve_file, shown.name, selected.name),
            ModelTable(),
            RunRecord(run, [Path(sys.argv[0]).name, *sys.argv[1:]]),
            StopBetweenSteps(),
        ]
        if given["enable_progress_bar"] is not False:
            callbacks.append(TrainingProgress(shown.name))
        loggers = {}
        if given["logger"] is not False:
            metrics_file = MetricsFile(run.path)
            callbacks.append(ContinueMetrics(metrics_file))
            if self.resumed and options.ckpt_path is None:
                metrics_file.begin_again()
                if rank_zero_only.rank == 0:
                    shutil.rmtree(run.tensorboard, ignore_errors=True)
            # What TensorBoard has from after the checkpoint is not shown. The file first, so that
            # Lightning's log directory is the run directory.
            board = Board(run.path, self.resumed.step if self.resumed else 0)
            loggers["logger"] = [metrics_file, board, *_listed(given["logger"])]
        return super().instantiate_trainer(
            **{
                "default_root_dir": run.path,
                "callbacks": callbacks,
                "plugins": [*(given["plugins"] or []), DurableCheckpointIO()],
                **loggers,
                **kwargs,
            }
        )

    def _make_run_directory(self) -> Path:
        """Make the directory of the run with its ``config.yaml``, in the first process only."""
        wanted = self._wanted_directory()
        if rank_zero_only.rank != 0 or not is_first_process():
            return Path(os.environ.get(RUN_DIRECTORY, wanted))
        if self.resumed is not None:
            print(self.resumed.message, flush=True)
            if self.resumed.changed:  # also for the next time that the run is resumed
                self._save_config(self.resumed.directory)
            return self.resumed.directory
        directory = self.place.new(wanted)
        os.environ[RUN_DIRECTORY] = str(directory)
        self._save_config(directory)
        print(f"run    {directory}", flush=True)
        report = self.datamodule.splits.report
        if report is not None:
            report_data(report, self.datamodule, RunDirectory(directory))
        return directory

    def _save_config(self, directory: Path) -> None:
        config = self.config["fit"].clone()
        # A run can be resumed from another folder than it was started in.
        for name in ("root", "table", "validation_table", "test_table"):
            if config.data[name] is not None:
                config.data[name] = str(Path(config.data[name]).expanduser().resolve())
        if self.resumed is not None:
            config.ckpt_path = None  # a resumed run finds its own
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
        return Path("runs") / name / f"{norm}-seed{options.seed_everything}"

    def fit(self, **options: Any) -> None:
        """Train, test the best checkpoint, and say what came out."""
        with interruptible(self.trainer, self._what_was_saved):
            self._log_options()
            try:
                with restorable(options["ckpt_path"]):
                    self.trainer.fit(weights_only=True, **options)
            finally:
                self.place.worth_keeping |= self.trainer.global_step > self._first_step
        with interruptible(self.trainer, self._what_is_done):
            # Processes that Lightning did not start have not been told it.
            path = self.trainer.strategy.broadcast(self.run_directory.path)
            report_fit(self, RunDirectory(path))

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
        if self.tested:
            return f"trained and tested, what came out is in {self.run_directory.summary_file}"
        return f"trained, but not tested: {self.run_directory.path}; test with: {self._resuming()}"

    def _resuming(self) -> str:
        foreign = names_foreign_code(self.config["fit"].trainer.as_dict())
        return resuming(self.run_directory.path) + f" {OPTION}" * foreign

    def validate(self, **options: Any) -> None:
        """Evaluate a checkpoint on the validation split."""
        with interruptible(self.trainer, lambda: "interrupted"), restorable(options["ckpt_path"]):
            report_evaluation(self, "validation", options["ckpt_path"])

    def test(self, **options: Any) -> None:
        """Evaluate a checkpoint on the test split."""
        with interruptible(self.trainer, lambda: "interrupted"), restorable(options["ckpt_path"]):
            report_evaluation(self, "test", options["ckpt_path"])


def _listed(loggers: Any) -> list[Logger]:
    """The loggers of an option: one, several, or True or None for none of the user's own."""
    if loggers is None or loggers is True:
        return []
    return [loggers] if isinstance(loggers, Logger) else list(loggers)


def _captured(engine: str) -> list[Callback]:
    """The callback of an engine; loaded for its users only, since it needs Lightning's insides."""
    if engine == "eager":
        return []
    from graphormer_sepnorm.training.captured.engine import CapturedTraining

    return [CapturedTraining(engine == "compiled")]
