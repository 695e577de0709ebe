"""The arms of a comparison, and that a seed makes them comparable."""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.compare.arms import Arm, parse_arms
from graphormer_sepnorm.compare.comparison import Comparison
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.config import NORMS
from graphormer_sepnorm.resources import arms_names, sample_path
from graphormer_sepnorm.training.module import GraphormerModule


@pytest.fixture(autouse=True)
def _known_noise() -> None:
    """Warnings that the command line silences do not fail a test either."""
    silence_known_noise()


def test_norms_by_name_keep_the_name_that_was_given() -> None:
    arms = parse_arms("sharenorm, sepnorm,bn+bn")
    assert [arm.name for arm in arms] == ["sharenorm", "sepnorm", "bn+bn"]
    assert arms[1].options == {"model.norm": "sepnorm"}
    assert arms[2].arguments == ["--model.norm=bn+bn"]


def test_arms_of_a_file_have_their_options_as_typed(tmp_path: Path) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text(
        "plain:\n"
        "small:\n  --model.width: 32\n  model.learning_rate: 1e-3\n"
        "wide:\n  model: {width: 64, atom_rows: null, betas: [0.9, 0.99]}\n  ema_decay: 0.9\n"
        'two:\n  data.target_columns: [a, "b, c"]\n'
    )
    plain, small, wide, two = parse_arms(str(path))
    assert plain == Arm("plain", {})
    assert small.options == {"model.width": "32", "model.learning_rate": "1e-3"}
    assert wide.arguments == [
        "--model.width=64",
        "--model.atom_rows=null",
        "--model.betas=[0.9, 0.99]",
        "--ema_decay=0.9",
    ]
    assert two.options == {"data.target_columns": '[a, "b, c"]'}


CALLBACK = "[{class_path: a.B, init_args: {every: 1e-3}}]"


@pytest.mark.parametrize(
    ("written", "typed"),
    [
        ("\n    - class_path: a.B\n      init_args: {every: 1e-3}", CALLBACK),
        (CALLBACK, CALLBACK),
        ("[[1, 0.10], [\"x: y\", '1']]", '[[1, 0.10], ["x: y", "1"]]'),
        ("\n    - a, b\n    - µ\n    -", '["a, b", µ, null]'),
        ("[]", "[]"),
        ('""', ""),
        ("", "null"),
    ],
)
def test_a_value_is_one_word_of_the_command_line(written: str, typed: str, tmp_path: Path) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text(f"a:\n  trainer.x: {written}\n")
    (arm,) = parse_arms(str(path))
    assert arm.arguments == [f"--trainer.x={typed}"]


def test_arms_that_come_with_the_package_go_by_name_and_are_as_good_as_a_file() -> None:
    path = Path(__file__).resolve().parents[2] / "configs" / "arms" / "extensions.yaml"
    assert parse_arms("extensions") == parse_arms(str(path))
    for name in arms_names():
        for arm in parse_arms(name):
            sections = {option.split(".")[0] for option in arm.options}
            assert sections <= {"model", "data", "trainer"}, arm


def test_what_arms_may_have_is_said_by_the_verb(tmp_path: Path) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text("one: {ensemble: 1, baselines: false}\nfive: {ensemble: 5}\n")
    one, _ = parse_arms(str(path), {"blend": "it is not"})
    assert one.options == {"ensemble": "1", "baselines": "false"}
    with pytest.raises(ConfigError, match="--ensemble is not for an arm: nor is this"):
        parse_arms(str(path), {"ensemble": "nor is this"})


