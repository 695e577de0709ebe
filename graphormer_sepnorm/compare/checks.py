"""What is planned is checked before anything starts, and its data are prepared once for all."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.training_graphs import MemberFolds
from graphormer_sepnorm.errors import ConfigError, GraphormerError
from graphormer_sepnorm.graphs.loading import EpochBatches
from graphormer_sepnorm.runs.plan import Plan, RunSpec
from graphormer_sepnorm.training.fit import monitored_metric, planned_steps, settled_epochs


@dataclass(frozen=True)
class Checked:
    """What is known before training; nothing if the data were not prepared.

    Attributes:
        fingerprint: Of the data.
        metric: Main metric of the task.
        steps: Optimizer steps of a run of each arm.
    """

    fingerprint: str
    metric: str
    steps: dict[str, int]


def check(plan: Plan, runs: list[RunSpec], prepare: bool) -> Checked:
    """Check the data of all arms, and prepare them if they are needed.

    Args:
        plan: What is to be trained.
        runs: All of them; of each arm the first is looked at.
        prepare: Whether the data are needed: to train, or to know which they are.

    Raises:
        GraphormerError: Something in the data, or in what is asked of them, cannot be.
    """
    modules: list[tuple[tuple[object, ...], MoleculeDataModule]] = []
    steps: dict[str, int] = {}
    fingerprint = metric = ""
    for arm, run in zip(plan.arms, runs, strict=False):  # an arm after the other
        config = run.config
        try:
            folds = config.ensemble if config.ensemble_by == "folds" and config.ensemble > 1 else 0
            # Reading a table can take a while, and the size of a batch does not matter to it.
            key = (replace(config.data, batch_size=2), config.model.max_path_length, folds)
            data = next((known for one, known in modules if one == key), None)
            if data is None:
                data = MoleculeDataModule(config.data, max_path_length=config.model.max_path_length)
                if folds:
                    data.deal_members(MemberFolds(folds))
                modules.append((key, data))
            if prepare:
                steps[arm.name] = _steps(config, data)
                metric = data.splits.task.metric
        except GraphormerError as error:
            if all(name.startswith("model.") for name in arm.options):
                raise  # it is no fault of the arm's
            raise type(error)(f"arm '{arm.name}': {error}") from error
        if prepare:
            if fingerprint not in ("", data.splits.fingerprint):
                raise ConfigError(
                    f"arms '{plan.arms[0].name}' and '{arm.name}' have different data or splits: "
                    "only arms with the same molecules can be compared"
                )
            fingerprint = data.splits.fingerprint
    return Checked(fingerprint, metric, steps)


def _steps(config: FitConfig, data: MoleculeDataModule) -> int:
    """Return the optimizer steps of a run, once its metric is known to be defined."""
    task, numbers, patience = data.splits.task, data.numbers, config.early_stopping
    for graphs in numbers.of_members or [numbers.validated]:
        monitored_metric(task, data.store.targets[graphs], config.metric, patience)
    batches = len(EpochBatches(data.indices("train"), config.data.batch_size, 0))
    epochs = settled_epochs(config.trainer, data)
    return config.ensemble * planned_steps(config.trainer, batches, epochs)
