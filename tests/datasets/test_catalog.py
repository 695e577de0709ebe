from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graphormer_sepnorm.datasets.catalog import DATASETS, canonical_name, load_dataset
from graphormer_sepnorm.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("zinc_subset", "zinc-subset"),
        ("ZINC", "zinc"),
        (" ogbg_molhiv ", "ogbg-molhiv"),
    ],
)
def test_other_spellings_are_understood(given: str, expected: str) -> None:
    assert canonical_name(given) == expected


def test_a_data_set_of_ones_own_may_be_spelled_in_any_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(DATASETS, "My_set", lambda root: root)  # type: ignore[arg-type]
    for spelling in ("My_set", "my-set", "MY_SET"):
        assert canonical_name(spelling) == "My_set"
    assert load_dataset("My_set", tmp_path) == tmp_path


def test_unknown_name_offers_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_dataset("zinc-subst", tmp_path)
    message = str(caught.value)
    assert "unknown data set 'zinc-subst' (did you mean 'zinc-subset'?)" in message
    assert "ogbg-molhiv" in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
import sys
def heavy():
    names = "torch_geometric", "lightning", "rdkit", "pandas", "ogb", "networkx"
    print(*[name for name in names if name in sys.modules])
from graphormer_sepnorm.datasets import catalog
catalog.canonical_name("zinc")
heavy()
catalog.load_dataset("zinc", sys.argv[1])
import graphormer_sepnorm.datasets.molhiv
heavy()
"""


def test_what_a_data_set_imports_and_says(tiny_zinc: Callable[..., Path]) -> None:
    root = tiny_zinc()
    # torch 2.15 warns of torch.jit.script, which torch_geometric takes.
    command = [sys.executable, "-W", "ignore::FutureWarning", "-c", PROGRAM, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    of_names, of_graphs = map(str.split, done.stdout.splitlines())
    assert not of_names
    assert not {*of_graphs} & {"lightning", "rdkit", "ogb"}
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    path = root / "ZINC" / "raw" / "train.pickle"
    assert lines[0] == f"Reading {path}: half a minute, 2 GB of memory"
