"""Warnings of libraries that a user can do nothing about stay off the screen; others show."""

import warnings

from graphormer_sepnorm.cli.known_warnings import silence_known_noise


def test_known_warnings_are_silent_and_others_show() -> None:
    with warnings.catch_warnings(record=True, action="always") as shown:
        silence_known_noise()
        warnings.warn("GPU available but not used", UserWarning, stacklevel=1)
        warnings.warn("`torch.load` is new", FutureWarning, stacklevel=1)
    assert [str(warning.message) for warning in shown] == ["`torch.load` is new"]
