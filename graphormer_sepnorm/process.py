"""This process: the command that started it, which of several it is, its cores, memory, helpers."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import platform
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TypeVar

from graphormer_sepnorm.formatting import StatusLine

Made = TypeVar("Made")

# Set in the environment of a process that a command of ours has started, and of those that this one
# starts for other devices: the command kills them where they are to end at once.
KILLED_BY_ITS_COMMAND = "GRAPHORMER_KILLED_BY_ITS_COMMAND"
# Set by the command: the process has the reading end of a pipe as standard input, whose writing end
# only the command has, so that it ends when the command does, however that came.
ENDS_WITH_STDIN = "GRAPHORMER_ENDS_WITH_STDIN"

# What asks a process to end: Ctrl-C, a batch system, a terminal that is closed (not on Windows).
STOPS = signal.SIGINT, signal.SIGTERM, *filter(None, [getattr(signal, "SIGHUP", None)])
_calls = itertools.count(1)
_MANY = 2000  # molecules whose descriptors are worth several processes


def command(name: str) -> str:
    """Return how `train` or `predict` is called here, so that a proposed command can be pasted.

    Returns:
        ``python train.py`` in a checkout, ``graphormer-train`` where the package was installed and
        this process was started by one of its commands.
    """
    installed = Path(sys.argv[0]).name.startswith("graphormer-")
    return f"graphormer-{name}" if installed else f"python {name}.py"


def load_library(name: str) -> None:
    """Load a large library, and look for no garbage among its objects, which all stay."""
    if name in sys.modules:
        return
    again = gc.enable if gc.isenabled() else gc.disable
    gc.disable()
    try:
        import_module(name)
    finally:
        gc.freeze()
        again()


def resuming(directory: Path) -> str:
    """Return the command that continues a run."""
    return f"{command('train')} fit --resume {shlex.quote(str(directory))}"


@contextmanager
def answered_by(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Answer `STOPS`; what is ignored stays so: SIGINT in the background, SIGHUP under nohup."""
    before = {number: signal.getsignal(number) for number in STOPS}
    for number, known in before.items():
        if known != signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)


def end_with_the_command() -> None:
    """End this process when the command that started it does; does nothing in any other.

    At once and without saving: the next command may continue this run already. What is on disk is
    whole at any moment.
    """
    # Removed, so that processes started from here (for other devices) do not read it too.
    if os.environ.pop(ENDS_WITH_STDIN, None) is None:
        return
    os.environ[KILLED_BY_ITS_COMMAND] = "1"

    def wait() -> None:
        while os.read(0, 1):
            pass
        # With the processes that this one has started for other devices, which are of its group.
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def is_first_process() -> bool:
    """Whether this is the first of several training processes, or the only one."""
    # As torchrun, SLURM and Lightning say it; before Lightning is loaded.
    names = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK", "JSM_NAMESPACE_RANK")
    return all(os.environ.get(name) in (None, "", "0") for name in names)


def cores() -> int:
    """Return how many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def has_gpu_driver() -> bool:
    """Whether there is a driver of GPUs, asked without torch, whose import takes seconds."""
    with suppress(OSError):
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        return True
    return Path("/dev/kfd").exists()  # AMD's


def processor() -> str:
    """Return what the processor is called."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def in_chunks(
    function: Callable[[Sequence[str]], Made],
    texts: Sequence[str],
    size: int,
    done: int = 0,
    total: int | None = None,
) -> Generator[Made, None, None]:
    """Give what a function makes of `size` molecules at a time, showing how far that is.

    All cores compute where there are many; so it is one of a module. These are a part of `total`
    molecules, of which others are `done`; None: they are all. Closed early, by Ctrl-C too, it drops
    what is not begun.
    """
    total, line = total or len(texts), StatusLine()
    chunks = [texts[start : start + size] for start in range(0, len(texts), size)]
    with ExitStack() as stack:
        stack.callback(line.clear)
        computed = map(function, chunks)
        if total >= _MANY and cores() > 1:
            from concurrent.futures import ProcessPoolExecutor
            from multiprocessing import get_context

            context = get_context("spawn")  # forked, torch's threads may hold locks
            ignored = signal.SIGINT, signal.SIG_IGN  # this process decides
            pool = ProcessPoolExecutor(cores(), context, signal.signal, ignored)
            stack.callback(pool.shutdown, cancel_futures=True)
            computed = pool.map(function, chunks)
        for chunk, made in zip(chunks, computed, strict=True):
            done += len(chunk)
            if line.is_due():
                line.show(f"descriptors: {done:,} of {total:,} molecules")
            yield made


def trim_now_and_then() -> None:
    """Return freed memory to the system, at every eighth call.

    Batches of ever new sizes leave gaps between what is in use. The C library keeps them, and a
    process that predicts a long table would grow by hundreds of megabytes. Not at every call: the
    memory has to be had back from the system, page by page.
    """
    if next(_calls) % 8 == 0:
        with suppress(AttributeError, OSError, TypeError):  # glibc's: other libraries lack it
            ctypes.CDLL(None).malloc_trim(0)
