from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphormer_sepnorm.datasets import DATASETS, load_dataset
from graphormer_sepnorm.datasets.catalogue import ALIASES, canonical_name
from graphormer_sepnorm.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("zinc_subset", "zinc-subset"),
        ("ZINC", "zinc"),
        (" zinc-full ", "zinc"),
        ("molhiv", "ogbg-molhiv"),
        ("ogbg_molhiv", "ogbg-molhiv"),
        ("sample", "sample"),
    ],
)
def test_other_spellings_are_understood(given: str, expected: str) -> None:
    assert canonical_name(given) == expected


def test_every_alias_leads_to_a_data_set() -> None:
    assert set(ALIASES.values()) <= set(DATASETS)
    assert not set(ALIASES) & set(DATASETS)


def test_unknown_name_offers_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_dataset("zinc-subst", tmp_path)
    message = str(caught.value)
    assert "unknown data set 'zinc-subst' (did you mean 'zinc-subset'?)" in message
    assert "ogbg-molhiv" in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_the_catalogue_imports_nothing_heavy() -> None:
    code = (
        "import sys, graphormer_sepnorm.datasets.catalogue as c; c.canonical_name('zinc');"
        "print([m for m in ('torch_geometric', 'pandas', 'ogb', 'lightning', 'rdkit')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
