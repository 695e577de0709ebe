"""The arms of a comparison."""

from pathlib import Path

import pytest

from graphormer_sepnorm.compare.arms import parse_arms
from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.runs.plan import Arm


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
