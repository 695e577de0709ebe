"""A data set as the rest of the project sees it: three sequences of graphs and what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from graphormer_sepnorm.graphs.task import Task

if TYPE_CHECKING:
    from graphormer_sepnorm.datasets.user_table.report import DataReport

SPLITS = ("train", "validation", "test")


class Graphs(Protocol):
    """A sequence of PyG ``Data`` objects: any PyG data set, a list, a subset.

    Each graph has ``x`` int64 ``[n, F]``, ``edge_index`` int64 ``[2, E]`` with both directions of
    every bond, ``edge_attr`` int64 ``[E, K]`` or ``[E]`` or none at all, and ``y`` float.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


@dataclass(frozen=True)
class DatasetSplits:
    """A data set in its three splits.

    Attributes:
        name: The canonical name, for example ``zinc-subset``.
        train: Graphs to train on.
        validation: Graphs to select a model by.
        test: Graphs to report on.
        task: What the targets are.
        fingerprint: With `feature_version` it identifies the graphs and labels, wherever the files
            lie.
        feature_version: The atom and bond codes, for example ``zinc-28`` or ``ogb-1.3.6``.
        featurizer: Name of the chem featurizer that makes such graphs from SMILES; None: there is
            none.
        smiles: The SMILES of each split (``train``, ``validation``, ``test``) in the order of its
            graphs, or None where there are none.
        groups: Of each molecule of each split its scaffold, or group, empty where neither decides
            about folds, and its canonical SMILES: by them molecules are assigned to folds. None
            where the splits are fixed.
        report: What is in a user's table; None for the data sets that are known by name.
        extra_inputs: The network's extra inputs; mostly there are none.
        standardize: What was done to the molecules before all else, see `standardized`.
        note: What has to be said of any result on these data; mostly nothing.
    """

    name: str
    train: Graphs
    validation: Graphs
    test: Graphs
    task: Task
    fingerprint: str
    feature_version: str
    featurizer: str | None = None
    smiles: dict[str, Sequence[str]] | None = None
    groups: dict[str, list[tuple[str, str]]] | None = None
    report: DataReport | None = None
    extra_inputs: tuple[str, ...] = ()
    standardize: tuple[str, ...] = ()
    note: str = ""

    @property
    def parts(self) -> dict[str, Graphs]:
        """The three splits by name: ``train``, ``validation``, ``test``."""
        return {name: getattr(self, name) for name in SPLITS}

    def smiles_of(self, indices: Iterable[int]) -> list[str]:
        """Return the SMILES of some graphs, whose indices go through the three splits; empty: none.

        One is looked up at a time: those of ZINC are written when they are asked for.
        """
        if self.smiles is None:
            return ["" for _ in indices]
        places = [(name, at) for name in SPLITS for at in range(len(self.smiles[name]))]
        return [self.smiles[name][at] for name, at in (places[int(one)] for one in indices)]
