"""The public `SepNorm` over [N, L, D], whatever classes and wherever [CLS] stands."""

import itertools

import pytest
import torch
from reference.models import randomize, relative_error
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import VirtualNode

from graphormer_sepnorm import SepNorm
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.model.sepnorm import ShareNorm

EXACT = 1e-11
CLASSES = (nn.BatchNorm1d, nn.LayerNorm)
PAIRS = pytest.mark.parametrize(
    "classes",
    list(itertools.product(CLASSES, CLASSES)),
    ids=lambda pair: "+".join(cls.__name__ for cls in pair),
)
N, L, D = 4, 6, 5  # as many tokens as channels: nn.BatchNorm1d would take one for the other


def formula(module: SepNorm, tokens: Tensor, classes, position: int, mask: Tensor | None) -> Tensor:
    """The published algorithm with torch's own norms over lists of real tokens (Eq. 5)."""
    branches = []
    for cls, branch in zip(classes, (module.cls_norm_layer, module.tok_norm_layer), strict=True):
        norm = cls(D).double().train(module.training)
        norm.load_state_dict(branch.state_dict())
        branches.append(norm)
    n, length, _ = tokens.shape
    result = tokens.clone()
    result[:, position] = branches[0](tokens[:, position])
    others = torch.ones(n, length, dtype=torch.bool) if mask is None else mask.clone()
    others[:, position] = False
    result[others] = branches[1](tokens[others])
    return result


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("position", [0, 2, -1])
@PAIRS
def test_agrees_with_the_published_algorithm(classes, position, training, masked):
    module = SepNorm(D, *classes, cls_position=position).double().train(training)
    randomize(module)
    mask = None
    if masked:
        mask = torch.rand(N, L) < 0.6
        mask[0] = True
    # Time-first layouts arrive as transposed views.
    tokens = (torch.randn(L, N, D, dtype=torch.float64) + 1).transpose(0, 1)
    truth = formula(module, tokens, classes, position, mask)
    out = module(tokens, mask)
    assert out.shape == tokens.shape
    looked_at = torch.ones(N, L, dtype=torch.bool) if mask is None else mask.clone()
    looked_at[:, position] = True
    assert relative_error(out[looked_at], truth[looked_at]) < EXACT


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@PAIRS
def test_rows_of_graphs_are_normalized_as_padded_sequences_are(classes, training):
    module = SepNorm(D, *classes, cls_position=-1).double().train(training)
    randomize(module)
    graphs = [
        Data(
            x=torch.randn(n, D, dtype=torch.float64), edge_index=torch.empty(2, 0, dtype=torch.long)
        )
        for n in (3, 1, 5, 2)
    ]
    batch = Batch.from_data_list([VirtualNode()(graph) for graph in graphs])
    rows = batch.x + torch.randn_like(batch.x)
    is_cls = torch.zeros(len(rows), dtype=torch.bool)
    is_cls[batch.ptr[1:] - 1] = True  # PyG puts it last
    # The same as sequences with padding in front, so that [CLS] is the last position of each.
    tokens, mask = torch.zeros(4, 6, D, dtype=torch.float64), torch.zeros(4, 6, dtype=torch.bool)
    for sequence, (start, end) in enumerate(itertools.pairwise(batch.ptr.tolist())):
        tokens[sequence, start - end :], mask[sequence, start - end :] = rows[start:end], True
    state = {name: value.clone() for name, value in module.state_dict().items()}
    truth = module(tokens, mask)[mask]
    after = {name: value.clone() for name, value in module.state_dict().items()}
    module.load_state_dict(state)
    assert relative_error(module(rows, is_cls), truth) < EXACT
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, after[name])
    with pytest.raises(DataError, match=r"bool \[R\]"):
        module(rows)
    with pytest.raises(DataError, match="mask is of shape"):
        module(rows, is_cls[1:])


