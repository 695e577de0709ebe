"""The Lightning module: Graphormer, its loss, metrics, optimizer and schedule.

B graphs of a batch · T targets.
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from graphormer_sepnorm.config import ModelConfig
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import CheckpointError, ConfigError
from graphormer_sepnorm.files import plain
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.inference.checkpoint import (
    KEY,
    build_network,
    check_checkpoint,
    model_weights,
    read_checkpoint,
)
from graphormer_sepnorm.model.config import REGULARIZATION, GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.training.averaging import batch_norms, measure_batch_norm
from graphormer_sepnorm.training.evaluation import (
    EvaluatedModule,
    MeanLoss,
    check_same_data,
    check_same_network,
)
from graphormer_sepnorm.training.loss import LossName, choose_loss, uniformity_loss
from graphormer_sepnorm.training.optimizer import make_optimizer, make_schedule, renew_options

if TYPE_CHECKING:
    from graphormer_sepnorm.training.cuda_graphs import CapturedTraining

# Where a checkpoint keeps the sum of the losses of the epoch so far and the number of labels.
EPOCH_LOSS = "epoch_loss"
# Where it says whether BatchNorm's statistics are constants by now.
FIXED = "batch_norm_fixed"


class GraphormerModule(EvaluatedModule):
    """Graphormer (Ying et al. 2021) with the norms of SepNorm (2023), ready to train.

    The network itself is built when the data are known, since the sizes of its embedding tables
    come from them; see `configure_model`.

    Args:
        config: The options of the network and of its training; None: the defaults.
        seed: Decides the initial parameters and dropout.
        **options: Options of `ModelConfig` by name, in place of those of `config`.
    """

    def __init__(self, config: ModelConfig | None = None, *, seed: int = 0, **options: Any) -> None:
        super().__init__()
        config = self.plan_network(replace(config or ModelConfig(), **options))
        # A backbone is not needed once training has begun, and the exact options lie next to it.
        stored = {n: getattr(config, n) for n in ModelConfig.names() if n != "from_pretrained"}
        self.save_hyperparameters({**stored, "seed": plain(seed)}, logger=False)
        self.epoch_loss = MeanLoss()
        # The loss of the newest optimizer step, as far as this process contributes to it.
        self.step_loss = torch.tensor(0.0)
        self.captured: CapturedTraining | None = None  # takes the steps, while it is there
        # The first step with BatchNorm's statistics fixed, known with the schedule; if they are.
        self.fixed_from = math.inf
        self.statistics_fixed = False
        self._labels_per_step = np.empty(0)
        self._labels_epoch = -1
        self._statistics_batches: list[GraphBatch] = []
        self._optimizer_options: list[dict[str, Any]] = []

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]
        cls,
        checkpoint_path: str | Path,
        map_location: str = "cpu",
        weights_only: Literal[True] = True,
    ) -> Self:
        """Build a module from a checkpoint, without data; of an ensemble, of its first member.

        Args:
            checkpoint_path: File, run directory, or name of a model that comes with the package.
            map_location: Device of the module.
            weights_only: Nothing but plain values and tensors is ever read.

        Raises:
            CheckpointError: The file cannot be used.
        """
        checkpoint = read_checkpoint(checkpoint_path)
        if not model_weights(checkpoint):
            raise CheckpointError(f"{checkpoint_path} has no network: use Predictor.load")
        known = (*ModelConfig.names(), "seed")
        stored = checkpoint.get("hyper_parameters", {})
        module = cls(**{name: value for name, value in stored.items() if name in known})
        module.to(map_location).restore(checkpoint)
        return module

    def configure_model(self) -> None:
        """Build the network for the data of the trainer; Lightning calls it after the set-up."""
        if self.facts:  # built already, for these data it is to be hoped
            check_same_data(self.facts, self.trainer)
            return
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(data, MoleculeDataModule):
            raise ConfigError("GraphormerModule needs a MoleculeDataModule: fit(module, data)")
        if data.max_path_length != self.architecture.max_path_length:
            own = self.architecture.max_path_length
            what = f"the data were prepared with max_path_length {data.max_path_length}, the model"
            raise ConfigError(f"{what} has {own}: give both the same")
        self._build(self.facts_of(data))
        self.model.initialize(self.hparams["seed"])
        if self.backbone is not None:
            self.backbone.load_into(self.model, self.vocabulary)
        if self.model.extra_readout is not None:
            self.model.extra_readout.standardize_by(*map(torch.from_numpy, data.extra_scaling()))

    def _build(self, facts: dict[str, Any]) -> None:
        """Build everything that depends on the data, from the facts that a checkpoint stores."""
        self.facts = facts
        self.vocabulary = GraphVocabulary.from_plain(facts["vocabulary"])
        self.loss_name: LossName = choose_loss(self.hparams["loss"], self.task)
        self.model = Graphormer(GraphormerConfig(**facts["model"])).to(self.device)
        for name in ("target_mean", "target_std"):
            scale = torch.tensor(facts[name], dtype=torch.float32, device=self.device)
            self.register_buffer(name, scale, persistent=False)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what predicting needs, and what the last validation gave."""
        values = self.trainer.callback_metrics.items()
        validation = {name: float(one) for name, one in values if name.startswith("validation_")}
        checkpoint[KEY] = {**self.facts, "validation": validation}
        # Only the sums of all processes together are the same for any number of them.
        sums = torch.stack([self.epoch_loss.total, self.epoch_loss.labels])
        total = self.trainer.strategy.reduce(sums, reduce_op="sum")
        checkpoint[EPOCH_LOSS] = total.tolist()  # type: ignore[union-attr]
        checkpoint[FIXED] = self.statistics_fixed

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Build the network of the checkpoint; to evaluate, also the other members' networks."""
        check_checkpoint(checkpoint)
        check_same_data(checkpoint[KEY], self.trainer)
        training = self.trainer.state.fn == "fit"
        self.restore(checkpoint, self.architecture if training else None, members=not training)
        if EPOCH_LOSS in checkpoint and self.global_rank == 0:
            sums = torch.tensor(checkpoint[EPOCH_LOSS], dtype=torch.float64)
            self.epoch_loss.total, self.epoch_loss.labels = sums
        self._fix_statistics(training and checkpoint.get(FIXED, False))

    def restore(
        self,
        checkpoint: dict[str, Any],
        asked_for: GraphormerConfig | None = None,
        members: bool = False,
    ) -> None:
        """Build the network of a checkpoint, with its weights.

        Args:
            checkpoint: With all that `on_save_checkpoint` writes.
            asked_for: The network that it has to be, but for the dropouts, which are taken from
                here; else a CheckpointError. None: whatever it is.
            members: Build those of the other members of an ensemble, too.
        """
        facts = checkpoint[KEY]
        if asked_for is not None:
            check_same_network(facts, asked_for)
            own = {name: getattr(asked_for, name) for name in REGULARIZATION}
            facts = {**facts, "model": {**facts["model"], **own}}
        others = checkpoint.get("members", ()) if members else ()
        self.members = tuple(build_network(facts["model"], weights) for weights in others)
        self._build(facts)
        self.load_state_dict(checkpoint["state_dict"])

    def forward(self, batch: GraphBatch) -> Tensor:
        """Predict values as they are learned (regression) or logits (binary): float ``[B, T]``.

        Raises:
            CheckpointError: The batch was made with another vocabulary.
        """
        self.check_codes(batch)
        return self.model(batch).float() * self.target_std + self.target_mean

    def on_train_epoch_start(self) -> None:
        """Choose the epoch's order; Lightning tells it to samplers, not to batch samplers."""
        order = self.trainer.train_dataloader.batch_sampler  # type: ignore[union-attr]
        order.set_epoch(self.current_epoch)
        if order.first_batch == 0:
            self.epoch_loss.reset()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Fix BatchNorm's statistics when the steps of `frozen_bn_fraction` begin."""
        fixed = self.trainer.global_step >= self.fixed_from
        if fixed == self.statistics_fixed:
            return
        if fixed:
            self.measure_batch_norm()
        self._fix_statistics(fixed)

    def _fix_statistics(self, fixed: bool) -> None:
        self.statistics_fixed = fixed
        for norm in batch_norms(self.model):
            norm.fixed = fixed  # constants in training too, or no longer

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return what a batch adds to the loss of its optimizer step.

        The loss of a step is the sum over the graphs of all processes and all accumulated batches,
        divided by the number of labels of all of them, as if they were one batch. Dropout is seeded
        for exactly this batch. A captured step is taken here as a whole.
        """
        if self.captured is not None:
            # Lightning's context is of a forward pass; an optimizer has no business in it.
            with torch.autocast(self.device.type, enabled=False):
                result = self.captured.take_step(batch, batch_idx)
            self.step_loss, total, labels = result.unbind()
            self._record(total, labels)
            return self.step_loss
        # `torch.manual_seed` takes 1 ms, a hundredth of a step of small batches on a CPU.
        on_cpu = self.device.type == "cpu"
        seed = torch.default_generator.manual_seed if on_cpu else torch.manual_seed
        seed(self.dropout_seed(batch_idx))
        graph_token, atoms = self.model.encode(batch)
        outputs = self.model.read_out(graph_token, atoms, batch)
        known = self._sampled(batch.targets), batch.weights, self._sampled(batch.bounds)
        total, labels = self.summed_loss(outputs, *known)
        accumulated = self.trainer.accumulate_grad_batches
        step, first = divmod(batch_idx, accumulated)
        expected = self.labels_of_step(step) * self.hparams["label_fraction"]
        loss = total / expected
        self.step_loss = loss.detach() + (0 if first == 0 else self.step_loss)
        self._record(total, labels)
        # Gradients are averaged over processes, and Lightning averages over accumulated batches.
        loss = loss * (self.trainer.world_size * accumulated)
        weight = self.hparams["uniformity_weight"]
        if weight:
            # Its mean over the batches of the step: the last one of an epoch may have fewer.
            batches = min(accumulated, int(self.trainer.num_training_batches) - step * accumulated)
            weight = weight * (accumulated / batches)
            loss = loss + weight * uniformity_loss(graph_token)
        return loss

    def _sampled(self, targets: Tensor) -> Tensor:
        """Take all labels, or a random share of them: nan for the others."""
        share = self.hparams["label_fraction"]
        if share == 1:
            return targets
        return targets.masked_fill(torch.rand_like(targets) >= share, math.nan)

    def dropout_seed(self, batch_idx: int) -> int:
        """The seed of the random numbers of a batch of the current epoch.

        63 bits of (seed, epoch, batch, rank), the same in every version: so a resumed run samples
        what the uninterrupted one would have, and so do two arms of a comparison.
        """
        index = self.hparams["seed"], self.current_epoch, batch_idx, self.global_rank
        digest = hashlib.blake2b(struct.pack("<4q", *index), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1

    def backward(self, loss: Tensor, *arguments: Any, **options: Any) -> None:
        """Compute the gradients, unless the captured step has."""
        if self.captured is None:
            super().backward(loss, *arguments, **options)

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None
    ) -> None:
        """Take a step, unless the captured one is all of it."""
        if self.captured is None:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        else:
            optimizer_closure()

    def _record(self, total: Tensor, labels: Tensor) -> None:
        """Add a step to the mean loss of the epoch."""
        # Our own mean over the epoch: Lightning's forgets the steps before a resume. Log files are
        # written by `LogTraining`, before the checkpoint that counts their rows.
        self.epoch_loss.update(total, labels)
        self.log("train_loss_epoch", self.epoch_loss, on_step=False, on_epoch=True, logger=False)

    def labels_of_step(self, step: int) -> int:
        """Number of labels in all batches of an optimizer step, at least 1.

        Known beforehand: no process has to ask the others, nor wait for accumulated batches.
        """
        if self._labels_epoch != self.current_epoch:
            self._labels_epoch = self.current_epoch
            trainer: Any = self.trainer
            order = trainer.train_dataloader.batch_sampler
            labels = order.counts(trainer.datamodule.labels_per_graph)
            labels = labels[: int(trainer.num_training_batches)]
            steps = np.arange(0, len(labels), trainer.accumulate_grad_batches)
            self._labels_per_step = np.add.reduceat(labels, steps)
        return max(1, int(self._labels_per_step[step]))

    def on_fit_start(self) -> None:
        """Forget what was looked up for an earlier training."""
        self._labels_epoch = -1
        self._statistics_batches = []
        self.members = ()
        self.train()  # which Lightning leaves as the user had it, in evaluation perhaps

    def on_train_start(self) -> None:
        """Let the options of this run count, where a checkpoint brought those of an earlier one."""
        schedule: Any = self.trainer.lr_scheduler_configs[0].scheduler
        renew_options(self.trainer.optimizers[0], schedule, self._optimizer_options)

    def on_validation_epoch_start(self) -> None:
        """Measure BatchNorm's statistics for the weights that are about to be validated."""
        if self.trainer.state.fn == "fit" and not self.trainer.sanity_checking:
            self.measure_batch_norm()

    def measure_batch_norm(self) -> None:
        """Measure BatchNorm's statistics on training graphs, see `measure_batch_norm`."""
        graphs = self.hparams["precise_bn_graphs"]
        if not graphs or self.statistics_fixed or not batch_norms(self.model):
            return
        if not self._statistics_batches:
            data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
            self._statistics_batches = list(data.statistics_batches(graphs))
        batches = (batch.to(self.device) for batch in self._statistics_batches)
        with self.trainer.precision_plugin.forward_context():
            measure_batch_norm(self.model, batches)

    def configure_optimizers(self) -> Any:
        """Return the optimizer and its schedule, stepped after every optimizer step."""
        total = self.trainer.estimated_stepping_batches
        if math.isinf(total):
            raise ConfigError(
                "the learning-rate schedule needs to know where training ends: give "
                "--trainer.max_epochs or --trainer.max_steps"
            )
        stored = {name: self.hparams[name] for name in ModelConfig.names() if name in self.hparams}
        options, total = ModelConfig(**stored), int(total)
        fixed = round(options.frozen_bn_fraction * total)
        self.fixed_from = total - fixed if options.frozen_bn_fraction else math.inf
        mixed = str(self.trainer.precision).endswith("-mixed")
        capturable = self.captured is not None and self.device.type == "cuda"
        optimizer = make_optimizer(self.model, options, capturable=capturable, mixed=mixed)
        self._optimizer_options = [
            {name: value for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ]
        schedule = make_schedule(optimizer, options, total)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]
