"""What the model's tests share."""

import pytest

from graphormer_sepnorm.cli.known_warnings import silence_known_noise


@pytest.fixture(autouse=True)
def _known_noise() -> None:
    """Warnings that the command line silences do not fail a test either."""
    silence_known_noise()
