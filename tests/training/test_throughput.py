"""How fast a run trains: by a clock that is known."""

from types import SimpleNamespace
from typing import Any

import pytest

from graphormer_sepnorm.training import callbacks as run_record
from graphormer_sepnorm.training.callbacks import Throughput


def test_loading_counts_and_validation_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((10.0, 12.0, 15.0, 100.0, 101.0))
    monkeypatch.setattr(run_record, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    given: Any = (None, None)
    batch, measured = SimpleNamespace(num_graphs=32), Throughput()
    for number in range(2):
        # The second batch was loaded after the first had ended.
        measured.on_train_batch_start(*given, batch, number)
        measured.on_train_batch_end(*given, None, batch, number)
    measured.on_validation_start(*given)
    measured.on_train_batch_start(*given, batch, 2)
    measured.on_train_batch_end(*given, None, batch, 2)
    assert measured.state_dict() == {"graphs": 96, "seconds": 6.0}
    again = Throughput()
    again.load_state_dict(measured.state_dict())
    assert again.graphs_per_second == 16
