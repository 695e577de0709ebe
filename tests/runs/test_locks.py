"""One process in a run directory; nothing is left of a run that has not begun."""

import errno
import multiprocessing
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from graphormer_sepnorm.errors import ConfigError, Interrupted
from graphormer_sepnorm.runs import locks
from graphormer_sepnorm.runs.directory import LOCK
from graphormer_sepnorm.runs.locks import RunLock, lock, locked

REPOSITORY = Path(__file__).parents[2]
HOLDER = """
import sys, time
from pathlib import Path
from graphormer_sepnorm.runs.locks import RunLock
with RunLock() as run:
    print(run.new(Path(sys.argv[1])), flush=True)
    time.sleep(60)
"""


def made(wanted: Path, *files: str) -> Path:
    with RunLock() as run:
        path = run.new(wanted)
        assert (path / LOCK).is_file()
        for name in files:
            (path / name).write_text("{}")
    return path


def test_run_directories_are_numbered_not_overwritten(tmp_path: Path, monkeypatch) -> None:
    names = [made(tmp_path / "runs" / "a", "summary.json").name for _ in range(3)]
    assert names == ["a", "a-2", "a-3"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / LOCK).write_text("")  # as a process leaves it that was killed
    (tmp_path / "file").write_text("")
    assert made(tmp_path / "empty") == tmp_path / "empty"
    assert made(tmp_path / "file") == tmp_path / "file-2"
    # A folder that is given without its name.
    (tmp_path / "here" / "inside").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert made(Path(), "summary.json").resolve() == tmp_path / "here-2"
    monkeypatch.chdir(tmp_path / "here" / "inside")
    assert made(Path("..")).resolve() == tmp_path / "here-3"


def test_run_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for parent in ("file", "link"):
        with RunLock() as run, pytest.raises(ConfigError, match="--output"):
            run.new(tmp_path / parent / "run")


def test_a_directory_at_work_is_taken_until_its_process_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "a")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert process.stdout is not None
    assert process.stdout.readline() == f"{tmp_path / 'a'}\n"
    assert made(tmp_path / "a", "summary.json") == tmp_path / "a-2"
    with RunLock() as run, pytest.raises(ConfigError) as refused:
        run.reopen(tmp_path / "a")
    assert f"{tmp_path / 'a'} is being trained" in str(refused.value)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with RunLock() as run:
        run.reopen(tmp_path / "a")
        assert lock(tmp_path / "a" / LOCK) is None
    process.stdout.close()


def test_a_forked_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    """One that loads data outlives a run that is killed by some seconds."""
    context = multiprocessing.get_context("fork")
    begun, end = context.Event(), context.Event()

    def load() -> None:
        begun.set()
        end.wait()

    with RunLock() as run:
        run.reopen(tmp_path)
        child = context.Process(target=load)
        child.start()
        begun.wait()
    try:
        with RunLock() as again:
            again.reopen(tmp_path)
    finally:
        end.set()
        child.join()


def test_of_several_processes_the_first_one_locks(tmp_path: Path, monkeypatch) -> None:
    with RunLock() as first:
        first.reopen(tmp_path)
        monkeypatch.setenv("RANK", "1")
        with RunLock() as second:
            second.reopen(tmp_path)
        assert (tmp_path / LOCK).exists()


@pytest.mark.parametrize("error", [ConfigError, RuntimeError, KeyboardInterrupt, Interrupted])
def test_nothing_is_left_of_a_start_that_failed(error: type[BaseException], tmp_path: Path) -> None:
    def fail(wanted: Path) -> None:
        with RunLock() as run:
            path = run.new(wanted)
            (path / "config.yaml").write_text("{}")
            (path / "run.json").write_text("{}")
            (path / "tensorboard").mkdir()
            (path / "tensorboard" / "events.1").write_text("")
            raise error("too late")

    with pytest.raises(error):
        fail(tmp_path / "runs" / "table" / "bn+ln-seed0")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("what", ["trained", "there before", "resumed"])
def test_what_is_worth_something_is_kept(what: str, tmp_path: Path) -> None:
    wanted = tmp_path / "runs" / "a"
    if what != "trained":
        wanted.mkdir(parents=True)

    def fail() -> None:
        with RunLock() as run:
            if what == "resumed":
                run.reopen(wanted)
            else:
                assert run.new(wanted) == wanted
            (wanted / "config.yaml").write_text("{}")
            run.worth_keeping |= what == "trained"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (wanted / "config.yaml").is_file()


def test_one_command_at_work_and_its_processes_hold_the_lock_too(tmp_path: Path) -> None:
    with locked(tmp_path) as descriptor:
        orphan = subprocess.Popen(["sleep", "60"], pass_fds=(descriptor,))
        with pytest.raises(ConfigError):
            locked(tmp_path, patience=0.2).__enter__()
    try:
        with pytest.raises(ConfigError):
            locked(tmp_path, patience=0).__enter__()
    finally:
        orphan.kill()
        orphan.wait()
    with locked(tmp_path, patience=0.2):
        pass


def test_a_file_system_without_locks_is_warned_of(tmp_path: Path, monkeypatch, caplog) -> None:
    no_locks = Mock(side_effect=OSError(errno.ENOLCK, "No locks available"))
    monkeypatch.setattr(locks, "lock_descriptor", no_locks)
    assert made(tmp_path / "run") == tmp_path / "run"
    assert "has no locks" in caplog.text


def test_a_directory_where_nothing_can_be_written(tmp_path: Path, monkeypatch) -> None:
    read_only = Mock(side_effect=OSError(errno.EROFS, "Read-only file system"))
    monkeypatch.setattr(locks.os, "open", read_only)
    with RunLock() as run, pytest.raises(ConfigError, match=str(tmp_path)):
        run.reopen(tmp_path)


def test_a_directory_that_was_filled_meanwhile_is_not_taken(tmp_path: Path, monkeypatch) -> None:
    """A whole run, after it was found to be empty and before it was locked."""

    def late(path: Path) -> int | None:
        if path.parent.name == "run":
            (path.parent / "summary.json").write_text("{}")
        return lock(path)

    monkeypatch.setattr(locks, "lock", late)
    assert made(tmp_path / "run") == tmp_path / "run-2"
