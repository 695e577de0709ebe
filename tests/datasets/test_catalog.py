from __future__ import annotations

from pathlib import Path

import pytest

from graphormer_sepnorm.datasets.catalog import DATASETS, canonical_name, load_dataset
from graphormer_sepnorm.errors import ConfigError


def test_capitals_and_underscores_do_not_matter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert canonical_name(" ogbg_molHIV ") == "ogbg-molhiv"
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
