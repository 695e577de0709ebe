"""Freed memory goes back to the system, now and then."""

from __future__ import annotations

import subprocess
import sys

import pytest

from graphormer_sepnorm.inference import memory


def test_every_eighth_call_trims(monkeypatch):
    trimmed = []
    monkeypatch.setattr(memory, "_malloc_trim", lambda: trimmed.append)
    for _ in range(32):
        memory.trim_now_and_then()
    assert trimmed == [0] * 4


def test_nothing_happens_with_another_c_library(monkeypatch):
    monkeypatch.setattr(memory, "_malloc_trim", lambda: None)
    for _ in range(8):
        memory.trim_now_and_then()


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's function")
def test_memory_is_given_back():
    if memory._malloc_trim() is None:
        pytest.skip("the C library has no malloc_trim")
    # In a process of its own: here much may be free already, and be used again.
    script = """
from graphormer_sepnorm.inference import memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

# Too small to be mapped on their own; the last one is in the way of the heap's end.
blocks = [b"x" * 100_000 for _ in range(1000)]
kept = blocks[-1]
full = resident()
del blocks
for _ in range(8):
    memory.trim_now_and_then()
print(full - resident())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert int(done.stdout) > 50_000_000
