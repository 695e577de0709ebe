"""Muon against a literal restatement, against torch's own, and what it leaves to AdamW."""

import re
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from reference.models import EVERYTHING

from graphormer_sepnorm.kernels.library import switched_off
from graphormer_sepnorm.training.optimizer import MuonAdamW, newton_schulz_in_c, orthogonalised

RATE, DECAY = 0.02, 0.3
SHAPES = ((6, 6), (6, 6), (4, 6), (9, 3))


def matrices(dtype: torch.dtype, seed: int = 0) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype))
        for shape in SHAPES
    ]


def gradients(dtype: torch.dtype, steps: int) -> list[list[torch.Tensor]]:
    return [[one.detach() for one in matrices(dtype, 1 + step)] for step in range(steps)]


def train(
    parameters: list[torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    steps: list[list[torch.Tensor]],
) -> list[torch.Tensor]:
    """Take a step with each list of gradients, the learning rate halved each time."""
    for step in steps:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] /= 2
    return [parameter.detach() for parameter in parameters]


def muon(parameters: list[torch.nn.Parameter]) -> MuonAdamW:
    groups = [{"params": parameters, "muon": True, "weight_decay": DECAY}]
    return MuonAdamW(groups, lr=RATE)


@pytest.mark.parametrize("of_device", [False, True])
def test_steps_are_those_of_the_paper(of_device: bool) -> None:
    """Jordan et al. 2024, with the scale of Liu et al. 2025, one matrix at a time.

    With rates from a number or, as a recorded step has them, from a tensor.
    """
    steps = gradients(torch.float64, 4)
    expected = []
    for place, start in enumerate(matrices(torch.float64)):
        weight, momentum, rate = start.detach(), torch.zeros_like(start), RATE
        for step in steps:
            momentum = 0.95 * momentum + 0.05 * step[place]
            x = 0.05 * step[place] + 0.95 * momentum
            x = x / torch.linalg.matrix_norm(x, "fro")
            for _ in range(5):
                # The polynomial of the matrix is that of its singular values.
                u, s, v = torch.linalg.svd(x, full_matrices=False)
                x = u @ torch.diag(3.4445 * s - 4.775 * s**3 + 2.0315 * s**5) @ v
            weight = weight - rate * DECAY * weight
            weight = weight - rate * 0.2 * max(weight.shape) ** 0.5 * x
            rate /= 2
        expected.append(weight)
    parameters = matrices(torch.float64)
    optimizer = muon(parameters)
    if of_device:
        optimizer.param_groups[0]["lr"] = torch.tensor(RATE, dtype=torch.float64)
    for one, truth in zip(train(parameters, optimizer, steps), expected, strict=True):
        torch.testing.assert_close(one, truth)


def test_steps_are_those_of_torch() -> None:
    """Up to bfloat16, in which torch iterates."""
    steps = gradients(torch.float32, 4)
    parameters, others = matrices(torch.float32), matrices(torch.float32)
    torchs = torch.optim.Muon(others, lr=RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw")
    start = [parameter.detach().clone() for parameter in parameters]
    ours, theirs = train(parameters, muon(parameters), steps), train(others, torchs, steps)
    for one, truth, before in zip(ours, theirs, start, strict=True):
        moved = (truth - before).norm()
        assert moved > 0.01 * before.norm()
        assert (one - truth).norm() < 0.02 * moved


@pytest.mark.usefixtures("compiled_products")
@pytest.mark.parametrize("shape", [(5, 72, 72), (3, 24, 80), (2, 90, 30), (1, 1, 7), (9, 17, 17)])
def test_the_iteration_in_c_is_that_of_torch(shape, monkeypatch) -> None:
    given = torch.randn(shape)
    given[-1] = given[-1] * 1e-6 if len(given) < 5 else 0  # only directions matter
    exact = orthogonalised(given.double())
    with switched_off():
        plain = orthogonalised(given)
    calls = []
    monkeypatch.setattr(
        f"{MuonAdamW.__module__}.newton_schulz_in_c",
        lambda given: calls.append(0) or newton_schulz_in_c(given),
    )
    kept = given.clone()
    fast = orthogonalised(given)
    assert calls
    assert torch.equal(given, kept)
    error, plain_error = (float((one - exact).norm() / exact.norm()) for one in (fast, plain))
    assert error < max(2e-6, 2 * plain_error)


@pytest.mark.parametrize("compiled", [True, False])
def test_what_has_faded_is_left_out_before_its_products_are_denormal(compiled: bool) -> None:
    """Rows of units that have died, whose momentum is 0.95 of itself at each step from then on."""
    given = torch.randn(3, 12, 20, generator=torch.Generator().manual_seed(5))
    faded = torch.tensor([1e-14, 1e-20, 1e-30, 1e-39])
    given[1, :4] *= faded[:, None]
    with nullcontext() if compiled else switched_off():
        found, exact = orthogonalised(given), orthogonalised(given.double())
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-6)
    assert found[1, 0].all()
    assert not found[1, 1:4].any()
    assert not orthogonalised(torch.zeros(2, 3, 9)).any()
    # Nothing between zero and the numbers whose products are normal.
    assert found[found != 0].abs().min() > 1e-19


def test_matrices_without_a_gradient_stay() -> None:
    parameters = matrices(torch.float32)
    before = [parameter.detach().clone() for parameter in parameters]
    parameters[0].grad = torch.ones(SHAPES[0])
    muon(parameters).step()
    assert not torch.equal(parameters[0], before[0])
    for parameter, was in zip(parameters[1:], before[1:], strict=True):
        assert torch.equal(parameter, was)


def test_layers_are_trained_by_muon_and_the_rest_by_adamw(train: Callable) -> None:
    model = {"optimizer": "muon", "weight_decay": DECAY, **EVERYTHING}
    module, _, _ = train(model=model, max_epochs=1)
    optimizer = module.optimizers().optimizer
    assert isinstance(optimizer, MuonAdamW)
    names = {id(parameter): name for name, parameter in module.model.named_parameters()}
    of_muon = {
        names[id(parameter)]: group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
        if group["muon"]
    }
    hidden = re.compile(
        r"layers\.\d+\.(attention\.(query|key|value|output)|local\.output|ffn\.[02]"
        r"|token_projection\.(query|key|value))\.weight"
    )
    assert of_muon == {name: DECAY for name in names.values() if hidden.fullmatch(name)}
    assert "layers.0.local.output.weight" in of_muon
    for parameter, state in optimizer.state.items():
        kept = (
            {"momentum"} if names[id(parameter)] in of_muon else {"step", "exp_avg", "exp_avg_sq"}
        )
        assert set(state) == kept
