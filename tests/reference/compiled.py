"""What the tests of the compiled functions share."""

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from graphormer_sepnorm.kernels.library import FORMS, library
from graphormer_sepnorm.model.norms import MaskedBatchNorm, NormArm, make_norm
from reference.models import randomize


def compiled_forms() -> tuple[str, ...]:
    """The compiled forms that this processor can run, the best one last."""
    compiled = library()
    return () if compiled is None else FORMS[: compiled.best_form() + 1]


def output_and_gradients(
    function: Callable[..., Tensor], given: Sequence[Tensor | None]
) -> list[Tensor]:
    """The output, and the gradients of all that wants one, for a slope drawn at random.

    The slope does not lie row by row in memory, as one may that comes from elsewhere.
    """
    output = function(*given)
    slope = torch.randn(output.shape, generator=torch.Generator().manual_seed(11)).to(output)
    slope = slope.T.contiguous().T
    wanted = [one for one in given if one is not None and one.requires_grad]
    return [output.detach(), *torch.autograd.grad(output, wanted, slope)]


def assert_saved_tensors_may_be_moved(function: Callable[..., Tensor], *given: Tensor) -> None:
    """As checkpointing and offloading do; what was there before is overwritten."""
    moved: list[Tensor] = []

    def move(tensor: Tensor) -> Tensor:
        moved.append(tensor)
        return tensor.clone()

    def offloaded(*given: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(move, lambda tensor: tensor):
            output = function(*(one * 1 for one in given)) * 1
        for tensor in moved:
            if tensor.is_floating_point():
                tensor.detach().fill_(float("nan"))
        return output

    given = tuple(one.requires_grad_() for one in given)
    truth = output_and_gradients(function, given)
    for one, other in zip(output_and_gradients(offloaded, given), truth, strict=True):
        assert torch.equal(one, other)
    assert len(moved) >= 4


def assert_threads_change_nothing(run: Callable[[], Sequence[Tensor]]) -> None:
    """Whatever one thread gives, two and three give."""
    results = []
    for threads in (1, 2, 3):  # MKL uses no more than there are cores
        torch.set_num_threads(threads)
        results.append(run())
    for one, *several in zip(*results, strict=True):
        assert all(torch.equal(one, other) for other in several)


def norm_of(arm: str, channels: int, state: str = "batch") -> NormArm:
    """A random norm arm in a state: its BatchNorms see a "batch", are "fixed", or "evaluation"."""
    norm = make_norm(arm, channels).train(state != "evaluation")
    randomize(norm)
    for module in norm.modules():
        if isinstance(module, MaskedBatchNorm):
            module.fixed = state == "fixed"
            module.momentum, module.eps = 0.3, 1e-3
    return norm


def norm_results(
    norm: NormArm, rows: Tensor, graphs: int, real: Tensor | None = None
) -> dict[str, Tensor]:
    """Outputs, all gradients and all buffers after a call; `norm` is left as it is."""
    norm, rows = copy.deepcopy(norm), rows.clone().requires_grad_()
    named = {"rows": rows, **dict(norm.named_parameters())}
    output, *gradients = output_and_gradients(
        lambda *_: norm(rows, graphs, real), list(named.values())
    )
    return {
        "output": output,
        **{f"gradient of {name}": one for name, one in zip(named, gradients, strict=True)},
        **dict(norm.named_buffers()),
    }


@contextlib.contextmanager
def in_form(name: str) -> Iterator[None]:
    """Compute in one of `compiled_forms` meanwhile, in this process."""
    compiled = library()
    assert compiled is not None
    before = compiled.form_in_use()
    compiled.limit_form(compiled_forms().index(name))
    try:
        yield
    finally:
        compiled.limit_form(before)
