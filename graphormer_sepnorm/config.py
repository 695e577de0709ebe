"""Every option of a training, once: name, type, range, default and meaning.

The command line, configuration files, estimators, checkpoints and comparisons read these classes.
No torch here: help is shown, and a mistake is said, before anything heavy is loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import yaml

from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.files import write_text
from graphormer_sepnorm.formatting import in_a_line
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.model.config import FROM_DATA, REGULARIZATION, GraphormerConfig
from graphormer_sepnorm.resources import config_path
from graphormer_sepnorm.values import Options, ranged

LossChoice = Literal["auto", "l1", "mse", "bce"]
OptimizerName = Literal["adamw", "muon"]
DecayedName = Literal["matrices", "all"]
ScheduleName = Literal["linear", "cosine"]
UniformityOn = Literal["graph_token", "atoms", "both"]
Keep = Literal["none", "fingerprints", "smiles", "labels"]
MAX_MEMBERS = 64
MEMBERS = ("networks", "trees", "kernel")
# Options of the model by which a run may go on in another way than it was begun with.
CHANGEABLE = (
    *("learning_rate", "final_learning_rate", "warmup_steps", "schedule", "weight_decay"),
    *("betas", "eps", "precise_bn_graphs", "frozen_bn_fraction"),
    *("uniformity_weight", "uniformity_on"),
    *REGULARIZATION,
)


@dataclass(frozen=True)
class ModelConfig(GraphormerConfig):
    """A network, as `GraphormerConfig` has it, and how it is trained.

    Attributes:
        loss: l1, mse or bce (binary targets); auto takes l1 or bce, whichever fits.
        optimizer: adamw, or muon, which trains the matrices of the layers by Muon and the rest by
            AdamW. Costs 30 ms a step on a CPU core at 12 layers of 72 channels.
        learning_rate: Peak learning rate, reached at the end of the warm-up.
        final_learning_rate: Learning rate at the end of training.
        weight_decay: Decoupled (AdamW's) decay of what weight_decay_on says.
        weight_decay_on: matrices (of linear layers: biases, norms, embeddings and the graph token
            are not decayed), or all parameters, as the reference code of Graphormer.
        warmup_steps: Optimizer steps of linear warm-up; below 1 a fraction of all steps.
        schedule: linear or cosine decay after the warm-up.
        betas: AdamW's decay rates of the running moments.
        eps: AdamW's guard against division by zero.
        label_fraction: Share of a batch's labels, sampled anew each time, that enter the training
            loss; for pre-training on hundreds of targets (CheMeleon takes 0.15).
        target_weights: How much the loss of each of several targets counts, in their order; only
            ratios matter. null: all the same.
        uniformity_weight: Weight of the auxiliary loss that pushes the last embeddings apart
            (SepNorm's paper, Eq. 8); 0 leaves it out. Behind BatchNorm, which centers them already,
            it acts on that norm's scale and shift alone.
        uniformity_on: Which embeddings it pushes apart: graph_token, atoms or both.
        precise_bn_graphs: Training graphs on which BatchNorm's statistics are measured before each
            validation; 0 keeps the running averages of training. Costs their forward pass.
        frozen_bn_fraction: Share of the steps, the last ones, in which BatchNorm's statistics are
            measured once and then constants, in training as in evaluation; 0 to below 1. Needs
            precise_bn_graphs. Without a BatchNorm it does nothing.
        from_pretrained: A trained network to begin with: a bundled model's name, a run directory or
            a checkpoint. All but the readout is taken from it, and the options of the network too,
            but for dropout; of an ensemble its first member's.
    """

    section: ClassVar[str] = "--model."
    loss: LossChoice = "auto"
    optimizer: OptimizerName = "adamw"
    learning_rate: float = ranged(2e-4, above=0)
    final_learning_rate: float = ranged(1e-9, least=0)
    weight_decay: float = ranged(0.01, least=0)
    weight_decay_on: DecayedName = "matrices"
    warmup_steps: int | float = ranged(0.1, least=0)
    schedule: ScheduleName = "linear"
    betas: tuple[float, float] = ranged((0.9, 0.999), least=0, below=1)
    eps: float = ranged(1e-8, above=0)
    label_fraction: float = ranged(1.0, above=0, most=1)
    target_weights: tuple[float, ...] | None = ranged(None, above=0)
    uniformity_weight: float = ranged(0.0, least=0)
    uniformity_on: UniformityOn = "graph_token"
    precise_bn_graphs: int = ranged(2048, least=0)
    frozen_bn_fraction: float = ranged(0.0, least=0, below=1)
    from_pretrained: str | None = None
    # Of the network, and decided by the data.
    num_targets: int = field(default=1, init=False)
    mean_atoms: float = field(default=1.0, init=False)
    extra_inputs: int = field(default=0, init=False)
    exclusive: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.precise_bn_graphs == 1:
            raise ConfigError("--model.precise_bn_graphs is 1: it must be 0, or 2 or more")
        if self.frozen_bn_fraction and not self.precise_bn_graphs:
            raise ConfigError(
                "--model.frozen_bn_fraction needs --model.precise_bn_graphs: BatchNorm's "
                "statistics are fixed as they are measured"
            )

    @property
    def network(self) -> GraphormerConfig:
        """The options of the network alone."""
        own = {name: getattr(self, name) for name in GraphormerConfig.names()}
        return GraphormerConfig(**own)


@dataclass(frozen=True)
class TrainerConfig(Options):
    """Length, place and precision of a training: what Lightning's Trainer is given.

    Attributes:
        max_epochs: Epochs to train for; -1 is no limit. null: of a table as many as suit its size.
        max_steps: Optimizer steps to train for; -1 is no limit.
        max_time: Time to train for, as DD:HH:MM:SS.
        check_val_every_n_epoch: Epochs between two validations.
        val_check_interval: Batches (or share of an epoch) between two validations; null takes
            check_val_every_n_epoch.
        gradient_clip_val: Largest norm of the gradient; null clips nothing.
        gradient_clip_algorithm: norm, or value, which clips each number by itself.
        accumulate_grad_batches: Batches whose gradients are added for one step.
        precision: 32-true, bf16-mixed or 16-mixed.
        accelerator: auto (a GPU with CUDA if there is one), gpu or cpu.
        devices: auto, or how many processes or GPUs train together.
        num_nodes: Machines that train together.
        strategy: How devices work together; auto takes ddp for several.
        limit_train_batches: Batches of an epoch (or share of them), to try something out.
        limit_val_batches: Batches of a validation (or share of them); 0 validates never.
        limit_test_batches: Batches of the test (or share of them).
        log_every_n_steps: Steps between two rows of metrics.csv.
        deterministic: Whether a GPU takes only operations that give the same numbers each time.
        enable_progress_bar: Whether progress is shown.
        fast_dev_run: Takes so many batches and keeps nothing, to see whether anything fails.
    """

    section: ClassVar[str] = "--trainer."
    max_epochs: int | None = ranged(None, least=-1)
    max_steps: int = ranged(-1, least=-1)
    max_time: str | None = None
    check_val_every_n_epoch: int | None = ranged(1, least=1)
    val_check_interval: int | float | None = ranged(None, above=0)
    gradient_clip_val: float | None = ranged(None, least=0)
    gradient_clip_algorithm: Literal["norm", "value"] | None = None
    accumulate_grad_batches: int = ranged(1, least=1)
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    accelerator: str = "auto"
    devices: list[int] | str | int = "auto"
    num_nodes: int = ranged(1, least=1)
    strategy: str = "auto"
    limit_train_batches: int | float | None = ranged(None, above=0)
    limit_val_batches: int | float | None = ranged(None, least=0)
    limit_test_batches: int | float | None = ranged(None, above=0)
    log_every_n_steps: int | None = ranged(None, least=1)
    deterministic: bool | None = None
    enable_progress_bar: bool = True
    fast_dev_run: bool | int = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_epochs", "max_steps"):
            if getattr(self, name) == 0:
                raise ConfigError(f"--trainer.{name} is 0: nothing would be trained")
        if self.accelerator == "mps":  # has no float64
            raise ConfigError("--trainer.accelerator mps is not supported: use cpu")
        if any(word in self.strategy for word in ("spawn", "fork", "notebook")):
            raise ConfigError(
                f"--trainer.strategy {self.strategy} copies this process, and it holds what cannot "
                "be: give ddp, which starts a command for each device"
            )


@dataclass(frozen=True)
class FitConfig(Options):
    """A whole training: data, network, trainer, and what is made when it has ended.

    Attributes:
        seed_everything: Decides initial parameters, order of training and dropout: same seed, same
            run.
        output: Directory of the run; -o for short. Default: runs/<config, or name of your table>/
            <norm>-seed<seed>. If it is taken, a number is added; nothing is overwritten.
        checkpoint_minutes: Time between two checkpoints inside an epoch; an epoch ends with one
            unless the last one is less than a minute old, and training always does.
        ema_decay: Validate, save and test an exponential moving average of the weights: the share
            that is kept at each step, as 0.999; 0 takes the weights as they are.
        engine: How steps are taken on one GPU: eager starts kernel after kernel; captured replays
            them as a CUDA graph, from data that stay on the GPU; compiled compiles them first,
            which takes minutes. Where one of these cannot be, a line says why and eager is taken.
        early_stopping: Stop after this many validations without improvement; 0 never stops.
        metric: What decides on the validation split which checkpoint is the best, and when to stop
            early: {metrics} or loss. Default: mae or auroc; with real values of several targets the
            loss. last: none is chosen, the end of training is taken.
        ensemble: Train so many networks and predict the mean of their values. Their seeds follow
            upon seed_everything; each is trained by a process of its own, in members/ of the run.
        ensemble_by: What the members of an ensemble differ in: their seeds, with the same molecules
            to train and to validate on; or also in a fold of training and validation split
            together, which one of them validates on and the others train on (your own tables).
            Validation metrics are out of fold then, and a blend is weighted by them.
        baselines: Show the test metric of simple models next to the model's: a random forest and
            gradient boosting on Morgan fingerprints and descriptors, kernel ridge regression on
            counts of substructures, of real values the mean too; for data sets with SMILES.
            Bounded: 40,000 molecules of each split, sampled at random, and the first targets, at
            most 50; what is left out is said.
        members: Of what the model predicts a weighted mean, some of networks, trees and kernel: the
            last two are gradient boosting and kernel ridge regression, which are fitted after the
            training of the networks; the validation split, or errors out of fold, choose the
            weights. They make prediction slower by 4 to 7 ms a molecule. Without networks a model
            of 1,000 molecules takes under a minute; it does not embed or explain.
        keep: What the checkpoint stores of the training molecules, if they have SMILES: their
            fingerprints, their SMILES too, their labels too; at most 40,000, sampled at random. By
            the first predictions get intervals or calibrated probabilities, similarity and domain,
            by the others predict.py --neighbors names the most similar ones. none stores nothing,
            and there are no intervals.
        logger: Where metrics go besides metrics.csv: tensorboard, wandb or mlflow, if installed.
    """

    section: ClassVar[str] = "--"
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    seed_everything: int = ranged(0, least=0, below=2**32)
    output: str | None = None
    checkpoint_minutes: float = ranged(10.0, least=0)
    ema_decay: float = ranged(0.0, least=0, below=1)
    engine: Literal["eager", "captured", "compiled"] = "eager"
    early_stopping: int = ranged(0, least=0)
    metric: str | None = None
    ensemble: int = ranged(1, least=1, most=MAX_MEMBERS)
    ensemble_by: Literal["seeds", "folds"] = "seeds"
    baselines: bool = False
    members: list[str] | str = MEMBERS[:1]  # type: ignore[assignment]
    keep: Keep = "smiles"
    logger: Literal["csv", "tensorboard", "wandb", "mlflow"] = "csv"

    def __post_init__(self) -> None:
        if isinstance(self.members, str):
            bare = self.members.strip("[]").split(",")
            object.__setattr__(self, "members", [name.strip() for name in bare])
        super().__post_init__()
        for name in self.members:
            if name not in MEMBERS:
                raise ConfigError(
                    f"--members names {name!r}{did_you_mean(name, MEMBERS)}: give some of "
                    f"{', '.join(MEMBERS)}"
                )
        object.__setattr__(self, "members", tuple(one for one in MEMBERS if one in self.members))
        if not self.members:
            raise ConfigError(f"--members is empty: give some of {', '.join(MEMBERS)}")
        if self.metric is not None and self.metric not in METRICS:
            raise ConfigError(
                f"--metric is {self.metric!r}{did_you_mean(self.metric, METRICS)}: it must be one "
                f"of {', '.join(METRICS)}"
            )
        if self.seed_everything > (most := 2**32 - self.ensemble):
            raise ConfigError(
                f"--seed_everything is {self.seed_everything}: with --ensemble {self.ensemble} it "
                f"must be {most} or less"
            )
        trainer = self.trainer
        alone = trainer.fast_dev_run or trainer.num_nodes > 1 or trainer.limit_val_batches == 0
        if self.ensemble > 1 and alone:
            raise ConfigError(
                f"--ensemble {self.ensemble} goes with none of --trainer.fast_dev_run, "
                "--trainer.num_nodes and --trainer.limit_val_batches 0"
            )

    @classmethod
    def read(cls, name: str | Path, options: Mapping[str, Any] | None = None) -> Self:
        """Read a configuration: a YAML file, or one that comes with the package, by its name.

        Args:
            name: Such as ``table``, or a path.
            options: In place of those that stand there, as ``{"data.table": "mine.csv"}``.

        Raises:
            ConfigError: There is none, or an option cannot be.
        """
        path, content = read_yaml(name)
        try:
            return cls.from_plain(content).with_options(options or {})
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Make it of a dictionary in sections, as `to_plain` gives it.

        What is missing has its default.

        Raises:
            ConfigError: An option does not exist, or has a value that cannot be.
        """
        given = dict(plain)
        for name, section in SECTIONS.items():
            values = given.get(name) or {}
            if not isinstance(values, Mapping):
                raise ConfigError(f"expected options in {name}:")
            given[name] = section(**_known(values, section.names(), f"{name}."))
        return cls(**_known(given, cls.names(), ""))

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """Return it with other values of some options, by names as ``model.norm``.

        Raises:
            ConfigError: An option does not exist, or has a value that cannot be.
        """
        changed = self.to_plain()
        for name, value in options.items():
            section, _, own = name.rpartition(".")
            place = changed.get(section) if section else changed
            if not isinstance(place, dict):
                raise ConfigError(f"unknown option {name}")
            place[own] = value
        return self.from_plain(changed)

    def differences(self, other: FitConfig) -> dict[str, tuple[Any, Any]]:
        """Return the options that differ, as ``model.norm``, with both values."""
        ours, theirs = flat(self.to_plain()), flat(other.to_plain())
        return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}


def refuse_shape(config: FitConfig, given: Collection[str]) -> None:
    """Raise a ConfigError for given options, as ``model.layers``, that a backbone decides.

    In a configuration they have no effect; who gives one means it.
    """
    shape = {f"model.{name}" for name in {*GraphormerConfig.names()} - {*REGULARIZATION}}
    backbone = config.model.from_pretrained
    if backbone and (named := sorted(shape & {*given})):
        raise ConfigError(
            f"--{named[0]} is decided by the pre-trained network {backbone}: leave it out, or give "
            "--model.from_pretrained null"
        )


SECTIONS: dict[str, type[Options]] = {
    "data": DataConfig,
    "model": ModelConfig,
    "trainer": TrainerConfig,
}


def save_config(config: FitConfig, path: Path) -> None:
    """Write all options as a configuration file, whole or not at all.

    Raises:
        DataError: It cannot be written.
    """
    write_text(path, yaml.safe_dump(config.to_plain(), sort_keys=False, allow_unicode=True))


def read_yaml(
    name: str | Path, expected: str = "sections such as data:, model: and trainer:"
) -> tuple[Path, dict[str, Any]]:
    """Read a configuration file, or one that comes with the package, by its name.

    Raises:
        ConfigError: There is none, or it cannot be read.
    """
    path = Path(name).expanduser()
    if not path.is_file():
        if path.parent not in (Path(), Path("configs")):
            what = "is a directory" if path.is_dir() else "does not exist"
            raise ConfigError(f"configuration file {name} {what}")
        path = config_path(path.name)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not a YAML file ({in_a_line(str(error))})") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected {expected}")
    return path, content


def flat(options: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Return the options that stand in sections under ``section.name``."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{section}{name}.")
        else:
            found[section + name] = value
    return found


def _known(values: Mapping[str, Any], names: tuple[str, ...], section: str) -> Mapping[str, Any]:
    for name in values:
        if name not in names:
            raise ConfigError(f"unknown option {section}{name}{did_you_mean(name, names)}")
    return values


assert not {*FROM_DATA} & {*ModelConfig.names()}
