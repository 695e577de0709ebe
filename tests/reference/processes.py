"""Python in a process of its own, as a user has it who works in some folder.

A new one takes two to five seconds of a core until torch and Lightning are imported. Where that is
not what a test is about, `Forked` is a process that begins after these imports.
"""

import importlib.util
import inspect
import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import forkserver, reduction
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from graphormer_sepnorm.runs import scheduler

REPOSITORY = Path(__file__).resolve().parents[2]
TESTS = REPOSITORY / "tests"
FIRST = "TESTS_RUN_FIRST"
_SERVER = forkserver._forkserver  # type: ignore[attr-defined]
_ASKED = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]


class Forked(subprocess.Popen):
    """`subprocess.Popen` of Python, forked from a server that has imported all there is to import.

    Environment, folder, streams, session, signals and exit status are those of any process. Each
    process of pytest has a server, which ends with it and serves what it has forked too. The code
    in the variable `FIRST` of the environment is run before the program.
    """

    def _execute_child(self, *given: Any) -> None:
        asked = _ASKED.bind(self, *given).arguments
        pipes = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)]
        environment = os.environ if asked["env"] is None else asked["env"]
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["reference.preloaded"])
        path = os.pathsep.join(map(str, (REPOSITORY, TESTS)))
        with mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}):
            _SERVER.ensure_running()
        self._process = context.Process(
            target=_run,
            args=(
                [os.fspath(word) for word in asked["args"]],
                dict(environment),
                os.path.abspath(asked["cwd"] or "."),
                [_Handed(file) for file in (*streams, *asked["pass_fds"])],
                asked["start_new_session"],
            ),
        )
        self._process.start()
        self.pid = self._process.pid
        self._child_created = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in names))

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            self.returncode = self._process.exitcode
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        self._process.join(timeout)
        if self._internal_poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode


def module_of(path: Path) -> Any:
    """A script that is in no package, as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return status and what was said on stderr."""
    _, error = process.communicate(timeout=300)
    return process.returncode, error


class _Handed:
    """A file descriptor on its way to a forked process, where it arrives as a number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (reduction.DupFd(self.number),)


def _arrived(handed: Any) -> int:
    return handed.detach()


def _run(
    words: Sequence[str], environment: dict[str, str], folder: str, files: list[int], session: bool
) -> None:
    """Be the Python that `words` would start, from where it has read its arguments."""
    if session:
        os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    streams, held = files[:3], files[3:]
    for number, file in enumerate(streams):
        os.dup2(file, number)
        os.close(file)
    for file in held:
        os.set_inheritable(file, True)
    sys.stdin = os.fdopen(0)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    _SERVER.ensure_running = lambda: None  # it is, or this process would not be
    scheduler.subprocess = FORKING  # type: ignore[assignment]
    exec(environment.get(FIRST, ""), {})
    _, program, *arguments = words
    place = "" if program in ("-c", "-m") else str(Path(program).resolve().parent)
    own = [] if environment.get("PYTHONSAFEPATH") else [place]
    named = environment.get("PYTHONPATH", "").split(os.pathsep)
    others = [path for path in sys.path if path and not Path(path).is_relative_to(TESTS)]
    sys.path[:] = [*own, *filter(None, named), *others]
    if program == "-c":
        sys.argv = ["-c", *arguments[1:]]
        exec(compile(arguments[0], "<string>", "exec"), {"__name__": "__main__"})
    elif program == "-m":
        sys.argv = arguments
        sys.modules.pop(arguments[0], None)  # of which runpy would warn
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [program, *arguments]
        runpy.run_path(program, run_name="__main__")


# Of another folder than this one: its modules are not those that the server has.
_ANEW = """
import sys
for name in [name for name in sys.modules if name.partition(".")[0] == "graphormer_sepnorm"]:
    del sys.modules[name]
"""
# The module subprocess for code that starts Python by it.
FORKING = SimpleNamespace(**{**vars(subprocess), "Popen": Forked})


def run_python(
    *arguments: str | Path, cwd: Path, package: Path = REPOSITORY, first: str = "", text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run Python on a single core, without importing libraries again.

    Args:
        arguments: What stands behind `python`.
        cwd: Its folder.
        package: The folder that holds graphormer_sepnorm.
        first: See `Forked`.
        text: What it reads.
    """
    first += "" if package == REPOSITORY else _ANEW
    with Forked(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(package), FIRST: first},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        out, error = process.communicate(text, timeout=900)
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)
