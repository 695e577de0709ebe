"""The compiled linear layers give what torch's give, gradients too."""

import pytest
import torch
from reference.compiled import assert_threads_change_nothing, output_and_gradients
from reference.models import (
    EVERYTHING,
    batch_of,
    batch_of_smiles,
    randomize,
    small_config,
    small_model,
    stored,
)
from torch.nn import functional
from torch.testing import assert_close

from graphormer_sepnorm.kernels.library import library, switched_off
from graphormer_sepnorm.model import ops
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.model.ops import FeedForward, Linear, linear

pytestmark = pytest.mark.usefixtures("compiled_products")


def arguments(rows: int, depth: int, outputs: int, dtype: torch.dtype = torch.float32):
    torch.manual_seed(7)
    made = torch.randn(rows, depth), torch.randn(outputs, depth), torch.randn(outputs)
    return [one.to(dtype).requires_grad_() for one in made]


@pytest.mark.parametrize(
    ("rows", "depth", "outputs"),
    [
        *((rows, 24, 40) for rows in (1, 2, 5, 71, 500)),
        *((150, depth, 32) for depth in (1, 3, 8, 17, 81)),
        # One to six vectors, whole, in part and half: all sizes of a panel.
        *((150, 20, n) for n in (1, 7, 9, 16, 24, 31, 48, 57, 72, 96, 240)),
    ],
)
def test_outputs_and_gradients_are_those_of_torch(rows, depth, outputs):
    truth = output_and_gradients(functional.linear, arguments(rows, depth, outputs, torch.float64))
    plain = output_and_gradients(functional.linear, arguments(rows, depth, outputs))
    fast = output_and_gradients(linear, arguments(rows, depth, outputs))
    for exact, slow, quick in zip(truth, plain, fast, strict=True):
        assert quick.dtype == torch.float32
        # As near to float64 as float32 can be.
        error, plain_error = ((one - exact).norm() / exact.norm() for one in (quick, slow))
        assert error < max(5e-7, 2 * float(plain_error))


@pytest.mark.parametrize(
    ("wanted", "biased"),
    [("rows", True), ("weight", True), ("bias", True), ("rows", False), ("rows and weight", False)],
)
def test_gradients_of_some_parts_and_without_a_bias(wanted, biased):
    given = dict(zip(("rows", "weight", "bias"), arguments(30, 12, 20), strict=True))
    for name, part in given.items():
        part.requires_grad_(name in wanted)
    bias = given["bias"] if biased else None

    def gradients(function):
        output = function(given["rows"], given["weight"], bias)
        return torch.autograd.grad(
            output.square().sum(), [given[name] for name in given if name in wanted]
        )

    for fast, plain in zip(gradients(linear), gradients(functional.linear), strict=True):
        assert_close(fast, plain, rtol=1e-5, atol=1e-4)


def test_a_row_does_not_depend_on_the_others():
    rows, weight, bias = arguments(300, 72, 216)
    together = linear(rows, weight, bias)
    for first, last in ((0, 1), (3, 300), (70, 141)):
        assert torch.equal(linear(rows[first:last], weight, bias), together[first:last])


def test_the_number_of_threads_changes_nothing():
    given = arguments(700, 72, 216)
    assert_threads_change_nothing(lambda: output_and_gradients(linear, given))


def test_rows_and_gradients_need_not_lie_in_order():
    rows, weight, bias = (one.detach() for one in arguments(40, 24, 40))
    assert_close(linear(rows.T[:, :24].T[:, :24], weight, bias), linear(rows[:24], weight, bias))
    assert_close(linear(rows, weight.T.contiguous().T, bias), linear(rows, weight, bias))
    assert_close(
        linear(rows, weight, torch.stack([bias, 2 * bias], 1)[:, 1]), linear(rows, weight, 2 * bias)
    )
    spread = rows.requires_grad_()
    linear(spread, weight, bias).sum().backward()  # its gradient has strides of zero
    assert_close(spread.grad, weight.sum(0).expand(40, -1), rtol=1e-5, atol=1e-5)


def test_what_is_not_a_number_stays_so_in_its_row_alone():
    rows, weight, bias = (one.detach() for one in arguments(20, 24, 40))
    rows[3, 5] = float("nan")
    output = linear(rows, weight, bias)
    assert output[3].isnan().all()
    assert not output[[0, 2, 4, 19]].isnan().any()
    assert linear(rows[:0], weight, bias).shape == (0, 40)


