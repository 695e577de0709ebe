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
MEMBERS = ("networks", "trees", "kernel")
# Options that files of earlier versions hold, and the value with which they did nothing.
_GONE = {
    "model.target_weights": None,
    "model.uniformity_on": "graph_token",
    "data.class_weight": None,
    "data.descriptors": None,
    "data.duplicates": "keep",
}
# Options of the model by which a run may go on in another way than it was begun with.
CHANGEABLE = (
    *("learning_rate", "final_learning_rate", "warmup_steps", "schedule", "weight_decay"),
    *("betas", "eps", "precise_bn_graphs", "frozen_bn_fraction", "uniformity_weight"),
    *REGULARIZATION,
)


@dataclass(frozen=True)
class ModelConfig(GraphormerConfig):
    """A network, as `GraphormerConfig` has it, and how it is trained.

    Attributes:
        loss: l1, mse or bce (binary targets); auto chooses l1 or bce by the kind of target.
        optimizer: adamw; or muon, which updates the weight matrices of the layers with Muon and
            everything else with AdamW. Muon costs 30 ms per step on a CPU core for 12 layers of 72
            channels.
        learning_rate: Peak learning rate, reached at the end of the warm-up.
        final_learning_rate: Learning rate at the end of training.
        weight_decay: Decoupled weight decay, as in AdamW; weight_decay_on says of which parameters.
        weight_decay_on: matrices (the weights of linear layers; biases, norms, embeddings and the
            graph token are not decayed), or all parameters, as in Graphormer's reference code.
        warmup_steps: Optimizer steps of linear warm-up; a value below 1 is a fraction of all steps.
        schedule: linear or cosine decay after the warm-up.
        betas: Decay rates of AdamW's running moments.
        eps: AdamW's epsilon, which prevents division by zero.
        label_fraction: Fraction of a batch's labels that enter the training loss, sampled again at
            each step; for pre-training on hundreds of targets (CheMeleon uses 0.15).
        uniformity_weight: Weight of the auxiliary loss that spreads out the final embeddings of
            [CLS] (SepNorm's paper, Eq. 8); 0 turns it off. After a BatchNorm, which centers the
            embeddings already, it acts only on that norm's scale and shift.
        precise_bn_graphs: Number of training graphs on which BatchNorm's statistics are measured
            before each validation; 0 uses the running averages of training. Costs one forward pass
            over them.
        frozen_bn_fraction: Fraction of the steps, at the end of training, in which BatchNorm uses
            statistics that were measured once, as in evaluation; from 0 to below 1. Needs
            precise_bn_graphs; has no effect without a BatchNorm.
        from_pretrained: Pre-trained network to start from: the name of a bundled model, a run
            directory or a checkpoint (of an ensemble, its first member). Its weights except the
            readout, and its architecture, are used; dropout is not.
    """

    section: ClassVar[str] = "--model."
    dropout: float | None = ranged(0.1, least=0, below=1)  # type: ignore[assignment]
    attention_dropout: float | None = ranged(0.1, least=0, below=1)  # type: ignore[assignment]
    input_dropout: float | None = ranged(0.1, least=0, below=1)  # type: ignore[assignment]
    loss: LossChoice = "auto"
    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = ranged(2e-4, above=0)
    final_learning_rate: float = ranged(1e-9, least=0)
    weight_decay: float = ranged(0.01, least=0)
    weight_decay_on: Literal["matrices", "all"] = "matrices"
    warmup_steps: int | float = ranged(0.1, least=0)
    schedule: Literal["linear", "cosine"] = "linear"
    betas: tuple[float, float] = ranged((0.9, 0.999), least=0, below=1)
    eps: float = ranged(1e-8, above=0)
    label_fraction: float = ranged(1.0, above=0, most=1)
    uniformity_weight: float = ranged(0.0, least=0)
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
            raise ConfigError("--model.frozen_bn_fraction needs --model.precise_bn_graphs above 0")

    @property
    def network(self) -> GraphormerConfig:
        """The options of the network alone; a dropout of None is the default, for classes."""
        own = {name: getattr(self, name) for name in GraphormerConfig.names()}
        return GraphormerConfig(**{name: one for name, one in own.items() if one is not None})


