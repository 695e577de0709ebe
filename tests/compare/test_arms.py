"""The arms of a comparison, and that a seed makes them comparable."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.compare.arms import parse_arms
from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.config import NORMS
from graphormer_sepnorm.resources import arms_names, sample_path
from graphormer_sepnorm.runs.plan import Arm
from graphormer_sepnorm.training.module import GraphormerModule


@pytest.fixture(autouse=True)
def _known_noise() -> None:
    """Warnings that the command line silences do not fail a test either."""
    silence_known_noise()


def test_norms_by_name_keep_the_name_that_was_given() -> None:
    arms = parse_arms("sharenorm, sepnorm,bn+bn")
    assert [arm.name for arm in arms] == ["sharenorm", "sepnorm", "bn+bn"]
    assert arms[1].options == {"model.norm": "sepnorm"}


def test_arms_of_a_file_have_their_options_by_full_names(tmp_path: Path) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text(
        "plain:\n"
        "small:\n  model.width: 32\n  model.learning_rate: 1e-3\n"
        "wide:\n  model: {width: 64, atom_rows: null, betas: [0.9, 0.99]}\n  ema_decay: .9\n"
        "two:\n  data.target_columns: [a, 'b, c']\n"
    )
    plain, small, wide, two = parse_arms(str(path))
    assert plain == Arm("plain", {})
    assert small.options == {"model.width": 32, "model.learning_rate": 0.001}
    assert wide.options == {
        "model.width": 64,
        "model.atom_rows": None,
        "model.betas": [0.9, 0.99],
        "ema_decay": 0.9,
    }
    assert two.options == {"data.target_columns": ["a", "b, c"]}
    for arm in (small, wide, two):
        FitConfig().with_options(arm.options)


def test_arms_that_come_with_the_package_go_by_name_and_are_as_good_as_a_file() -> None:
    path = Path(__file__).resolve().parents[2] / "configs" / "arms" / "extensions.yaml"
    assert parse_arms("extensions") == parse_arms(str(path))
    for name in arms_names():
        for arm in parse_arms(name):
            sections = {option.split(".")[0] for option in arm.options}
            assert sections <= {"model", "data", "trainer"}, arm


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse_arms(text, ["metric"])
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "norm"),
        ("ingredient", "'ingredient'"),
        ("sepnrom", "'sepnorm'"),
        ("no.yaml", "no.yaml"),
    ],
)
def test_mistakes_in_names(text: str, named: str) -> None:
    assert named in refused(text)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "arms"),
        ("- sepnorm\n", "arms"),
        ("a: {model.norm: sepnorm\n", "line 2"),
        ("a: sepnorm\n", "'a'"),
        ("a: {model.width: 8}\na: {model.width: 16}\n", "a is there twice"),
        ("a: {model.width: 8, model.width: 9}\n", "model.width is there twice"),
        ("a: {metric: x}\n", "'a': --metric"),
    ],
)
def test_mistakes_in_a_file(content: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text(content)
    assert named in refused(str(path))


class Watch(Callback):
    """Notes the initial values, and of every step the molecules and the seed of dropout."""

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self.values = {name: value.clone() for name, value in pl_module.model.named_parameters()}
        self.steps: list[tuple[list[int], int]] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.steps.append((batch.graph_ids.tolist(), torch.initial_seed()))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Watch]:
    """All norms with seed 0, and one of them with another, on 40 molecules."""
    silence_known_noise()
    folder = tmp_path_factory.mktemp("paired")
    lines = gzip.decompress(sample_path().read_bytes()).decode().splitlines()
    (folder / "mine.csv").write_text("\n".join(lines[:41]))
    found = {}
    for norm, seed in [*((norm, 0) for norm in NORMS), ("bn+ln", 1)]:
        data = MoleculeDataModule(
            table=str(folder / "mine.csv"),
            root=str(folder),
            split="random",
            batch_size=8,
            max_path_length=3,
            seed=seed,
        )
        model = GraphormerModule(
            norm=norm, layers=2, width=16, heads=2, ffn_width=16, max_path_length=3, seed=seed
        )
        watch = Watch()
        trainer = Trainer(
            accelerator="cpu",
            max_epochs=2,
            callbacks=[watch],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(model, data)
        found[norm, seed] = watch
    return found


@pytest.mark.parametrize("norm", NORMS[1:])
def test_same_seed_gives_arms_the_same_beginning(
    norm: str, watched: dict[tuple[str, int], Watch]
) -> None:
    one, other = watched[NORMS[0], 0].values, watched[norm, 0].values
    shared = one.keys() & other.keys()
    assert all(torch.equal(one[name], other[name]) for name in shared)
    # Only the norms are not shared; most of the model is.
    assert all("norm" in name for name in (one.keys() ^ other.keys()))
    assert sum(one[name].numel() for name in shared) > 1000


@pytest.mark.parametrize("norm", NORMS[1:])
def test_same_seed_gives_arms_the_same_batches_and_dropout(
    norm: str, watched: dict[tuple[str, int], Watch]
) -> None:
    assert len(watched[norm, 0].steps) == 8
    assert watched[norm, 0].steps == watched[NORMS[0], 0].steps


def test_another_seed_gives_others(watched: dict[tuple[str, int], Watch]) -> None:
    one, other = watched["bn+ln", 0], watched["bn+ln", 1]
    assert any(not torch.equal(one.values[name], other.values[name]) for name in one.values)
    for (batch, dropout), (other_batch, other_dropout) in zip(one.steps, other.steps, strict=True):
        assert batch != other_batch
        assert dropout != other_dropout