def test_large_matrices_and_other_precisions_are_for_torch(monkeypatch):
    def refuse(*_):
        raise AssertionError("compiled")

    monkeypatch.setattr(ops._LinearFunction, "apply", refuse)
    assert linear(torch.ones(2, 400), torch.ones(400, 400)).shape == (2, 400)
    assert linear(torch.ones(2, 8).double(), torch.ones(3, 8).double()).shape == (2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(torch.ones(2, 8), torch.ones(3, 8)).dtype == torch.bfloat16
    with switched_off():
        assert linear(torch.ones(2, 8), torch.ones(3, 8)).shape == (2, 3)
    with monkeypatch.context() as patch:  # without AVX-512 torch is faster
        patch.setattr(library(), "products_are_fast", lambda gradients: 0)
        assert linear(torch.ones(2, 8), torch.ones(3, 8)).shape == (2, 3)
    with pytest.raises(RuntimeError, match="dtype"):
        linear(torch.ones(2, 8), torch.ones(3, 8).double())
    with pytest.raises(AssertionError, match="compiled"):
        linear(torch.ones(2, 8), torch.ones(3, 8))


@pytest.mark.parametrize(("rows", "inner"), [(1, 3), (71, 40), (300, 57)])
def test_a_feed_forward_network_without_gradients_is_the_same_in_fewer_passes(
    rows, inner, monkeypatch
):
    torch.manual_seed(7)
    ffn = FeedForward(Linear(24, inner), torch.nn.GELU(), Linear(inner, 24))
    given, residual = torch.randn(rows, 24) * 9, torch.randn(rows, 24)
    given[0, 0] = 1e4  # GELU is 0 there, or the number itself
    with torch.no_grad():
        exact = residual.double() + ffn.double()(given.double())
        plain = residual + torch.nn.Sequential.forward(ffn.float(), given)
        monkeypatch.setattr(torch.nn.GELU, "forward", None)  # nothing calls it from here on
        quick, alone = ffn(given, residual), ffn(given)
    error, plain_error = ((one - exact).norm() / exact.norm() for one in (quick, plain))
    assert error < max(5e-7, 2 * float(plain_error))
    assert_close(alone + residual, quick, rtol=1e-5, atol=1e-5)
    given[0, 0] = float("nan")
    with torch.no_grad():
        assert ffn(given).isnan()[:, 0].tolist() == [True] + [False] * (rows - 1)


CHANGES = {
    "hook": lambda ffn: ffn[0].register_forward_hook(lambda *given: given[2] + 1),
    "pre-hook": lambda ffn: ffn[2].register_forward_pre_hook(lambda _, given: (given[0] * 2,)),
    "tanh": lambda ffn: setattr(ffn[1], "approximate", "tanh"),
    "a part more": lambda ffn: ffn.append(Linear(8, 8)),
    "strides": lambda ffn: setattr(ffn[0].weight, "data", ffn[0].weight.data.T.contiguous().T),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_in_a_feed_forward_network_counts_without_gradients_too(change):
    ffn, rows = FeedForward(Linear(8, 8), torch.nn.GELU(), Linear(8, 8)), torch.randn(5, 8)
    CHANGES[change](ffn)
    with torch.no_grad():
        assert_close(ffn(rows), torch.nn.Sequential.forward(ffn, rows))
    assert ffn[:2](rows).shape == (5, 8)


def test_parts_and_residuals_that_do_not_fit_are_for_torch():
    ffn, rows = FeedForward(Linear(8, 40), torch.nn.GELU(), Linear(40, 8)), torch.randn(5, 8)
    with torch.no_grad():
        assert_close(ffn(rows, torch.ones(8)), ffn(rows) + 1)
        assert ffn(rows, torch.ones(5, 8).double()).dtype == torch.float64
        ffn[2] = Linear(44, 8)
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            ffn(rows)


@pytest.mark.parametrize("rows", [(5, 3), (5, 0), (5, 9), (3,), (2, 5, 3)])
def test_rows_of_another_width_are_refused(rows):
    with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied|size mismatch"):
        Linear(8, 4)(torch.randn(rows))


def test_all_products_go_this_way(monkeypatch):
    """Of a layer: three projections at once, what leaves them, two of the FFN, the messages."""
    vocabulary, batch = batch_of_smiles("CCO", "c1ccccc1")
    model = Graphormer(small_config(local_mpnn="gine").for_vocabulary(vocabulary))
    randomize(model)
    calls = []
    plain = ops._LinearFunction.apply
    monkeypatch.setattr(
        ops._LinearFunction, "apply", lambda *given: calls.append(0) or plain(*given)
    )
    model(batch)
    # Beside the layers: two of the edge encoding, the read-out.
    assert len(calls) == 5 * model.config.layers + 3
    expected, heard = model.eval()(batch), []
    model.layers[0].attention.key.register_forward_hook(lambda *_: heard.append(1))
    assert_close(model(batch), expected)  # a hook is heard: three products then
    assert heard == [1]
    hidden = [one for one in model.layers.modules() if isinstance(one, torch.nn.Linear)]
    assert all(isinstance(one, Linear) for one in hidden)


def test_threads_change_nothing_of_a_model(zinc_graphs):
    # 32 molecules: of fewer, MKL would not divide the long sums.
    graphs = zinc_graphs[:32]
    _, vocabulary = stored(graphs, 20)
    wide = {"width": 66, "heads": 6, "ffn_width": 66, "max_path_length": 20}
    kinds = {"encodings": "paths+rings", "local_mpnn": "gine+rings", "norm": "shared-bn"}
    model = small_model(vocabulary, **EVERYTHING | wide | kinds).float().train()
    batch = batch_of(graphs, vocabulary, 20)

    def run() -> list[torch.Tensor]:
        model.zero_grad()
        predictions = model(batch)
        predictions.square().sum().backward()
        return [predictions, *(one.grad.clone() for one in model.parameters())]

    assert_threads_change_nothing(run)
