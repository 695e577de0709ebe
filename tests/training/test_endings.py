"""What ends a training early is one line if it is the user's to mend, and else what it was."""

import pytest

from graphormer_sepnorm.pipeline.decisions import explaining


def test_what_is_no_mistake_of_the_user_stays_what_it_is() -> None:
    for error in (RuntimeError("a fault"), ValueError("a fault")):
        with pytest.raises(type(error)) as found, explaining():
            raise error
        assert found.value is error
