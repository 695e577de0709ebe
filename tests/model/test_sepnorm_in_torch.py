"""`SepNorm` in torch's own transformer, whose fast path for evaluation knows LayerNorm only."""

import pytest
import torch
from reference.models import randomize
from torch import Tensor, nn

from graphormer_sepnorm import SepNorm

N, L, D = 5, 7, 8


def a_layer(norm_first: bool, places: tuple[str, ...]) -> nn.TransformerEncoderLayer:
    layer = nn.TransformerEncoderLayer(
        D, 2, dim_feedforward=16, batch_first=True, norm_first=norm_first
    )
    for place in places:
        setattr(layer, place, SepNorm(D))
    return layer


def padding() -> Tensor:
    """True for padding, at the ends of the sequences: what the fast path would take."""
    return torch.arange(L) >= torch.tensor([L, 5, 3, L, 2])[:, None]


def by_hand(layer: nn.TransformerEncoderLayer, x: Tensor, padded: Tensor | None) -> Tensor:
    def attention(x: Tensor) -> Tensor:
        return layer.self_attn(x, x, x, key_padding_mask=padded, need_weights=False)[0]

    def feed_forward(x: Tensor) -> Tensor:
        return layer.linear2(layer.linear1(x).relu())

    if layer.norm_first:
        x = x + attention(layer.norm1(x))
        return x + feed_forward(layer.norm2(x))
    x = layer.norm1(x + attention(x))
    return layer.norm2(x + feed_forward(x))


@pytest.fixture
def fast_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of torch's fast path, of a layer and of an encoder (nested tensors)."""
    calls: list[str] = []
    for name in ("_transformer_encoder_layer_fwd", "_nested_tensor_from_mask"):
        real = getattr(torch, name)

        def counted(*args, name=name, real=real, **kwargs):
            calls.append(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(torch, name, counted)
    return calls


PLACES = pytest.mark.parametrize(
    "places", [("norm1", "norm2"), ("norm1",), ("norm2",)], ids=["both", "norm1", "norm2"]
)
NORM_FIRST = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
PADDED = pytest.mark.parametrize("padded", [None, padding()], ids=["whole", "padded"])


@PLACES
@NORM_FIRST
@PADDED
@pytest.mark.parametrize("grad", [False, True], ids=["no-grad", "grad"])
def test_a_layer_evaluates_with_the_norms_that_it_has(places, norm_first, padded, grad, fast_calls):
    layer = a_layer(norm_first, places).eval()
    randomize(layer)
    x = torch.randn(N, L, D)
    with torch.set_grad_enabled(grad):
        out = layer(x, src_key_padding_mask=padded)
        torch.testing.assert_close(out, by_hand(layer, x, padded))
    assert fast_calls == []


@PADDED
@NORM_FIRST
@pytest.mark.parametrize("replaced", ["before", "after"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True.*norm_first:UserWarning")
def test_an_encoder_evaluates_with_the_norms_that_it_has(replaced, norm_first, padded, fast_calls):
    """Whether they are put into the layer it copies or into its copies."""
    places = ("norm1", "norm2")
    encoder = nn.TransformerEncoder(a_layer(norm_first, places if replaced == "before" else ()), 2)
    if replaced == "after":
        for layer in encoder.layers:
            for place in places:
                setattr(layer, place, SepNorm(D))
    randomize(encoder.eval())
    x = truth = torch.randn(N, L, D)
    with torch.no_grad():
        for layer in encoder.layers:
            truth = by_hand(layer, truth, padded)
        torch.testing.assert_close(encoder(x, src_key_padding_mask=padded), truth)
    assert fast_calls == []


def test_a_compiled_layer_evaluates_with_the_norms_that_it_has():
    layer = a_layer(False, ("norm1", "norm2")).eval()
    randomize(layer)
    x = torch.randn(N, L, D)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), by_hand(layer, x, None))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype:UserWarning")
def test_the_fast_path_is_left_because_of_the_norm(fast_calls):
    """With LayerNorm the same layer and encoder take it: the tests above would notice."""
    layer = a_layer(False, ()).eval()
    encoder = nn.TransformerEncoder(layer, 2).eval()
    with torch.no_grad():
        layer(torch.randn(N, L, D))
        encoder(torch.randn(N, L, D), src_key_padding_mask=padding())
    assert fast_calls == [
        "_transformer_encoder_layer_fwd",
        "_nested_tensor_from_mask",
        "_transformer_encoder_layer_fwd",
        "_transformer_encoder_layer_fwd",
    ]


def test_what_takes_it_for_a_layer_norm_is_told():
    norm = SepNorm(D)
    with pytest.raises(TypeError):
        nn.functional.layer_norm(torch.randn(N, D), (D,), norm.weight, norm.bias, norm.eps)