@dataclass(frozen=True)
class TrainerConfig(Options):
    """Length, place and precision of a training: what Lightning's Trainer is given.

    Attributes:
        max_epochs: Number of epochs; -1 means no limit. null: for a table, chosen by its size.
        max_steps: Number of optimizer steps; -1 means no limit.
        max_time: Maximum training time, as DD:HH:MM:SS.
        check_val_every_n_epoch: Number of epochs between validations.
        val_check_interval: Number of batches (or fraction of an epoch) between validations; null
            uses check_val_every_n_epoch.
        gradient_clip_val: Gradients are clipped to this norm; null turns clipping off.
        gradient_clip_algorithm: norm, or value, which clips each element separately.
        accumulate_grad_batches: Number of batches whose gradients are accumulated for one step.
        precision: 32-true, bf16-mixed or 16-mixed.
        accelerator: auto (a GPU with CUDA if there is one), gpu or cpu.
        devices: auto, or the number of processes or GPUs.
        num_nodes: Number of machines.
        strategy: Lightning's strategy for several devices; auto chooses ddp.
        limit_train_batches: Number of training batches per epoch (or fraction of them), to try
            something out.
        limit_val_batches: Number of validation batches (or fraction of them); 0 turns validation
            off.
        limit_test_batches: Number of test batches (or fraction of them).
        log_every_n_steps: Number of steps between rows of metrics.csv.
        deterministic: Whether only deterministic operations are used on a GPU.
        enable_progress_bar: Whether to show a progress bar.
        fast_dev_run: Run this many batches and save nothing, to check that everything works.
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
        for name in ("max_epochs", "max_steps", "devices"):
            if getattr(self, name) in (0, "0", []):
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
        seed_everything: Random seed of initialization, batch order and dropout: the same seed gives
            the same run.
        output: Run directory. Default: runs/<configuration or
            table>/<norm>-seed<seed>, with a number appended if that exists; nothing is overwritten.
        checkpoint_minutes: Minutes between checkpoints within an epoch. A checkpoint is also saved
            at the end of an epoch, unless the last one is less than a minute old, and at the end of
            training.
        ema_decay: Decay of the exponential moving average of the weights, such as 0.999; the
            averaged weights are validated, saved and tested. 0 turns averaging off.
        engine: How training steps run on one GPU: eager launches each kernel; captured replays a
            CUDA graph, with the data on the GPU; compiled compiles the step first, which takes
            minutes. If the chosen engine cannot be used, a message gives the reason and eager is
            used.
        early_stopping: Stop after this many validations without improvement; 0 turns this off.
        metric: Validation metric that selects the best checkpoint and decides early stopping: mae,
            rmse, r2, spearman, kendall, rae, auroc, average_precision, brier, log_loss or loss.
            Default: mae or auroc; loss for several regression targets. last: no selection, the
            final weights are used.
        ensemble: Number of networks; the model predicts their mean. They have consecutive seeds,
            starting with seed_everything, and each is trained in its own process, in members/ of
            the run directory.
        ensemble_by: How the members of an ensemble differ. seeds: only in their seeds; they share
            the training and validation split. folds (for a table): training and validation split
            are divided into folds; each member is validated on one fold and trained on the others,
            so that validation metrics and the weights of a blend are out of fold.
        baselines: Also report the test metric of simple models: random forest and gradient boosting
            on fingerprints and descriptors, kernel ridge regression on substructure counts, and the
            mean of the training labels. For data sets with SMILES; at most 40,000 molecules of each
            split (sampled) and 50 targets are used.
        members: Models whose weighted mean is predicted: networks, trees (gradient boosting),
            kernel (kernel ridge regression), or some of them. Trees and kernel are fitted after the
            networks; the weights are chosen by out-of-fold or validation errors. They add 4 to 7 ms
            per molecule to prediction. Without networks, training on 1,000 molecules takes less
            than a minute, and embed and explain are not available.
        keep: What the checkpoint stores about the training molecules: fingerprints (for prediction
            intervals, calibration, similarity and applicability domain), also their smiles, also
            their labels (for predict.py --neighbors); at most 40,000 molecules, sampled at random.
            none: nothing is stored, and there are no intervals.
        logger: Where metrics are logged in addition to metrics.csv: tensorboard, wandb or mlflow,
            if installed.
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
    ensemble: int = ranged(1, least=1, most=64)
    ensemble_by: Literal["seeds", "folds"] = "seeds"
    baselines: bool = False
    members: list[str] | str = MEMBERS[:1]  # type: ignore[assignment]
    keep: Literal["none", "fingerprints", "smiles", "labels"] = "smiles"
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
            used = {one: of for one, of in values.items() if not is_gone(f"{name}.{one}", of)}
            given[name] = section(**_known(used, section.names(), f"{name}."))
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


SECTIONS = dict[str, type[Options]](data=DataConfig, model=ModelConfig, trainer=TrainerConfig)


def save_config(config: FitConfig, path: Path) -> None:
    """Write all options as a configuration file, whole or not at all (a DataError)."""
    write_text(path, yaml.safe_dump(config.to_plain(), sort_keys=False, allow_unicode=True))


def read_yaml(
    name: str | Path, expected: str = "sections such as data:, model: and trainer:"
) -> tuple[Path, dict[str, Any]]:
    """Read a configuration file, or a bundled one by its name; a ConfigError where that fails."""
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


def is_gone(name: str, value: Any) -> bool:
    """Whether this is an option of earlier versions, with the value by which it did nothing."""
    return name in _GONE and value == _GONE[name]


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
