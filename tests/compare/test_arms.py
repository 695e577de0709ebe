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
from graphormer_sepnorm.resources import arms_names, sample_path
from graphormer_sepnorm.runs.plan import Arm
from graphormer_sepnorm.training.module import GraphormerModule

ARMS = Path(__file__).resolve().parents[2] / "configs" / "arms"


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
    )
    plain, small, wide = parse_arms(str(path))
    assert plain == Arm("plain", {})
    assert small.options == {"model.width": 32, "model.learning_rate": "1e-3"}
    of_model = {"model.width": 64, "model.atom_rows": None, "model.betas": [0.9, 0.99]}
    assert wide.options == {**of_model, "ema_decay": 0.9}
    config = FitConfig().with_options(small.options | wide.options)
    assert config.model.learning_rate == 0.001


@pytest.mark.parametrize("name", arms_names())
def test_bundled_arms_go_by_name(name: str) -> None:
    arms = parse_arms(name)
    assert arms == parse_arms(str(ARMS / f"{name}.yaml"))
    for arm in arms:
        assert {option.split(".")[0] for option in arm.options} <= {"model", "data", "trainer"}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "arms"),
        ("- sepnorm\n", "arms"),
        ("a: {model.norm: sepnorm\n", "line 2"),
        ("a: sepnorm\n", "'a'"),
        ("a: {metric: x}\n", "'a': --metric"),
    ],
)
def test_mistakes_in_a_file(content: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=named):
        parse_arms(str(path), ["metric"])


@pytest.mark.parametrize("text", ["", "ingredient", "sepnrom", "no.yaml"])
def test_mistakes_in_names(text: str) -> None:
    with pytest.raises(ConfigError, match=text or "norm"):
        parse_arms(text)


class Watch(Callback):
    """Notes the initial values, and of every step the molecules and the seed of dropout."""

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self.values = {name: value.clone() for name, value in pl_module.model.named_parameters()}
        self.steps: list[tuple[list[int], int]] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.steps.append((batch.graph_ids.tolist(), torch.initial_seed()))


def test_same_seed_gives_arms_the_same_beginning_batches_and_dropout(tmp_path: Path) -> None:
    silence_known_noise()
    lines = gzip.decompress(sample_path().read_bytes()).decode().splitlines()
    (tmp_path / "mine.csv").write_text("\n".join(lines[:41]))
    watched = []
    for norm, seed in (("shared-ln", 0), ("bn+ln", 0), ("shared-bn", 0), ("bn+ln", 1)):
        data = MoleculeDataModule(
            table=str(tmp_path / "mine.csv"),
            root=str(tmp_path),
            split="random",
            batch_size=8,
            max_path_length=3,
            seed=seed,
        )
        sizes = {"layers": 2, "width": 16, "heads": 2, "ffn_width": 16, "max_path_length": 3}
        watched.append(Watch())
        trainer = Trainer(
            accelerator="cpu",
            max_epochs=2,
            callbacks=[watched[-1]],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(GraphormerModule(norm=norm, seed=seed, **sizes), data)
    first, second, *_, another = watched
    assert len(first.steps) == 8
    for other in watched[1:3]:
        shared = first.values.keys() & other.values.keys()
        assert all(torch.equal(first.values[name], other.values[name]) for name in shared)
        # Only the norms are not shared; most of the model is.
        assert all("norm" in name for name in first.values.keys() ^ other.values.keys())
        assert sum(first.values[name].numel() for name in shared) > 1000
        assert other.steps == first.steps
    assert any(not torch.equal(second.values[name], another.values[name]) for name in second.values)
    for (batch, dropout), (other_batch, other_dropout) in zip(
        second.steps, another.steps, strict=True
    ):
        assert batch != other_batch
        assert dropout != other_dropout
