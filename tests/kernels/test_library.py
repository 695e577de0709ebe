"""Compiled functions are used where they are whole and up to date, and nowhere else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from reference.compiled import compiled_forms, in_form
from reference.molecules import molecule

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.kernels import library as kernels
from graphormer_sepnorm.kernels.library import (
    library,
    load_library,
    point,
    required_library,
    run,
    switched_off,
)
from graphormer_sepnorm.model import ops

compiled = pytest.mark.skipif(library() is None, reason="the kernels are not compiled")


def test_they_are_there_where_they_can_be_compiled():
    if os.environ.get("GRAPHORMER_KERNELS") == "plain":
        pytest.skip("switched off by GRAPHORMER_KERNELS")
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("there is no C compiler")
    assert library() is not None


def in_a_new_process(form: str) -> str:
    """What `library` says where the environment asks for a form: the form, plain or the error."""
    program = """
from graphormer_sepnorm.errors import GraphormerError
from graphormer_sepnorm.kernels.library import FORMS, library
try:
    print("plain" if library() is None else FORMS[library().form_in_use()])
except GraphormerError as error:
    print(error)
"""
    environment = {**os.environ, "GRAPHORMER_KERNELS": form}
    command = [sys.executable, "-c", program]
    return subprocess.check_output(command, env=environment, text=True).strip()


def test_they_can_be_switched_off():
    with switched_off():
        assert library() is None
        assert required_library() is not None
    assert in_a_new_process("plain") == "plain"


def test_structure_without_them_is_one_line(monkeypatch):
    monkeypatch.setattr(kernels, "_load", lambda: None)
    with pytest.raises(ConfigError, match="install a C compiler") as raised:
        GraphStore.from_graphs([molecule("CCO")], 5)
    assert "\n" not in str(raised.value)


@compiled
def test_a_form_is_chosen_for_a_process():
    for form in compiled_forms():
        assert in_a_new_process(form) == form
    assert in_a_new_process("auto") == in_a_new_process("") == compiled_forms()[-1]
    assert in_a_new_process("off").startswith("GRAPHORMER_KERNELS=off: give plain, basic")


@compiled
def test_a_form_that_the_processor_lacks_is_refused(monkeypatch):
    monkeypatch.setenv("GRAPHORMER_KERNELS", "avx512")
    monkeypatch.setattr(kernels, "load_library", lambda *_: SimpleNamespace(best_form=lambda: 1))
    with pytest.raises(ConfigError, match="this processor has avx2; give auto"):
        kernels._load.__wrapped__()


@compiled
def test_forms_are_used_one_at_a_time():
    used = library().form_in_use()
    for index, form in enumerate(compiled_forms()):
        with in_form(form):
            assert library().form_in_use() == index
            assert library().products_are_fast(1) == (form == "avx512")  # with gradients
    assert library().form_in_use() == used


@compiled
def test_a_library_is_used_if_it_is_whole_and_newer_than_its_source(tmp_path: Path):
    copy, source = tmp_path / "_kernels.so", tmp_path / "attention.c"
    shutil.copy(library()._name, copy)  # type: ignore[union-attr]
    source.write_text("int newer;")
    os.utime(source, (1000, 1000))
    assert load_library(copy) is not None
    os.utime(copy, (900, 900))
    with pytest.raises(ConfigError, match="is older than its source"):
        load_library(copy)
    (damaged := tmp_path / "damaged.so").write_bytes(b"nothing that could be loaded")
    with pytest.raises(ConfigError, match="cannot be used"):
        load_library(damaged)


@compiled
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 8, 64, 1001])
def test_threads_do_every_item_once(threads, count):
    numbers = torch.arange(count, dtype=torch.float32)
    sums = torch.ones(count + 8)  # added to where they are, so an item done twice shows
    arguments = ops._DropoutAddition(ops.Dropout(scale=1.0))  # nothing is dropped: it adds
    point(arguments, residual=sums, update=numbers, output=sums)
    run("dropout_add", arguments, count, share=16, threads=threads)
    assert torch.equal(sums[:count], numbers + 1)
    assert (sums[count:] == 1).all()