def test_one_sequence_or_token_in_training_is_a_clear_error():
    module = SepNorm(D)
    with pytest.raises(DataError, match="at least 2"):
        module(torch.randn(1, L, D))
    assert module.eval()(torch.randn(1, L, D)).shape == (1, L, D)
    # No BatchNorm on [CLS]: nothing wrong with one sequence.
    of_tokens = SepNorm(D, nn.LayerNorm, nn.BatchNorm1d)
    assert of_tokens(torch.randn(1, L, D)).shape == (1, L, D)
    mask = torch.zeros(N, L, dtype=torch.bool)
    mask[0, 1] = True
    with pytest.raises(DataError, match="at least 2"):
        of_tokens(torch.randn(N, L, D), mask)


def test_cls_alone():
    assert SepNorm(D)(torch.randn(N, 1, D)).shape == (N, 1, D)


@pytest.mark.parametrize("wrong", [nn.GroupNorm, nn.LayerNorm(D), "layer", None])
@pytest.mark.parametrize("place", ["cls_norm", "tok_norm"])
def test_another_class_is_a_config_error(wrong, place):
    with pytest.raises(ConfigError, match=r"BatchNorm1d or nn\.LayerNorm, or its name"):
        SepNorm(D, **{place: wrong})


@pytest.mark.parametrize("kind", ["ln", "bn"])
@pytest.mark.parametrize("masked", [False, True])
def test_share_norm_is_one_norm_of_all_tokens(kind, masked):
    module = ShareNorm(D, kind).double().train()
    randomize(module)
    norm = (nn.BatchNorm1d if kind == "bn" else nn.LayerNorm)(D).double()
    norm.load_state_dict(module.norm_layer.state_dict())
    tokens = torch.randn(N, L, D, dtype=torch.float64) + 1
    mask = torch.rand(N, L) < 0.6 if masked else torch.ones(N, L, dtype=torch.bool)
    out = module(tokens, mask if masked else None)
    assert relative_error(out[mask], norm(tokens[mask])) < EXACT


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"elementwise_affine": False}])
@PAIRS
def test_from_layer_norm_takes_over_what_it_has(classes, options):
    norm = nn.LayerNorm(D, eps=0.1, **options).double().eval()
    randomize(norm)
    module = SepNorm.from_layer_norm(norm, *classes, cls_position=1)
    assert not module.training
    assert module.cls_position == 1
    assert module.eps == 0.1
    for branch in module.children():
        assert branch.eps == 0.1
        for name in ("weight", "bias"):
            value = getattr(norm, name)
            if value is not None:
                assert torch.equal(getattr(branch, name), value)
                assert getattr(branch, name).data_ptr() != value.data_ptr()
            elif isinstance(branch, nn.LayerNorm):
                assert getattr(branch, name) is None
    if options != {"elementwise_affine": False}:  # of which nothing stands in a state dict
        SepNorm.from_layer_norm(norm, *classes).load_state_dict(norm.state_dict())
    if classes == (nn.LayerNorm, nn.LayerNorm):
        tokens = torch.randn(N, L, D, dtype=torch.float64)
        assert relative_error(module(tokens), norm(tokens)) < EXACT


def test_from_layer_norm_stays_on_its_device():
    module = SepNorm.from_layer_norm(nn.LayerNorm(D, device="meta"), "bn", "ln")
    assert all(tensor.is_meta for tensor in module.state_dict().values())


@pytest.mark.parametrize("wrong", [nn.LayerNorm((L, D)), nn.RMSNorm(D)])
def test_only_a_layer_norm_of_the_last_axis_is_taken_over(wrong):
    with pytest.raises(ConfigError, match=r"only an nn\.LayerNorm over the last axis"):
        SepNorm.from_layer_norm(wrong)


def test_half_a_state_dict_of_a_layer_norm_is_noticed():
    with pytest.raises(RuntimeError, match=r"Missing.*cls_norm_layer\.bias"):
        SepNorm(D, "ln", "ln").load_state_dict({"weight": torch.ones(D)})
    with pytest.raises(RuntimeError, match=r"Missing.*cls_norm_layer\.weight"):
        SepNorm.from_layer_norm(nn.LayerNorm(D)).load_state_dict({})
    module = SepNorm.from_layer_norm(nn.LayerNorm(D, bias=False), "ln")
    with pytest.raises(RuntimeError, match=r'Unexpected.*"bias"'):
        module.load_state_dict(nn.LayerNorm(D).state_dict())


