"""Ray itself: loaded, started or joined, and kept quiet."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.formatting import in_a_line, shortened
from graphormer_sepnorm.process import cores

# Of Ray, where the user says nothing else.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns of a change
    # On a busy machine its processes take longer than a minute to begin; it would kill them, and
    # begin anew for ever.
    "RAY_worker_register_timeout_seconds": "600",
    "OMP_NUM_THREADS": "1",
}
_SPARE_CPUS = 2  # beside the actors, for reading and writing
_ANSWER_SECONDS = 10.0


def load_ray() -> Any:
    """Return the module.

    Raises:
        ConfigError: It is not installed.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray  # pyright: ignore[reportMissingImports]
            import ray.data  # pyright: ignore[reportMissingImports]
            import ray.data.checkpoint  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError(
            "--engine ray needs Ray 2.60 or newer: pip install 'graphormer-sepnorm[ray]'"
        ) from None
    return ray


@contextlib.contextmanager
def cluster(
    ray: Any, address: str | None, wanted: int | None, device: str | None
) -> Iterator[tuple[int, bool]]:
    """Start Ray, or join a cluster; give how many actors there are to be, and if on GPUs.

    Args:
        ray: The module.
        address: Of a running cluster; None starts one on this machine.
        wanted: How many actors; None: one for each GPU, else each CPU that is to spare.
        device: ``cpu`` leaves GPUs alone, ``cuda`` needs them, None takes what is there.

    Raises:
        ConfigError: There is no such cluster, it is too small, or has no GPU where one is needed.
    """
    _require_answer(address or "")
    silent: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.FATAL}
    before = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if address is None:
                actors = wanted or cores()
                ray.init("local", num_cpus=actors + _SPARE_CPUS, include_dashboard=False, **silent)
            else:
                ray.init(address, **silent)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise ConfigError(
            f"Ray cannot be started {where} ({shortened(in_a_line(str(error)), 120)}): with "
            "--address auto a cluster must be running (ray start --head)"
        ) from error
    finally:
        signal.signal(signal.SIGTERM, before)  # Ray puts its own in its place
    try:
        there = ray.cluster_resources()
        gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 0))
        if device == "cuda" and gpus == 0:
            raise ConfigError(
                "the cluster has no GPU for --device cuda: leave it out, and its CPUs predict"
            )
        on_gpu = gpus > 0 and device != "cpu"
        most = gpus if on_gpu else cpus - _SPARE_CPUS
        actors = wanted or most
        if not 1 <= actors <= most:
            raise ConfigError(
                f"the cluster has {cpus} CPUs and {gpus} GPUs, {_SPARE_CPUS} CPUs read and write: "
                f"there can be {max(most, 0)} actors (--num_actors), not {actors}"
            )
        yield actors, on_gpu
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    """Knock at ``HOST:PORT``, or ``ray://HOST:PORT``: Ray itself would try for minutes.

    Raises:
        ConfigError: Nobody answers.
    """
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if not (host and port.isdigit()):  # auto
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"no Ray cluster answers at {address} ({error}): is it running (ray start --head), and "
            "is this its address?"
        ) from error


@contextlib.contextmanager
def silence() -> Iterator[TextIO]:
    """Let nothing write to the terminal but who has what this gives, which is stderr.

    The processes of Ray, its C++ and its threads in this one know no option that keeps them all
    from it.
    """
    streams = sys.stdout, sys.stderr
    for stream in streams:
        stream.flush()
    out, ours = os.dup(1), os.fdopen(os.dup(2), "w")
    with ours, open(os.devnull, "w") as nowhere:
        for number in (1, 2):
            os.dup2(nowhere.fileno(), number)
        try:
            yield ours
        finally:
            for stream in streams:
                stream.flush()
            os.dup2(out, 1)
            os.dup2(ours.fileno(), 2)
            os.close(out)


class Failures(logging.Handler):
    """Takes what Ray Data says for itself; of errors that stop nothing it keeps the last."""

    def __init__(self) -> None:
        super().__init__()
        self.last: BaseException | None = None
        self._logger = logging.getLogger("ray.data")

    @property
    def reason(self) -> str:
        """The last error in a line: what it began with, not what Ray says of that."""
        if self.last is None:
            return "Ray gave no reason"
        text = str(self.last).strip()
        errors = re.findall(r"^\s*[\w.]*(?:Error|Exception): .+", text, flags=re.MULTILINE)
        lines = [*errors, *text.splitlines(), type(self.last).__name__]
        return shortened(lines[0].strip(), 200)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an error; below that level Ray tells of what it has got over itself."""
        if record.levelno >= logging.ERROR and record.exc_info and record.exc_info[1] is not None:
            self.last = record.exc_info[1]

    def __enter__(self) -> Failures:
        self._before = self._logger.handlers[:]
        files = [one for one in self._before if not isinstance(one, logging.StreamHandler)]
        self._logger.handlers[:] = [self, *files]
        return self

    def __exit__(self, *exception: object) -> None:
        self._logger.handlers[:] = self._before
