"""What ends a training early is one line if it is the user's to mend, and else what it was."""

import pytest
from lightning.pytorch import Trainer

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.pipeline.decisions import explaining


def test_what_is_no_mistake_of_the_user_stays_what_it_is() -> None:
    for error in (RuntimeError("a fault"), ValueError("a fault")):
        with pytest.raises(type(error)) as found, explaining():
            raise error
        assert found.value is error


def test_what_lightning_says_of_its_options_is_one_line() -> None:
    with pytest.raises(ConfigError, match="strategy") as found, explaining():
        Trainer(accelerator="cpu", strategy="foo")
    assert "\n" not in str(found.value)
