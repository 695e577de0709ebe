"""Captured steps of several trainings of one process, taken together.

A step of a small model leaves most of a fast GPU idle. Trainings that differ in their seed can take
theirs at once, as branches of one recording. Each is a thread with a trainer of its own, and only
one thread runs at any moment: it goes on to its next launch and waits there; when all wait, the one
that came last takes steps of all of them until a launch is done. So what belongs to the whole
process, such as the state of random numbers, is never used by two at a time, and each training is
what it would be alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.graphs.resident import BatchShape, ResidentGraphs
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.training.captured.recording import CapturedSteps, TrainingStep

log = logging.getLogger(__name__)

_of_thread = threading.local()


def resident_graphs(
    store: GraphStore, vocabulary: GraphVocabulary, model: Graphormer
) -> ResidentGraphs:
    """The graphs of a store on the device of a model, with all that it needs."""
    device = next(model.parameters()).device
    ways = None if model.paths is None else model.paths.ways
    rings = "rings" in model.config.local_mpnn
    return ResidentGraphs(store, vocabulary, device, ways, ring_pairs=rings)


def _key(data: MoleculeDataModule, config: GraphormerConfig) -> tuple[object, ...]:
    lengths = config.walk_steps if "paths" in config.encodings else 0
    rings = "rings" in config.local_mpnn
    return data.splits.fingerprint, data.max_path_length, lengths, rings


@dataclass(frozen=True)
class DueStep:
    """A step that a training is about to take.

    Attributes:
        inputs: Numbers of the graphs, ``[B]``, and the step's numbers, ``[2 + G]``; see
            `TrainingStep`.
        shape: Of the batch.
        planned: Whether the shape comes again: then the step can be recorded.
        seed: Of its dropout.
    """

    inputs: tuple[Tensor, Tensor]
    shape: BatchShape
    planned: bool
    seed: int

    @property
    def recordable(self) -> bool:
        """Whether the step is recorded: on a GPU, unless its batch did not fit."""
        return self.planned and self.inputs[0].is_cuda


@dataclass(eq=False)
class _Waiting:
    """A training that waits for the steps of a launch."""

    step: TrainingStep
    due: list[DueStep]
    results: list[Tensor] = field(default_factory=list)
    error: Exception | None = None

    @property
    def done(self) -> bool:
        return self.error is not None or not self.due


class Together:
    """Takes the captured steps of some trainings.

    Args:
        trainings: How many there are, each in a thread of its own (`training`). A single one needs
            no thread.
    """

    def __init__(self, trainings: int = 1) -> None:
        # Held by the thread that runs; the others wait for it.
        self._turn = threading.Condition()
        self._present = trainings
        self._waiting: list[_Waiting] = []
        self._recordings: dict[tuple[tuple[TrainingStep, ...], BatchShape], CapturedSteps] = {}
        self._pool: tuple[int, int] | None = None
        self._apart = False
        self._graphs: dict[tuple[object, ...], ResidentGraphs] = {}

    @classmethod
    def of_this_thread(cls) -> Together:
        """Those that the training of this thread belongs to; itself alone if there are none."""
        return getattr(_of_thread, "together", None) or cls()

    @contextmanager
    def training(self) -> Iterator[None]:
        """Be one of the trainings, in this thread, until this context ends."""
        with self._turn:
            _of_thread.together = self
            try:
                yield
            finally:
                del _of_thread.together
                self._drop()
                self._present -= 1
                # Of the others one takes the steps: libraries keep things for each thread, which
                # are not to go into a recording by one that ends.
                self._turn.notify_all()

    def holds(self, data: MoleculeDataModule, config: GraphormerConfig) -> bool:
        """Whether a data set is on the device already, with all that such a model needs."""
        return _key(data, config) in self._graphs

    def graphs(
        self, data: MoleculeDataModule, vocabulary: GraphVocabulary, model: Graphormer
    ) -> ResidentGraphs:
        """The graphs of a data set on the model's device, once for all trainings."""
        key = _key(data, model.config)
        if key not in self._graphs:
            self._graphs[key] = resident_graphs(data.store, vocabulary, model)
        return self._graphs[key]

    def take(self, step: TrainingStep, due: Sequence[DueStep]) -> Tensor:
        """Take the steps of a launch, at the same time as the others take theirs.

        Args:
            step: Of the training that asks.
            due: One for each step.

        Returns:
            What each step gives, ``[steps, 3]``.
        """
        with self._turn:
            own = _Waiting(step, list(due))
            self._waiting.append(own)
            try:
                self._go_on()
                while not own.done:
                    self._turn.wait()
                    if not own.done:
                        self._go_on()
            finally:
                if own in self._waiting:
                    self._waiting.remove(own)
            if own.error is not None:
                raise own.error
            return torch.stack(own.results)

    def forget(self) -> None:
        """Forget all recordings: a step no longer does what was recorded, or its training ends.

        Those of other steps are made again when they are asked for. For a recording does not own
        all of the memory that it uses: what matrix products work in, its first calls have
        allocated, and Lightning frees it in the whole process with every training that begins or
        ends (`CUDAAccelerator`), newer releases of torch with every recording that had the same
        stream (pytorch issue 193402).
        """
        with self._turn:
            self._drop()

    def _drop(self) -> None:
        for recording in self._recordings.values():
            recording.end()
        self._recordings.clear()
        # Memory of recordings that are gone is not to be taken for new ones.
        self._pool = None

    def _go_on(self) -> None:
        """Take steps while all trainings wait for one."""
        while self._waiting and len(self._waiting) == self._present:
            # They came in any order; a recording has one.
            self._take_one_of_each(sorted(self._waiting, key=lambda one: id(one.step)))
            done = [one for one in self._waiting if one.done]
            if done:
                self._waiting = [one for one in self._waiting if not one.done]
                self._turn.notify_all()

    def _take_one_of_each(self, trainings: Sequence[_Waiting]) -> None:
        due = [one.due.pop(0) for one in trainings]
        alike = all(one.recordable and one.shape == due[0].shape for one in due)
        if len(trainings) > 1 and alike and not self._apart:
            try:
                if recording := self._recorded_together(trainings, due):
                    results = recording([one.inputs for one in due], [one.seed for one in due])
                    for training, result in zip(trainings, results, strict=True):
                        training.results.append(result.clone())
                    return
            except Exception as error:  # all of them learn of it
                for training in trainings:
                    training.error = error
                return
        for training, own in zip(trainings, due, strict=True):
            try:
                training.results.append(self._alone(training.step, own))
            except Exception as error:  # it is raised where the step was asked for
                training.error = error

    def _recorded_together(
        self, trainings: Sequence[_Waiting], due: Sequence[DueStep]
    ) -> CapturedSteps | None:
        """The recording of a step of all; None if there is no memory for it, now and later."""
        try:
            return self._recorded([one.step for one in trainings], due)
        except torch.OutOfMemoryError as error:
            log.warning(
                "the steps of %d trainings cannot be recorded together (%s): each is recorded by "
                "itself",
                len(trainings),
                error,
            )
            self._apart, self._pool = True, None
            return None

    def _alone(self, step: TrainingStep, due: DueStep) -> Tensor:
        if due.recordable:
            return self._recorded([step], [due])([due.inputs], [due.seed])[0].clone()
        torch.manual_seed(due.seed)
        return step(*due.inputs, due.shape, fixed=due.planned)

    def _recorded(self, steps: Sequence[TrainingStep], due: Sequence[DueStep]) -> CapturedSteps:
        """The recording of a step of each, made when it is first asked for."""
        key = tuple(steps), due[0].shape
        if key not in self._recordings:
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            inputs = [one.inputs for one in due]
            self._recordings[key] = CapturedSteps(steps, inputs, due[0].shape, self._pool)
        return self._recordings[key]
