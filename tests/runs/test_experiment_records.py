"""Records of experiments: merging, keeping, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiments import experiment, seed_run

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.runs.records import add_to_records, merge, read_records


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    first = experiment(seed_run(0, validation=None), seed_run(1, device=None, finished=False))
    second = experiment(name="other, ä=1/2", options={"model.norm": "bn+bn"}, molecules=None)
    add_to_records(tmp_path / "new" / "results", [first, second])
    records = read_records(tmp_path / "new" / "results")
    assert {one.name: one for one in records.values()} == {"mine": first, second.name: second}
    for path, one in records.items():
        assert path.name.startswith("zinc-subset-")
        assert path.name.endswith(f"-{one.fingerprint}.json")


def test_seeds_are_merged_and_known_runs_replaced(tmp_path: Path) -> None:
    add_to_records(tmp_path, [experiment(seed_run(0), seed_run(2, validation=1.0))])
    again = experiment(seed_run(2, validation=2.0), name="called otherwise")
    (merged,) = add_to_records(tmp_path, [again, experiment(seed_run(1))])
    assert [(run.seed, run.validation) for run in merged.runs] == [(0, 0.3), (1, 0.3), (2, 2.0)]
    assert list(read_records(tmp_path).values()) == [merged]


@pytest.mark.parametrize("options", [{"model.width": 65}, {}])
def test_other_options_are_another_experiment(options: dict) -> None:
    assert len(merge([experiment(), experiment(options=options)])) == 2


def test_the_order_of_options_makes_no_other_experiment() -> None:
    options = {"model.width": 64, "data.batch_size": 8}
    backwards = dict(reversed(options.items()))
    assert len(merge([experiment(options=options), experiment(options=backwards)])) == 1


def test_other_data_are_another_experiment() -> None:
    assert len(merge([experiment(), experiment(dataset_fingerprint="abd")])) == 2


def test_an_unfinished_run_does_not_replace_a_finished_one() -> None:
    finished = experiment(seed_run(0))
    unfinished = experiment(seed_run(0, finished=False, began="2026-02-02T00:00:00+00:00"))
    for order in ([finished, unfinished], [unfinished, finished]):
        (merged,) = merge(order).values()
        assert merged.runs == finished.runs


def test_of_two_finished_runs_the_later_one_counts() -> None:
    early, late = seed_run(0), seed_run(0, began="2026-02-02T00:00:00+00:00", validation=9.0)
    for order in ([early, late], [late, early]):
        (merged,) = merge(map(experiment, order)).values()
        assert merged.runs == (late,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"format_version": 1', "is damaged"),
        ("[]", "is damaged"),
        ("{}", "is no record of this version"),
        ('{"format_version": 99}', "is no record of this version"),
        ('{"format_version": 1, "runs": [{"seed": 0}]}', "is no record of this version"),
        ('{"format_version": 1, "runs": []}', "is no record of this version"),
    ],
)
def test_damaged_record_is_named_and_nothing_written(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DataError, match=said) as caught:
        add_to_records(tmp_path, [experiment()])
    assert str(path) in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"):
        add_to_records(tmp_path / "file" / "results", [experiment()])
