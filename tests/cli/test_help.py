"""``--help`` is short and true; ``--help-all`` is whole."""

from __future__ import annotations

import re

import pytest

from graphormer_sepnorm.cli.help import SHOWN
from graphormer_sepnorm.cli.options import option_names
from graphormer_sepnorm.cli.train import main

VERBS = ("fit", "validate", "test")


def help_of(verb: str, option: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        main([verb, option])
    assert end.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_options_that_are_shown_exist(verb: str, parsers: dict) -> None:
    names = [name for group in SHOWN[verb].values() for name in group]
    assert len(names) == len(set(names))
    assert set(names) <= set(option_names(parsers[verb]))


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_a_screen(verb: str, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = help_of(verb, "--help", capsys)
    assert help_of(verb, "-h", capsys) == text
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 100
    shown = re.findall(r"^  --(\S+)", text, flags=re.MULTILINE)
    assert shown == [name for group in SHOWN[verb].values() for name in group]
    assert f"train.py {verb} --help-all" in text


def test_help_of_pretraining_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("pretrain", "--help", capsys)
    assert text.startswith("usage: train.py pretrain -c CONFIG.yaml --data.molecules FILE")
    assert re.findall(r"^  --(data\.\S+)", text, flags=re.MULTILINE)[0] == "data.molecules"
    assert "--data.table" not in text
    assert "train.py pretrain --help-all" in text


def test_defaults_and_texts_are_the_parsers(parsers: dict, capsys) -> None:
    parsers["fit"].set_defaults({"model.layers": 99})
    parsers["fit"].print_help()
    text = capsys.readouterr().out
    assert re.search(r"--model\.layers +99 +Transformer layers$", text, flags=re.MULTILINE)
    assert re.search(r"--data\.root +data +The data root: raw files", text)


@pytest.mark.parametrize("verb", VERBS)
def test_help_all_has_every_option(verb: str, parsers: dict, capsys) -> None:
    text = help_of(verb, "--help-all", capsys)
    lacking = {name for name in option_names(parsers[verb]) if f"--{name}" not in text}
    assert lacking == set()
    assert "(type: int, default: 12)" in text
