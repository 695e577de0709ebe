"""What all tests share: the real data, a closed network, the same random state for each."""

import hashlib
import ipaddress
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest
import torch
from reference.compiled import compiled_forms
from reference.molecules import zinc_validation
from torch_geometric.data import Data

from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.kernels.library import library

NO_DATA = (
    "needs the real data: set the environment variable GRAPHORMER_DATA to the folder that holds "
    "materialise.py (for example GRAPHORMER_DATA=../shared/datasets)"
)


# Workers side by side share the cores; with as many threads each, torch's wait for each other, and
# work takes several times as long.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# In the background tests are started with Ctrl-C ignored, by nohup with SIGHUP; this stays so.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

SIGNALS = [one for one in signal.Signals if one.name in ("SIGINT", "SIGTERM", "SIGHUP")]

# These take longest: they go first, so that no worker of several waits for them at the end.
LONGEST = ("readme", "compare", "distributed", "resume", "checkpoints")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; the others keep their order."""
    places = {f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


class NetworkBlocked(OSError):
    """A test tried to reach the network."""


def _is_local(host: str | bytes | None) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost", socket.gethostname()):
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


@pytest.fixture
def network_attempts() -> list[str]:
    """The hosts that the test tried to reach; a test that asks for this one may try."""
    return []


@pytest.fixture(autouse=True)
def _closed_network(request, monkeypatch) -> Iterator[None]:
    """Let no test reach anything but this machine.

    A refused attempt looks like a machine without a network (an OSError), which code may well
    handle; so a test that made one unexpectedly, in a thread perhaps, fails at its end.
    """
    if request.node.get_closest_marker("network"):
        yield
        return
    expected = "network_attempts" in request.fixturenames
    attempts = request.getfixturevalue("network_attempts") if expected else []
    getaddrinfo = socket.getaddrinfo

    def refuse(host: object) -> None:
        attempts.append(str(host))
        raise NetworkBlocked(f"tests have no network: {host}")

    def guarded(connect: Callable[..., Any]) -> Callable[..., Any]:
        def checked(self: socket.socket, address: object) -> Any:
            # Unix sockets have a path here, the internet's families (host, port, ...).
            if isinstance(address, tuple) and not _is_local(address[0]):
                refuse(address[0])
            return connect(self, address)

        return checked

    def guarded_getaddrinfo(host: str | bytes | None, *args: object, **kwargs: object) -> list:
        if not _is_local(host):
            refuse(host)
        return getaddrinfo(host, *args, **kwargs)

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
    monkeypatch.setattr(socket, "getaddrinfo", guarded_getaddrinfo)
    yield
    if attempts and not expected:
        pytest.fail(f"tried to reach the network: {', '.join(attempts)}")


@pytest.fixture(autouse=True)
def _known_noise() -> None:
    """Warnings that the command line silences do not fail a test either."""
    silence_known_noise(trains="lightning.pytorch" in sys.modules)


@pytest.fixture(autouse=True)
def _same_random_state() -> Iterator[None]:
    """Start each test from the same seeds; put torch's settings and signals back after it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    dtype = torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    grad, threads = torch.is_grad_enabled(), torch.get_num_threads()
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.use_deterministic_algorithms(deterministic)
    torch.set_grad_enabled(grad)


@pytest.fixture(params=compiled_forms() or [None])
def compiled_form(request: pytest.FixtureRequest) -> Iterator[None]:
    """The compiled functions, in each form that this processor can run."""
    if request.param is None:
        pytest.skip("the kernels are not compiled, or switched off")
    from reference.compiled import in_form

    with in_form(request.param):
        yield


@pytest.fixture
def compiled_products(compiled_form: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled matrix products, also in the forms where torch's are faster."""
    monkeypatch.setattr(library(), "products_are_fast", lambda gradients: 1)


@pytest.fixture(scope="session")
def data_source() -> Path:
    """The folder of real data that GRAPHORMER_DATA names."""
    setting = os.environ.get("GRAPHORMER_DATA")
    if not setting:
        pytest.skip(NO_DATA)
    source = Path(setting).expanduser()
    if not (source / "materialise.py").is_file():
        pytest.fail(f"GRAPHORMER_DATA={setting} has no materialise.py in it")
    return source


def _materialize(zinc: str, source: Path, fallback: Path) -> Path:
    """Lay the real data out under a folder that later runs find again, and return it."""
    key = hashlib.sha256()
    for name in ("SHA256SUMS", "materialise.py"):
        key.update((source / name).read_bytes())
    user = os.getuid() if hasattr(os, "getuid") else 0
    cache = Path(tempfile.gettempdir()) / f"graphormer_sepnorm-tests-{user}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != user or cache.is_symlink():
        cache = fallback  # somebody else's folder; what lies in it is unpickled, so not that one
    root = cache / f"{key.hexdigest()[:16]}-{zinc}"
    # Another pytest process may be about to do the same: it waits, then finds the folder.
    with filelock.FileLock(f"{root}.lock"):
        if not root.is_dir():
            staging = Path(tempfile.mkdtemp(dir=cache, prefix="materializing."))
            command = [sys.executable, str(source / "materialise.py"), str(staging), "--quiet"]
            command += ["--zinc", zinc]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.fail(f"materialise.py failed: {done.stderr.strip()}")
            staging.rename(root)
    return root


@pytest.fixture(scope="session")
def real_data_root(data_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with ZINC-subset and ogbg-molhiv; shared by tests and runs, so not to be damaged.

    Kept below the system's temporary folder between runs.
    """
    return _materialize("subset", data_source, tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def zinc_graphs(real_data_root: Path) -> list[Data]:
    return zinc_validation(real_data_root, 40)


@pytest.fixture(scope="session")
def real_data_root_full(data_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the whole of ZINC: half a minute and 0.5 GB of disk the first time."""
    return _materialize("full", data_source, tmp_path_factory.getbasetemp())
