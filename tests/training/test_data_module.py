"""The data module: its order of training, its store, its options."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch
from reference.tables import write_csv

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.lazy_graphs import load_arrays
from graphormer_sepnorm.datasets.training_graphs import scaling
from graphormer_sepnorm.errors import CheckpointError, ConfigError, DataError
from graphormer_sepnorm.graphs.loading import EpochBatches
from graphormer_sepnorm.graphs.task import Task

MakeData = Callable[..., MoleculeDataModule]


def order(position: tuple[int, int] = (0, 0), rank: int = 0, world_size: int = 1) -> EpochBatches:
    return EpochBatches(np.arange(37), 8, 3, position, rank, world_size)


def test_processes_are_no_more_than_the_graphs_of_a_batch() -> None:
    assert min(map(len, order(rank=6, world_size=7))) == 1  # 37 graphs in five batches
    with pytest.raises(DataError, match="batches of 7 graphs cannot be shared by 8 processes"):
        order(world_size=8)


def test_resumed_epoch_gives_the_batches_that_are_left_and_the_next_one_all() -> None:
    straight, resumed = order(), order(position=(2, 3))
    straight.set_epoch(2)
    assert list(resumed) == list(straight)[3:]
    assert len(resumed) == len(straight) == 5
    for sampler in (straight, resumed):
        sampler.set_epoch(3)
    assert list(resumed) == list(straight)


def test_a_training_that_follows_a_resumed_one_begins_at_the_beginning(make_data: MakeData) -> None:
    data = make_data()
    data.load_state_dict({"epoch": 0, "batch": 2})
    assert data.train_dataloader().batch_sampler.first_batch == 2
    data.setup("fit")
    assert data.train_dataloader().batch_sampler.first_batch == 0


def test_vocabulary_comes_from_the_training_split_alone(make_data, splits):
    splits.test[0].x[:] = 99
    splits.validation[0].edge_attr[:] = 77
    vocabulary = make_data().fit_vocabulary()
    assert vocabulary.atoms.seen == ((0, 1, 2, 3),)
    assert vocabulary.bonds.seen == ((1, 2, 3),)


def test_weights_have_a_mean_of_one_over_the_training_graphs_alone(make_data, splits):
    for number, graph in enumerate(splits.train):
        graph.weight = float(number)  # 0 to 36
    for graph in [*splits.validation, *splits.test]:
        graph.weight = 1000.0
    assert make_data().weight_scale() == pytest.approx(1 / 18)


def test_what_is_said_of_the_training_data_is_said_of_the_training_split_alone(make_data, splits):
    for graph in [*splits.validation, *splits.test]:
        graph.y[:] = 1000.0
        graph.edge_index = graph.edge_index[:, :0]
        graph.edge_attr = graph.edge_attr[:0]
    sizes = [len(graph.x) for graph in splits.train]
    summary = make_data().training_summary()
    assert summary["atoms"]["mean"] == pytest.approx(sum(sizes) / 37)
    assert (summary["atoms"]["min"], summary["atoms"]["max"]) == (min(sizes), max(sizes))
    assert summary["connected"]
    assert summary["targets"][0]["labels"] == 37
    assert summary["targets"][0]["max"] == max(float(graph.y) for graph in splits.train)


def test_statistics_are_measured_on_random_training_graphs(make_data: MakeData) -> None:
    data = make_data()

    def graphs(number: int) -> list[int]:
        return [n for batch in data.statistics_batches(number) for n in batch.graph_ids.tolist()]

    some = graphs(20)
    assert len(some) == len({*some}) == 20
    assert {*some} <= {*range(37)}
    assert max(some) > 20
    assert graphs(20) == some
    assert sorted(graphs(1000)) == list(range(37))


def test_graphs_of_other_features_than_the_models_are_refused(make_data: MakeData) -> None:
    data = make_data()
    facts = {"feature_version": "paths", "vocabulary": data.fit_vocabulary().to_plain()}
    data.trainer = SimpleNamespace(  # type: ignore[assignment]
        lightning_module=SimpleNamespace(facts=facts),
        strategy=SimpleNamespace(root_device=torch.device("cpu")),
        global_rank=0,
        world_size=1,
    )
    assert len(data.val_dataloader()) == len(data.predict_dataloader()) == 2
    data.trainer.world_size = 2  # type: ignore[union-attr,misc]
    with pytest.raises(ConfigError, match="would predict a part: use one device"):
        data.predict_dataloader()
    data.trainer.world_size = 1  # type: ignore[union-attr,misc]
    facts["feature_version"] = "other"
    said = "was trained on features 'other', paths has 'paths': choose a data set with"
    for loader in (data.train_dataloader, data.val_dataloader, data.predict_dataloader):
        with pytest.raises(CheckpointError, match=said):
            loader()


def test_store_is_made_once_for_each_kind_of_graphs(make_data, splits, tmp_path):
    def stores() -> set[str]:
        return {path.name for path in (tmp_path / "root" / "store").iterdir() if path.is_dir()}

    make_data().setup("fit")
    first = stores()
    assert len(first) == 1
    make_data().setup("fit")
    assert stores() == first
    make_data(max_path_length=2).setup("fit")
    make_data(dataclasses.replace(splits, fingerprint="other")).setup("fit")
    make_data(dataclasses.replace(splits, feature_version="other")).setup("fit")
    assert len(stores()) == 4


def test_labels_are_those_that_are_given_whatever_the_fingerprint_says(make_data, splits, tmp_path):
    make_data().setup("fit")
    for graph in splits.train:
        graph.y += 1000
    for graph in splits.test:
        graph.weight = 3.0
    data = make_data()
    assert data.labels(data.indices("train")).min() > 1000
    assert set(data.store.weights[data.indices("test")]) == {3.0}
    turned = dataclasses.replace(splits, train=splits.train[::-1])
    labels = make_data(turned).labels(np.arange(37))
    assert np.array_equal(labels, data.labels(np.arange(37))[::-1])
    assert len([*(tmp_path / "root" / "store").glob("paths-*")]) == 3


BINARY = Task("binary", ("active", "toxic"), ("", ""), "auroc")


@pytest.mark.parametrize(
    ("task", "labels", "message"),
    [
        (BINARY, [1, 2], "paths, graph 3 of the test split: the label of toxic is 2: give 0 or 1"),
        (BINARY, [1], "graphs have 1 labels, the task names 2 targets"),
        (
            dataclasses.replace(BINARY, kind="regression", metric="mae"),
            [0, -np.inf],
            "graph 3 of the test split: the label of toxic is -inf: give a finite number",
        ),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(make_data, splits, task, labels, message):
    for graphs in splits.parts.values():
        for number, graph in enumerate(graphs):
            graph.y = torch.tensor([1.0, 0.0, np.nan]).roll(number)[: len(labels)]
    splits.test[3].y = torch.tensor(labels)
    data = make_data(dataclasses.replace(splits, task=task))
    for _ in range(2):
        with pytest.raises(DataError, match=message):
            data.setup("fit")


def test_given_labels_are_checked_where_many_graphs_are_made_at_once(make_data: MakeData) -> None:
    smiles, labels = ["C", "CC", "CO"], np.array([[0.0], [1.0], [2.0]])
    split = np.arange(2), np.arange(2, 3)
    task = Task("regression", ("y",), ("",), "mae")
    own = load_arrays(smiles, smiles, labels, task, None, split, "molecule-1", "ogb-1.3.6", ())
    make_data(own).setup("fit")
    with pytest.raises(DataError, match="graphs have 1 labels, the task names 2 targets"):
        make_data(dataclasses.replace(own, task=BINARY)).setup("fit")


@pytest.mark.parametrize("empty", ["train", "validation", "test"])
def test_split_without_graphs_is_named_where_it_is_needed(make_data, splits, empty):
    data = make_data(dataclasses.replace(splits, **{empty: []}))
    load = {
        "train": data.fit_vocabulary,
        "validation": data.val_dataloader,
        "test": data.test_dataloader,
    }[empty]
    with pytest.raises(DataError, match=f"^paths: the {empty} split holds no graphs"):
        load()


def test_root_does_not_move_with_the_working_directory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = MoleculeDataModule(root="mine")
    monkeypatch.chdir("/")
    assert data.root == tmp_path / "mine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "zink"}, "did you mean 'zinc'"),
        ({"batch_size": 1}, "batch_size is 1"),
        ({"batch_size": "32"}, "batch_size is '32': it must be a whole number, 2 or more"),
        ({"table": "a.csv", "target_columns": 5}, "target_columns is 5: give a list"),
        ({"table": pandas.DataFrame()}, "(?s)table is Empty DataFrame.*it must be text"),
    ],
)
def test_impossible_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MoleculeDataModule(**options)


def test_labels_are_scaled_by_the_weights_of_those_that_are_there() -> None:
    a, b = [9.0, 3.0, np.nan, 5.0], [0.1, 0.2, 0.2, 0.2]
    weights = np.array([0.0, 0.1, 0.2, 0.3])
    task = Task("regression", ("a", "b"), ("", ""), "mae")
    mean, deviation = scaling(np.array([a, b]).T, weights, task, "some")
    assert mean == pytest.approx([4.5, 0.2])
    # A constant has none, also where shares of the weights are not exact.
    assert deviation == [pytest.approx(np.sqrt((1.5**2 + 3 * 0.5**2) / 4)), 1]
    b[1:] = [np.nan] * 3
    with pytest.raises(DataError, match="some: no training label for b"):
        scaling(np.array([a, b]).T, weights, task, "some")


def test_what_weighs_nothing_does_not_scale_what_is_read_beside(tmp_path: Path) -> None:
    rows = [(("C" * (1 + n % 9)), n / 2, 300 + n % 3, 1) for n in range(30)]
    rows = [(*row[:2], -999999, 0) if n % 6 == 0 else row for n, row in enumerate(rows)]
    table = write_csv(tmp_path / "a.csv", [("smiles", "y", "T", "w"), *rows])
    data = MoleculeDataModule(
        table=str(table),
        root=str(tmp_path),
        target_columns="y",
        weight_column="w",
        descriptor_columns="T",
        split="random",
    )
    mean, factor = data.extra_scaling()
    assert 300 <= mean[0] <= 302
    assert factor[0] > 0.5


def test_columns_of_ones_own_go_with_their_split(tmp_path: Path) -> None:
    rows = [("C" * (n + 1), n, 300 + n, "" if n == 1 else n / 8) for n in range(10)]
    table = write_csv(tmp_path / "a.csv", [("smiles", "y", "T", "pH"), *rows])
    columns = {"target_columns": "y", "descriptor_columns": ["T", "pH"]}
    data = MoleculeDataModule(table=str(table), root=str(tmp_path), split="random", **columns)
    for split in ("train", "validation", "test"):
        number = data.labels(data.indices(split))[:, 0]
        own = np.stack([300 + number, np.where(number == 1, np.nan, number / 8)], axis=1)
        np.testing.assert_array_equal(data.own_columns(split), own)
