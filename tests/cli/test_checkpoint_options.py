"""Whether an option that is given is the checkpoint's, in whatever words."""

from __future__ import annotations

from typing import Any

import pytest

from graphormer_sepnorm.cli.checkpoint_options import _differ


@pytest.mark.parametrize(
    ("name", "given", "kept", "differ"),
    [
        ("data.target_columns", "all", ["all"], False),
        ("data.target_columns", "[a, b]", ["a", "b"], False),
        ("data.target_columns", [], None, False),
        ("data.target_columns", "a", ["b"], True),
        ("data.descriptor_columns", "temperature,pH", ["temperature", "pH"], False),
        ("data.units", "kJ", ["kJ"], False),
        ("data.dataset", "Sample", "sample", False),
        ("data.dataset", "zinc12k", "zinc-subset", False),
        ("data.dataset", "zinc", "zinc-subset", True),
        ("data.dataset", None, "table", False),  # not said
        ("model.betas", [0.9, 0.99], (0.9, 0.99), False),
        ("model.width", 8, 16, True),
    ],
)
def test_the_same_in_other_words(name: str, given: Any, kept: Any, differ: bool) -> None:
    assert _differ(name, given, kept) is differ
