"""What is said before training."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from reference.models import small_model, stored
from reference.molecules import molecule

from graphormer_sepnorm.kernels.library import library, switched_off
from graphormer_sepnorm.training.callbacks.progress import ModelTable
from graphormer_sepnorm.training.module import GraphormerModule


@pytest.fixture
def say(capsys):
    """Return what is printed when training starts."""
    _, vocabulary = stored([molecule("CCO")])
    module = GraphormerModule()
    module.model = small_model(vocabulary)
    parts = {"train": range(1200), "validation": range(2), "test": range(3)}
    data = SimpleNamespace(splits=SimpleNamespace(name="esol", parts=parts, report=None))
    trainer = SimpleNamespace(is_global_zero=True, datamodule=data)

    def said() -> str:
        ModelTable().on_fit_start(trainer, module)  # type: ignore[arg-type]
        return capsys.readouterr().out

    return said


def test_data_and_model_are_named(say):
    lines = say().splitlines()
    assert lines[0] == "data   esol: 1,200 / 2 / 3 molecules (train / validation / test)"
    assert lines[1].startswith("model  ")
    assert lines[-2].startswith("total")


@pytest.mark.skipif(library() is None, reason="the kernels are not compiled")
def test_missing_kernels_are_said(say):
    assert "compiled kernels" not in say()
    with switched_off():
        assert "on cpu without compiled kernels, several times slower" in say()
