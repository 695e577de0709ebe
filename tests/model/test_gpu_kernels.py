"""The GPU's kernels: all of them compile, and are not used where they do not agree."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
import torch

from graphormer_sepnorm.model.fused import gpu, gpu_attention, gpu_messages, gpu_norm
from graphormer_sepnorm.model.fused.cpu_norm import OF_BATCH, OF_ROWS

COMPILED = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from graphormer_sepnorm.model.fused import (
    gpu_attention_kernels, gpu_messages_kernels, gpu_norm_kernels
)

def size(kernel, constants, kinds):
    kinds = kinds | dict.fromkeys(constants, "constexpr")
    signature = {name: kinds.get(name, "*fp32") for name in kernel.arg_names}
    made = compile(
        ASTSource(fn=kernel, signature=signature, constexprs=constants),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": 8},
    )
    print(len(made.asm["cubin"]))
"""
ATTENTION = """
sizes = {"HEADS": 6, "C": 12, "S": 64, "D": 16, "DROPPING": True}
kinds = {"T": "i32", "scale": "fp32", "dropout": "fp32"}
kinds |= dict.fromkeys(("rows", "pair_type", "seed"), "*i64")
for name in ("attention_forward", "attention_backward"):
    size(getattr(gpu_attention_kernels, name), sizes, kinds)
"""
MESSAGES = """
sizes = {"EDGES": 8, "W": 128}
kinds = dict.fromkeys(("E", "R", "C"), "i32") | {"ways": "*i64"}
for name in ("messages_forward", "messages_backward"):
    size(getattr(gpu_messages_kernels, name), sizes, kinds)
for first in (True, False):
    which = sizes | {"FIRST": first}
    size(gpu_messages_kernels.state_messages_forward, which, kinds)
    size(gpu_messages_kernels.state_messages_backward, which | {"LAST": not first}, kinds)
"""
NORMS = """
sizes = {"MASKED": True, "ROWS": 32, "PART": 16, "MOST": 64, "W": 128}
kinds = dict.fromkeys(("split", "R", "first_programs", "tokens", "D"), "i32")
kinds |= dict.fromkeys(("eps0", "eps1", "momentum0", "momentum1"), "fp32")
kinds |= {"real": "*u8", "tracked0": "*i64", "tracked1": "*i64"}
for name in ("norm_statistics", "norm_forward", "norm_sums", "norm_backward"):
    for first, second in ((1, 1), (1, 0), (2, 2)):
        of_norms = sizes | {"KIND0": first, "KIND1": second}
        size(getattr(gpu_norm_kernels, name), of_norms, kinds)
"""


@pytest.mark.parametrize(
    ("program", "kernels"),
    [
        pytest.param(ATTENTION, 2, id="attention"),
        pytest.param(MESSAGES, 6, id="messages"),
        pytest.param(NORMS, 12, id="norms", marks=pytest.mark.slow),
    ],
)
def test_kernels_compile_for_a_gpu_that_need_not_be_there(program, kernels, tmp_path):
    """In a process of its own, in which nothing is interpreted."""
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if "TRITON" not in name}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPILED + program],
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(int(size) > 1000 for size in done.stdout.split())
    assert len(done.stdout.split()) == kernels


def wrong_attention(projected, blocks, biases, heads, dropout):
    return projected[:, : projected.shape[1] // 3] + 0 * biases[0].nan_to_num().sum()


def wrong_norms(rows, norms, lengths, num_graphs, real_atoms):
    return rows * sum(parameter.sum() for norm in norms for parameter in norm.parameters())


def wrong_messages(rows, ends, bond_values, before, bonds):
    return rows + ends, bond_values[bonds[2]]


def broken(*_):
    raise RuntimeError("no compiler\nmany lines")


@pytest.mark.parametrize(
    ("module", "name", "function", "sizes"),
    [
        (gpu_attention, "attend", wrong_attention, (6, 2, 8)),
        (gpu_attention, "attend", broken, (6, 2, 8)),
        (gpu_messages, "state_message_sums", wrong_messages, (8,)),
        (gpu_messages, "message_sums", broken, (8,)),
        (gpu_norm, "normalise", wrong_norms, (8, OF_BATCH, OF_ROWS)),
        (gpu_norm, "normalise", broken, (8, OF_BATCH, OF_ROWS)),
    ],
)
def test_kernels_that_do_not_agree_are_not_used(module, name, function, sizes, monkeypatch, caplog):
    module.agrees.cache_clear()
    monkeypatch.setattr(gpu, "_runs", {})
    monkeypatch.setattr(module, name, function)
    state = torch.get_rng_state()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert not module.agrees(torch.device("cpu"), *sizes)
    assert torch.equal(torch.get_rng_state(), state)
    (line,) = caplog.messages
    who = {gpu_attention: "attention takes", gpu_norm: "the norms take"}
    assert f"{who.get(module, 'messages take')} the plain path" in line
    assert "many lines" not in line
    module.agrees.cache_clear()


@pytest.mark.parametrize(
    ("module", "name", "sizes"),
    [
        (gpu_attention, "attend", [(6, 2, 8), (7, 2, 8)]),
        (gpu_messages, "state_message_sums", [(8,), (9,)]),
        (gpu_norm, "normalise", [(8, OF_ROWS), (9, OF_ROWS)]),
    ],
)
def test_where_nothing_compiles_one_line_says_so(module, name, sizes, monkeypatch, caplog):
    module.agrees.cache_clear()
    monkeypatch.setattr(gpu, "_runs", {})
    monkeypatch.setattr(module, name, broken)
    for size in sizes:
        assert not module.agrees(torch.device("cpu"), *size)
    assert len(caplog.messages) == 1
    module.agrees.cache_clear()


def test_a_size_that_cannot_be_run_keeps_no_others_from_it(monkeypatch, caplog):
    monkeypatch.setattr(gpu, "_runs", {})

    def out_of_memory():
        raise torch.OutOfMemoryError("later there may be some")

    tries = [out_of_memory, lambda: 0.0, broken, lambda: 1.0, lambda: 0.0]
    agree = [gpu.agreement("it takes", torch.device("cpu"), one) for one in tries]
    assert agree == [False, True, False, False, True]
    assert len(caplog.messages) == 3