def assert_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_arms(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has an arm without a name"),
        ("ingredient", "unknown norm 'ingredient'"),
        ("ingredient", ", a YAML file, or extensions or factorial"),
        ("sharenorm,,sepnorm", "has an arm without a name"),
        ("sharenorm,sepnrom", "unknown norm 'sepnrom' (did you mean 'sepnorm'?)"),
        ("sepnorm,sepnorm", "arm 'sepnorm' is there twice"),
        ("SepNorm,sepnorm", "arm 'sepnorm' is there twice"),
        ("sepnorm,bn+ln", "arms 'sepnorm' and 'bn+ln' are the same"),
        ("nowhere.yaml", "nowhere.yaml: the arms cannot be read (No such file"),
    ],
)
def test_mistakes_in_names(text: str, said: str) -> None:
    assert_refused(text, said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "expected arms, each with its options"),
        ("- sepnorm\n", "expected arms"),
        ("a: {model.norm: sepnorm\n", "line 2: the arms cannot be read"),
        ("a: sepnorm\n", "line 1, arm 'a': expected options, as {model.norm: sepnorm}"),
        ("a: {model.width: 8}\na: {model.width: 16}\n", "arm 'a' is there twice"),
        ("a: {model.width: 8, model.width: 9}\n", "model.width is there twice"),
        ("a: {model.width: 8, model: {width: 9}}\n", "model.width is there twice"),
        ("a: {model.width: 8}\nb: {model.width: 8}\n", "arms 'a' and 'b' are the same"),
        ("a: {model.norm: sepnrom}\n", "unknown norm 'sepnrom'"),
        ("a/b: {model.width: 8}\n", "'a/b' cannot be the name of an arm"),
        ("..: {model.width: 8}\n", "'..' cannot be the name of an arm"),
        ("figures: {model.width: 8}\n", "'figures' cannot be the name of an arm"),
        ("a: {seed_everything: 8}\n", "--seed_everything is not for an arm: the seeds are given"),
        ("a: {output: x}\n", "--output is not for an arm"),
        ("a: {config: x.yaml}\n", "--config is not for an arm: all begin with the configuration"),
        ("a: {keep: all}\n", "--keep is not for an arm: what a checkpoint keeps"),
        (
            "a: {baselines: true}\n",
            "--baselines is not for an arm: simple models stand beside all arms, give it to the co",
        ),
        (
            "a: {seeds: 3, model.width: 8}\n",
            "line 1, arm 'a': seeds is the same for all arms: give --seeds on the command line",
        ),
        ("a:\nseeds: [0, 1]\n", "line 2: seeds is the same for all arms: give --seeds on the comm"),
    ],
)
def test_mistakes_in_a_file(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text(content)
    assert_refused(str(path), said)


def test_an_arm_may_be_called_as_an_option_is(tmp_path: Path) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text("baseline:\njobs: {model.norm: sepnorm}\n")
    assert [arm.name for arm in parse_arms(str(path))] == ["baseline", "jobs"]


def test_comparison_is_kept(tmp_path: Path) -> None:
    begun = Comparison(
        base_options=("-c", "quickstart"),
        arms=parse_arms("sharenorm,sepnorm"),
        seeds=(0, 1),
        baseline="sharenorm",
        threads=3,
        dataset_fingerprint="abc",
        configuration={"model": {"layers": 2, "betas": [0.9, 0.99]}, "baselines": False},
    )
    assert Comparison.read(tmp_path) is None
    begun.write(tmp_path)
    assert Comparison.read(tmp_path) == begun
    assert begun.command_line()[3:] == [
        "-c",
        "quickstart",
        "--arms",
        "sharenorm,sepnorm",
        "--seeds",
        "0,1",
        "-o",
        "DIR",
    ]
    more = begun.with_more(parse_arms("bn+bn,sepnorm"), (1, 5))
    assert [arm.name for arm in more.arms] == ["sharenorm", "sepnorm", "bn+bn"]
    assert more.seeds == (0, 1, 5)
    other_arm = begun.with_more((Arm("deep", {"model.layers": "24"}),), ())
    other_baseline = dataclasses.replace(other_arm, baseline="deep")
    assert "arms.yaml" in other_baseline.command_line()
    assert other_baseline.command_line()[-4:] == ["--baseline", "deep", "-o", "DIR"]
    with pytest.raises(ConfigError, match=r"arm 'sepnorm' is --model.width=8 here and --model.nor"):
        begun.with_more((Arm("sepnorm", {"model.width": "8"}),), ())
    with pytest.raises(ConfigError, match="are the same"):
        begun.with_more(parse_arms("bn+ln"), ())
    other = {"model": {"layers": 3, "betas": [0.9, 0.99], "new": 1}, "baselines": None}
    assert begun.differences(other) == [
        "--model.layers is 3 here and 2 in compare.yaml",
        "--baselines is not given here and False in compare.yaml",
    ]
    same = {"model": {"layers": 2, "betas": [0.9, 0.99]}}
    (said,) = begun.differences(same | {"baselines": {"class_path": "Forest"}})
    assert said == (
        "--baselines is {'baselines.class_path': 'Forest'} here and False in compare.yaml"
    )
    with_class = dataclasses.replace(begun, configuration=same | {"baselines": {"of": {"n": 1}}})
    assert with_class.differences(with_class.configuration) == []
    (said,) = with_class.differences(same | {"baselines": None})
    assert said == "--baselines is not given here and {'baselines.of.n': 1} in compare.yaml"


def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    for content in ("a: [", "[]", "arms: 3", ""):
        (tmp_path / "compare.yaml").write_text(content)
        with pytest.raises(ConfigError, match=r"compare\.yaml is damaged"):
            Comparison.read(tmp_path)
    Comparison(("-c", "quickstart"), parse_arms("sharenorm,sepnorm"), (0,), "sepnorm").write(
        tmp_path
    )
    text = (tmp_path / "compare.yaml").read_text()
    for version in ("2", "0", "new"):
        other = text.replace("format_version: 1", f"format_version: {version}")
        (tmp_path / "compare.yaml").write_text(other)
        with pytest.raises(ConfigError, match=f"is of format {version}, .* knows format 1"):
            Comparison.read(tmp_path)
    (tmp_path / "compare.yaml").write_text(text.replace("arms:\n", "arms: 3\nothers:\n"))
    with pytest.raises(ConfigError, match=r"compare\.yaml is damaged"):
        Comparison.read(tmp_path)


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
