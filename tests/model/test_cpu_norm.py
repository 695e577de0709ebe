"""The norms of a layer in one operation give what they give one by one."""

import copy

import pytest
import torch
from reference.compiled import (
    assert_saved_tensors_may_be_moved,
    assert_threads_change_nothing,
    norm_of,
    norm_results,
)
from reference.models import ARMS, batch_of_smiles, randomize, relative_error, small_config
from torch import nn

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.kernels.library import switched_off
from graphormer_sepnorm.model import norms
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.model.norms import LayerNorm, MaskedBatchNorm, SeparateNorm

pytestmark = pytest.mark.usefixtures("compiled_form")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the number of norms with each use of the compiled functions."""
    made: list[int] = []
    packed_norm = norms.packed_norm

    def noted(rows, several, lengths):
        made.append(len(several))
        return packed_norm(rows, several, lengths)

    monkeypatch.setattr(norms, "packed_norm", noted)
    return made


@pytest.mark.parametrize(("graphs", "atoms", "channels"), [(2, 2, 1), (3, 65, 19), (70, 500, 72)])
@pytest.mark.parametrize("state", ["batch", "fixed", "evaluation"])
@pytest.mark.parametrize("arm", ARMS)
def test_everything_is_as_on_the_plain_path(arm, state, graphs, atoms, channels, calls):
    norm = norm_of(arm, channels, state)
    torch.manual_seed(1)
    rows = torch.randn(graphs + atoms, channels) * 2 + torch.randn(channels)
    truth = norm_results(copy.deepcopy(norm).double(), rows.double(), graphs)
    assert not calls
    fast = norm_results(norm, rows, graphs)
    assert calls == [1 if arm.startswith("shared") else 2]
    with switched_off():
        plain = norm_results(norm, rows, graphs)
    assert fast.keys() == truth.keys()
    for name, exact in truth.items():
        if not exact.is_floating_point():
            assert torch.equal(fast[name], exact), name
            continue
        # A gradient may cancel, then nothing but rounding is left of it.
        error = float((fast[name] - exact).abs().max())
        of_plain = float((plain[name] - exact).abs().max())
        assert error < max(2e-5 * float(exact.abs().max()), 2 * of_plain, 1e-5), name


@pytest.mark.parametrize("arm", ["bn+ln", "shared-bn"])
def test_saved_tensors_may_be_moved(arm):
    norm = norm_of(arm, 9)
    assert_saved_tensors_may_be_moved(lambda rows: norm(rows, 5), torch.randn(30, 9))


@pytest.mark.parametrize("mean", [0.0, 30.0, 1000.0])
def test_sums_round_no_more_than_torchs(mean):
    torch.manual_seed(2)
    rows = torch.randn(5000, 8) + mean
    fast, plain = norm_of("shared-bn", 8), norm_of("shared-bn", 8)
    truth = copy.deepcopy(fast).double()
    exact = truth(rows.double(), 3)
    with switched_off():
        of_plain = relative_error(plain(rows, 3), exact)
    assert relative_error(fast(rows, 3), exact) < max(1.5 * of_plain, 1e-6)
    for name in ("norm.running_mean", "norm.running_var"):
        exact, quick, slow = (dict(norm.named_buffers())[name] for norm in (truth, fast, plain))
        assert relative_error(quick, exact) < max(1.5 * relative_error(slow, exact), 1e-6), name


@pytest.mark.parametrize("arm", ["bn+ln", "shared-bn"])
def test_the_number_of_threads_changes_nothing(arm):
    norm, rows = norm_of(arm, 72), torch.randn(900, 72)
    assert_threads_change_nothing(lambda: [*norm_results(norm, rows, 100).values()])


@pytest.mark.parametrize("what", ["rows", "gradient"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_with_constants_no_row_hears_of_another(value, what, calls):
    norm = norm_of("bn+bn", 9, "evaluation")
    rows, gradient = torch.randn(7, 9), torch.randn(7, 9)
    (rows if what == "rows" else gradient)[4, 2] = value
    rows.requires_grad_()
    [fast] = torch.autograd.grad(norm(rows, 3), rows, gradient)
    assert calls == [2]
    with switched_off():
        [plain] = torch.autograd.grad(norm(rows, 3), rows, gradient)
    torch.testing.assert_close(fast, plain, equal_nan=True)
    assert fast.isfinite().sum() == fast.numel() - (what == "gradient")


@pytest.mark.parametrize(("arm", "graphs", "rows"), [("shared-bn", 1, 1), ("ln+bn", 4, 5)])
def test_a_single_row_is_an_error_that_leaves_no_trace(arm, graphs, rows, calls):
    norm = norm_of(arm, 4)
    before = copy.deepcopy(norm.state_dict())
    with pytest.raises(DataError, match="met 1 of what it normalizes"):
        norm(torch.randn(rows, 4), graphs)
    assert calls
    assert all(torch.equal(tensor, before[name]) for name, tensor in norm.state_dict().items())
    assert norm.eval()(torch.randn(rows, 4), graphs).shape == (rows, 4)


class Doubled(LayerNorm):
    def forward(self, rows, real=None):
        return 2 * super().forward(rows, real)


def test_other_norms_are_called_themselves(calls):
    rows = torch.randn(9, 4)
    norm = SeparateNorm(Doubled(4), LayerNorm(4))
    torch.testing.assert_close(norm(rows, 2)[:2], 2 * nn.functional.layer_norm(rows[:2], [4]))
    for kind in ("forward_pre", "forward", "full_backward_pre", "full_backward"):
        atom_norm = MaskedBatchNorm(4)
        norm = SeparateNorm(MaskedBatchNorm(4), atom_norm)
        heard = []
        getattr(atom_norm, f"register_{kind}_hook")(lambda *told, heard=heard: heard.append(told))
        norm(rows.clone().requires_grad_(), 2).sum().backward()
        assert len(heard) == 1, kind
    norm = norm_of("bn+bn", 4)
    norm(rows, 2, torch.arange(7) < 5)  # padding
    with pytest.raises(RuntimeError):
        norm(torch.randn(9, 5), 2)
    for lacking in ({"bias": False}, {"elementwise_affine": False}):
        norm = SeparateNorm(LayerNorm(4, **lacking), LayerNorm(4, **lacking))
        torch.testing.assert_close(norm(rows, 2), nn.functional.layer_norm(rows, [4]))
    with pytest.raises(RuntimeError):
        SeparateNorm(LayerNorm(4), LayerNorm(4)).double()(rows, 2)
    with pytest.raises(RuntimeError):  # more graphs than there are rows
        SeparateNorm(LayerNorm(4), LayerNorm(4))(rows, 12)
    assert not calls


@pytest.mark.parametrize("arm", ARMS)
def test_a_network_takes_it_and_stays_what_it_is(arm, calls):
    vocabulary, batch = batch_of_smiles("CCO", "c1ccccc1", "CC(=O)C", "C")
    model = Graphormer(small_config(norm=arm).for_vocabulary(vocabulary)).train()
    randomize(model)
    truth = copy.deepcopy(model).double()(batch)
    assert not calls
    torch.testing.assert_close(model(batch).double(), truth, rtol=1e-3, atol=1e-4)
    assert len(calls) == 2 * model.config.layers + 1
