"""Starting from a trained network: what is taken over, what is new, what cannot be."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_graphs import NO_DROPOUT, STILL, path_graphs

from graphormer_sepnorm.config import ModelConfig
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary, Vocabulary
from graphormer_sepnorm.inference.checkpoint import KEY, model_weights, read_checkpoint
from graphormer_sepnorm.training.backbone import _new_rows
from graphormer_sepnorm.training.module import GraphormerModule

RICH = {"encodings": "rrwp+rings", "local_mpnn": "gine", "ring_bias": True, "readout": "both"}


@pytest.fixture
def backbone(tmp_path: Path, train: Callable) -> Path:
    _, _, trainer = train(model=RICH, max_epochs=1)
    trainer.save_checkpoint(tmp_path / "backbone.ckpt")
    return tmp_path / "backbone.ckpt"


@pytest.fixture
def other() -> DatasetSplits:
    """Two targets; codes of an atom and a bond that the backbone has not seen, and one less."""
    graphs = path_graphs(37, 5, targets=2)
    for graph in graphs[:20]:
        graph.x[0] = 9
    for graph in graphs:
        graph.edge_attr[graph.edge_attr == 3] = 9
    parts = graphs, path_graphs(13, 6, targets=2), path_graphs(11, 7, targets=2)
    task = Task("regression", ("a", "b"), ("", ""), "mae")
    return DatasetSplits("paths", *parts, task, "others", "paths")


@pytest.fixture
def tune(backbone: Path, train: Callable, make_data: Callable) -> Callable:
    """Train for an epoch on other data, from the backbone on."""

    def run(data: DatasetSplits, **options: object) -> tuple:
        model = {"from_pretrained": str(backbone), **options}
        return train(model=model, data=make_data(data), max_epochs=1)

    return run


def test_everything_but_the_read_out_is_taken_over(backbone, other, tune):
    weights = model_weights(read_checkpoint(backbone))
    module, _, _ = tune(other, precise_bn_graphs=0, **STILL)
    own = module.model.state_dict()
    old = GraphVocabulary.from_plain(read_checkpoint(backbone)[KEY]["vocabulary"])
    assert 9 in module.vocabulary.atoms.seen[0]
    assert 9 not in old.atoms.seen[0]
    for name, value in weights.items():
        if "running" in name or "num_b" in name:
            continue
        if name.startswith(("readout", "atom_readout")):
            assert own[name].shape[0] == 2
            continue
        if name.endswith((".atom.weight", ".bond.weight")):
            of = "atoms" if name.endswith(".atom.weight") else "bonds"
            codes, all_codes = (getattr(one, of).seen[0] for one in (old, module.vocabulary))
            rows = [all_codes.index(code) + 1 for code in codes]
            torch.testing.assert_close(own[name][[0, *rows]], value[: len(rows) + 1])
        else:
            torch.testing.assert_close(own[name], value, msg=name)
    assert own["readout.weight"].shape[0] == 2
    # Sums over atoms are divided by what they were divided by.
    scale = read_checkpoint(backbone)[KEY]["model"]["mean_atoms"]
    assert module.model.config.mean_atoms == scale != 1


def test_rows_of_several_columns_find_their_places() -> None:
    old, new = Vocabulary(((1, 4), (0, 2))), Vocabulary(((1, 3, 4), (0, 1, 2)))
    assert _new_rows(old, new).tolist() == [0, 1, 3, 4, 6]


def test_the_architecture_is_the_backbones_and_dropout_ones_own(backbone: Path) -> None:
    config = ModelConfig(from_pretrained=str(backbone), layers=7, width=24, dropout=0.1)
    module = GraphormerModule(config, dropout=0.3)
    options = read_checkpoint(backbone)[KEY]["model"]
    assert module.architecture.layers == options["layers"] == 2
    assert module.architecture.encodings == "rrwp+rings"
    assert module.architecture.dropout == 0.3
    assert module.hparams["layers"] == 2


def test_a_fine_tuned_checkpoint_needs_the_backbone_no_more(
    tmp_path: Path, backbone: Path, other: DatasetSplits, tune: Callable, make_trainer: Callable
) -> None:
    module, data, trainer = tune(other)
    trainer.save_checkpoint(tmp_path / "tuned.ckpt")
    backbone.unlink()
    again = GraphormerModule.load_from_checkpoint(tmp_path / "tuned.ckpt")
    assert again.facts["from_pretrained"] == str(backbone)
    (first,) = trainer.test(module, data, verbose=False)
    (second,) = make_trainer().test(again, data, verbose=False)
    assert first == second


def test_other_features_are_refused(other: DatasetSplits, tune: Callable) -> None:
    with pytest.raises(CheckpointError, match="knows molecules by paths, these data by ogb"):
        tune(dataclasses.replace(other, feature_version="ogb"))


def test_a_backbone_that_lacks_a_weight_is_refused(backbone: Path) -> None:
    checkpoint = torch.load(backbone, weights_only=True)
    del checkpoint["state_dict"]["model.embedding.graph_token"]
    torch.save(checkpoint, backbone)
    with pytest.raises(CheckpointError, match=r"backbone\.ckpt.*embedding\.graph_token"):
        GraphormerModule(from_pretrained=str(backbone))


def test_a_share_of_the_labels_has_on_average_the_loss_of_all(train, make_data, losses):
    names = tuple(f"y{number}" for number in range(50))
    parts = [path_graphs(count, seed, targets=50) for seed, count in ((5, 37), (6, 3), (7, 3))]
    task = Task("regression", names, ("",) * 50, "mae")
    own = DatasetSplits("paths", *parts, task, "many", "paths")
    still = {"norm": "ln+ln", **NO_DROPOUT, **STILL}
    means = []
    for share in (1.0, 0.25):
        recorder = losses()
        model = {"label_fraction": share, **still}
        train(recorder, model=model, data=make_data(own), max_epochs=1, limit_val_batches=0)
        means.append(sum(recorder.values) / len(recorder.values))
    assert means[1] == pytest.approx(means[0], rel=0.15)
    assert means[1] != means[0]
