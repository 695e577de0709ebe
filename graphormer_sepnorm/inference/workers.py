"""Chunks of work in processes of their own, one to a core, with the results in order.

One process with many threads does not use many cores on a small model: parsing molecules takes one
core, and the matrices are too small to be divided. Several processes with one thread each do.
They are forked, so they start in no time, and the model is in memory once.

Not by `concurrent.futures`: its processes outlive the one that started them, cannot be ended in the
middle of their work, and it does not tell how one of them died. `multiprocessing.Pool` waits for a
killed one for ever.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch

from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.process import STOPS

Kept = TypeVar("Kept")

# Chunks per process that are under way or wait for an earlier one: bounds the memory.
_AHEAD = 2


def number_of_jobs(wanted: int | None, device: str) -> int:
    """Return how many processes to use.

    None wanted are as many as torch would use threads (the cores that this process may use, or
    OMP_NUM_THREADS); on a GPU, and where processes cannot be forked, one.

    Raises:
        ConfigError: More than one are wanted where only one is possible.
    """
    possible = device.startswith("cpu") and sys.platform == "linux"
    if not possible and (wanted or 1) > 1:
        raise ConfigError(f"--jobs {wanted}: several processes are for the CPU, and on Linux")
    return wanted or (torch.get_num_threads() if possible else 1)


def map_in_order(
    function: Callable[[Any], Any], items: Iterator[tuple[Kept, Any]], jobs: int
) -> Generator[tuple[Kept, Any], None, None]:
    """Apply a function to the second of each pair; yield the first and the result, in order.

    On a CPU the function has one thread to itself, whatever `jobs` is: its results depend on the
    number of threads in the last digits. If reading the items fails, what was read before is done
    first. Closing the generator ends the processes; one job needs none.

    Raises:
        DataError: A process was ended from outside.
    """
    if jobs > 1:
        yield from _in_processes(function, items, jobs)
        return
    for kept, item in items:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            result = function(item)
        finally:
            torch.set_num_threads(threads)
        yield kept, result


def _in_processes(
    function: Callable[[Any], Any], items: Iterator[tuple[Kept, Any]], jobs: int
) -> Iterator[tuple[Kept, Any]]:
    """See `map_in_order`; processes are started as there is work for them."""
    processes: dict[Any, Any] = {}  # by our end of the connection to it
    free: list[Any] = []  # connections
    number_of: dict[Any, int] = {}  # which item a process is at
    kept: dict[int, Kept] = {}
    results: dict[int, Any] = {}
    sent = given = 0
    failure: Exception | None = None
    try:
        while True:
            while failure is None and len(number_of) < jobs and sent - given < _AHEAD * jobs:
                try:
                    kept[sent], item = next(items)
                except Exception as error:  # StopIteration too
                    failure = error
                    break
                connection = free.pop() if free else _started(function, processes)
                with _alive(connection, processes):
                    connection.send(item)
                number_of[connection] = sent
                sent += 1
            if given == sent:
                break
            # What has arrived makes a process free, so it comes before the yield.
            arrived: Any = wait(list(number_of), timeout=0 if given in results else None)
            for connection in arrived:
                with _alive(connection, processes):
                    result = connection.recv()
                if isinstance(result, Exception):
                    raise result
                results[number_of.pop(connection)] = result
                free.append(connection)
            if not arrived:
                yield kept.pop(given), results.pop(given)
                given += 1
    finally:
        for connection, process in processes.items():
            connection.close()
            process.terminate()
            process.join()
    if failure is not None and not isinstance(failure, StopIteration):
        raise failure


def _started(function: Callable[[Any], Any], processes: dict[Any, Any]) -> Any:
    """Start one of the processes; return our end of the connection to it."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_serve, args=(function, theirs, [*processes, ours]), daemon=True
    )
    with warnings.catch_warnings():
        # Python warns of locks of other threads; those here are of idle numerical libraries.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    theirs.close()
    processes[ours] = process
    return ours


@contextlib.contextmanager
def _alive(connection: Any, processes: dict[Any, Any]) -> Iterator[None]:
    """Turn the end of a process into a message."""
    try:
        yield
    except (EOFError, OSError) as error:
        process = processes[connection]
        process.join()
        how = f"by signal {-process.exitcode}" if process.exitcode < 0 else "on its own"
        raise DataError(
            f"one of {len(processes)} processes was ended {how}, perhaps because memory ran out: "
            "use fewer (--jobs) or smaller batches (--batch_size)"
        ) from error


def _serve(
    function: Callable[[Any], Any], connection: Connection, others: list[Connection]
) -> None:
    """Work until the other end is closed, which is also what the death of its process does."""
    for other in others:
        other.close()
    # Ctrl-C and the end of a terminal reach all of its processes; the first one decides what then.
    for number in STOPS:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        while True:
            item = connection.recv()
            try:
                result = function(item)
            except Exception as error:
                error.add_note(traceback.format_exc())
                result = error
            connection.send(result)
