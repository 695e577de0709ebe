"""The fused norms against the plain path, on a GPU or by Triton's interpreter."""

from __future__ import annotations

import copy
import logging
import os
import subprocess
import sys

import pytest
import torch
from reference.models import ARMS, randomise
from torch import Tensor

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.model import norm_arms
from graphormer_sepnorm.model.batch_norm import MaskedBatchNorm
from graphormer_sepnorm.model.fused import gpu_norm
from graphormer_sepnorm.model.fused.cpu_norm import CONSTANT, OF_BATCH, OF_ROWS
from graphormer_sepnorm.model.norm_arms import NormArm, make_norm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton, or a skip; without a GPU its functions are interpreted."""
    if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        if "triton" in sys.modules:  # by torch, where it comes with it
            pytest.skip("Triton was loaded to compile: start the tests with TRITON_INTERPRET=1")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    pytest.importorskip("triton")
    gpu_norm.agrees.cache_clear()


def norm_of(arm: str, channels: int, state: str) -> NormArm:
    norm = make_norm(arm, channels).train(state != "evaluation")
    randomise(norm)
    for module in norm.modules():
        if isinstance(module, MaskedBatchNorm):
            module.fixed = state == "fixed"
            module.momentum, module.eps = 0.3, 1e-3
    return norm.to(DEVICE)


def results(norm: NormArm, rows: Tensor, graphs: int, real: Tensor | None) -> dict[str, Tensor]:
    """Outputs, all gradients and all buffers after a call; `norm` is left as it is."""
    norm, rows = copy.deepcopy(norm), rows.clone().requires_grad_()
    output = norm(rows, graphs, real)
    slope = torch.randn(output.shape, generator=torch.Generator().manual_seed(7)).to(output)
    named = {"rows": rows, **dict(norm.named_parameters())}
    gradients = torch.autograd.grad(output, list(named.values()), slope)
    return {
        "output": output.detach(),
        **{f"gradient of {name}": one for name, one in zip(named, gradients, strict=True)},
        **dict(norm.named_buffers()),
    }


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("state", ["batch", "fixed"])
@pytest.mark.parametrize("arm", ARMS)
def test_everything_is_as_on_the_plain_path(arm, state, masked, kernels, monkeypatch):
    """Rows of padding have gradients here, although nothing looks at them in a network."""
    graphs, atoms, channels = 5, 70, 19
    norm = norm_of(arm, channels, state)
    torch.manual_seed(1)
    rows = (torch.randn(graphs + atoms, channels) * 2 + 3).to(DEVICE)
    real = (torch.rand(atoms) < 0.8).to(DEVICE) if masked else None
    if real is not None:
        real[0] = False  # not even the first atom need be real
    monkeypatch.setattr(gpu_norm, "_MOST_PROGRAMS", 4)
    monkeypatch.setattr(gpu_norm, "_TILE", 4 * 32)
    monkeypatch.setattr(norm_arms.compiled, "usable", lambda _: False)
    monkeypatch.setattr(gpu_norm, "usable", lambda *_: False)
    truth = results(copy.deepcopy(norm).double(), rows.double(), graphs, real)
    calls = []
    normalise = gpu_norm.normalise
    monkeypatch.setattr(gpu_norm, "normalise", lambda *a: calls.append(1) or normalise(*a))
    monkeypatch.setattr(gpu_norm, "usable", lambda *_: True)
    fast = results(norm, rows, graphs, real)
    assert calls == [1]
    assert fast.keys() == truth.keys()
    for name, exact in truth.items():
        if exact.is_floating_point():
            torch.testing.assert_close(fast[name].double(), exact, rtol=1e-4, atol=2e-5)
        else:
            assert torch.equal(fast[name], exact), name


@pytest.mark.parametrize("kinds", [(OF_BATCH, OF_BATCH), (OF_BATCH, OF_ROWS), (CONSTANT,)])
def test_kernels_are_compared_with_the_plain_path_before_they_are_used(kinds, kernels):
    device = torch.device(DEVICE)
    assert gpu_norm.disagreement(device, 24, *kinds) < 1e-5
    with torch.inference_mode():  # a validation may be the first to meet a size
        assert gpu_norm.agrees(device, 24, *kinds)


def test_large_means_do_not_cancel(kernels):
    norm = MaskedBatchNorm(4).to(DEVICE)
    rows = (torch.randn(500, 4) + 1e4).to(DEVICE)
    truth = copy.deepcopy(norm).double()(rows.double())
    found = gpu_norm.normalise(rows, [norm], [500], 3, None)
    torch.testing.assert_close(found.double(), truth, rtol=1e-4, atol=1e-4)


def test_a_single_row_is_an_error_that_leaves_no_trace(kernels):
    norm = MaskedBatchNorm(4).to(DEVICE)
    with pytest.raises(DataError, match="met 1 graph or atom"):
        gpu_norm.normalise(torch.randn(1, 4, device=DEVICE), [norm], [1], 1, None)
    assert norm.num_batches_tracked == 0


COMPILED = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from graphormer_sepnorm.model.fused import gpu_norm_kernels

constants = {"MASKED": True, "ROWS": 32, "PART": 16, "MOST": 64, "W": 128}
numbers = dict.fromkeys(("split", "R", "first_programs", "tokens", "D"), "i32")
numbers |= dict.fromkeys(("eps0", "eps1", "momentum0", "momentum1"), "fp32")
numbers |= {"real": "*u8", "tracked0": "*i64", "tracked1": "*i64"}
for name in ("norm_statistics", "norm_forward", "norm_sums", "norm_backward"):
    kernel = getattr(gpu_norm_kernels, name)
    for kinds in ((1, 1), (1, 0), (2, 2)):
        sizes = constants | {"KIND0": kinds[0], "KIND1": kinds[1]}
        kinds_of = numbers | dict.fromkeys(sizes, "constexpr")
        signature = {name: kinds_of.get(name, "*fp32") for name in kernel.arg_names}
        made = compile(
            ASTSource(fn=kernel, signature=signature, constexprs=sizes),
            target=GPUTarget("cuda", 90, 32),
            options={"num_warps": 8},
        )
        print(len(made.asm["cubin"]))
"""


@pytest.mark.slow
def test_kernels_compile_for_a_gpu_that_need_not_be_there(tmp_path):
    """In a process of its own, in which nothing is interpreted."""
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if "TRITON" not in name}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPILED],
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(int(size) > 1000 for size in done.stdout.split())
    assert len(done.stdout.split()) == 12


@pytest.mark.parametrize("fault", ["wrong", "broken"])
def test_kernels_that_do_not_agree_are_not_used(fault, monkeypatch, caplog):
    def normalise(rows, norms, lengths, num_graphs, real_atoms):
        if fault == "broken":
            raise RuntimeError("no compiler\nmany lines")
        return rows * sum(parameter.sum() for norm in norms for parameter in norm.parameters())

    gpu_norm.agrees.cache_clear()
    monkeypatch.setattr(gpu_norm, "normalise", normalise)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert not gpu_norm.agrees(torch.device("cpu"), 8, OF_BATCH, OF_ROWS)
    (line,) = caplog.messages
    assert "the norms take the plain path" in line
    assert "many lines" not in line
    gpu_norm.agrees.cache_clear()


def test_a_cpu_takes_the_plain_path():
    assert not gpu_norm.usable(torch.zeros(3, 8), [MaskedBatchNorm(8)])
