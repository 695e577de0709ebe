"""Chunks in processes: results in order, few ahead, and no process outlives its reader."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest
import torch

from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.inference.workers import map_in_order, number_of_jobs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")


@pytest.fixture(autouse=True)
def _none_is_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def pairs(number: int) -> Iterator[tuple[str, int]]:
    return ((f"row {n}", n) for n in range(number))


@pytest.mark.parametrize("jobs", [1, 2, 5])
@pytest.mark.parametrize("number", [0, 1, 2, 30])
def test_results_are_in_order(jobs, number):
    def square(n: int) -> int:
        time.sleep(0.02 * (n % 3 == 0))  # later ones are done first
        return n * n

    done = list(map_in_order(square, pairs(number), jobs))
    assert done == [(f"row {n}", n * n) for n in range(number)]


def test_each_process_has_one_thread_and_this_one_keeps_its_own():
    def where(_: int) -> tuple[int, int]:
        time.sleep(0.05)
        return os.getpid(), torch.get_num_threads()

    torch.set_num_threads(2)
    here = [result for _, result in map_in_order(where, pairs(2), 1)]
    there = [result for _, result in map_in_order(where, pairs(6), 2)]
    assert torch.get_num_threads() == 2
    assert {threads for _, threads in (*here, *there)} == {1}
    assert {process for process, _ in here} == {os.getpid()}
    others = {process for process, _ in there}
    assert len(others) == 2
    assert os.getpid() not in others


def test_few_items_are_ahead():
    read = []

    def items() -> Iterator[tuple[int, int]]:
        for n in range(60):
            read.append(n)
            yield n, n

    for given, _ in map_in_order(abs, items(), 3):
        assert len(read) <= given + 1 + 2 * 3
    assert len(read) == 60


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_are_raised_here(jobs):
    def fail(n: int) -> int:
        if n == 3:
            raise DataError("three is too many")
        return n

    with pytest.raises(DataError, match="three is too many"):
        list(map_in_order(fail, pairs(9), jobs))


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("good", [0, 1, 7])
def test_what_was_read_before_the_input_failed_is_done(jobs, good):
    def damaged() -> Iterator[tuple[str, int]]:
        yield from pairs(good)
        raise DataError("cut off")

    results = map_in_order(abs, damaged(), jobs)
    assert [next(results)[1] for _ in range(good)] == list(range(good))
    with pytest.raises(DataError, match="cut off"):
        next(results)


def test_a_process_that_is_killed_is_noticed():
    def die(n: int) -> int:
        if n == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    with pytest.raises(DataError, match=r"one of 2 processes was ended by signal 9[^\n]*$"):
        list(map_in_order(die, pairs(9), 2))


def test_processes_end_with_the_one_that_reads():
    results = map_in_order(abs, pairs(100), 2)
    next(results)
    assert len(multiprocessing.active_children()) == 2
    results.close()


def test_number_of_jobs(monkeypatch):
    assert number_of_jobs(None, "cuda") == number_of_jobs(1, "cuda:1") == 1
    with pytest.raises(ConfigError, match="--jobs 2"):
        number_of_jobs(2, "cuda")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert number_of_jobs(None, "cpu") == 7
    assert number_of_jobs(3, "cpu") == 3