@PAIRS
def test_state_dicts_of_the_papers_class_load(classes):
    """Strictly, inside a larger model, and without a change to what is given."""
    names = ("cls_norm_layer", "tok_norm_layer")
    theirs = nn.ModuleDict({name: cls(D) for name, cls in zip(names, classes, strict=True)})
    randomize(theirs)
    given = nn.ModuleDict({"norm": theirs}).state_dict()
    keys = list(given)
    model = nn.ModuleDict({"norm": SepNorm(D, *classes)}).eval()
    model.load_state_dict(given)
    assert list(given) == keys
    tokens = torch.randn(N, L, D)
    branches = [theirs.eval()[name] for name in names]
    assert torch.equal(model["norm"](tokens)[:, 0], branches[0](tokens[:, 0]))
    others = branches[1](tokens[:, 1:].flatten(0, 1)).reshape(N, L - 1, D)
    assert torch.equal(model["norm"](tokens)[:, 1:], others)
    again = nn.ModuleDict({"norm": SepNorm(D, *classes)}).eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again["norm"](tokens), model["norm"](tokens))


@pytest.mark.parametrize("make", [SepNorm, ShareNorm])
@pytest.mark.parametrize(
    "shape", [(N, 2, L, D), (N, D, L), (L, D + 1), (D,), (N, L, D + 1)], ids=str
)
def test_tokens_of_another_shape_are_refused(make, shape):
    with pytest.raises(DataError, match=rf"must be \[N, L, {D}\]: sequences, positions, channels"):
        make(D)(torch.randn(shape))


@pytest.mark.parametrize("training", [True, False])
def test_a_mask_is_looked_at_whatever_the_norms(training):
    tokens = torch.randn(N, L, D)
    for make in (SepNorm, ShareNorm, lambda width: SepNorm(width, "bn", "bn")):
        norm = make(D).train(training)
        for shape in ((N, L - 1), (L, N)):
            with pytest.raises(DataError, match=rf"the mask is of shape .* must be \[{N}, {L}\]"):
                norm(tokens, torch.ones(shape, dtype=torch.bool))
        with pytest.raises(DataError, match="the mask holds floats: give bool"):
            norm(tokens, torch.zeros(N, L))


def test_a_mask_of_integers_is_that_of_hugging_face():
    tokens, mask = torch.randn(N, L, D), torch.rand(N, L) > 0.3
    first, second = SepNorm(D, "bn", "bn"), SepNorm(D, "bn", "bn")
    numbered = mask * torch.arange(1, L + 1)  # whatever is not 0 is real
    assert torch.equal(first(tokens, mask), second(tokens, numbered))
    assert torch.equal(first.tok_norm_layer.running_mean, second.tok_norm_layer.running_mean)


def test_eps_is_that_of_both_branches_and_print_shows_it():
    norm, tokens = SepNorm(D, "ln", "bn", -1, eps=0.5), torch.randn(N, L, D)
    found = norm(tokens)
    truth = nn.functional.layer_norm(tokens[:, -1], (D,), eps=0.5)
    assert torch.allclose(found[:, -1], truth, atol=1e-6)
    rest = tokens[:, :-1].flatten(0, 1)
    truth = (rest - rest.mean(0)) / (rest.var(0, unbiased=False) + 0.5).sqrt()
    assert torch.allclose(found[:, :-1].flatten(0, 1), truth, atol=1e-5)
    assert f"{D}, eps=0.5, cls_position=-1" in repr(norm)
    assert f"MaskedBatchNorm({D}, eps=0.5, momentum=0.1)" in repr(norm)


@pytest.mark.parametrize("position", [L, -L - 1])
def test_a_position_outside_is_a_clear_error(position):
    with pytest.raises(ConfigError, match=f"cls_position {position} lies outside {L} positions"):
        SepNorm(D, cls_position=position)(torch.randn(N, L, D))
