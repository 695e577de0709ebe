"""`replace_norms` in BERT, RoBERTa, ViT, ViT-MAE and torch's own encoder, with random weights."""

import copy
import pickle

import pytest
import torch
from reference.models import randomize
from replaced_models import (
    MODELS,
    NAMES,
    OF_BERT,
    D,
    L,
    N,
    an_input,
    bert,
    encoder,
    made,
    output,
    small_bert,
    vit,
    vit_mae,
)
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model

from graphormer_sepnorm import SepNorm, replace_norms
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.sepnorm import ShareNorm, TokenNorm


@NAMES
def test_what_is_replaced_is_reported(name):
    make, same_cls, others = MODELS[name]
    model = make()
    report = replace_norms(model)
    assert report.replaced == dict.fromkeys(same_cls, "ln+ln") | dict.fromkeys(others, "bn+ln")
    assert list(report.same_cls) == same_cls
    assert report.kept == {}
    assert {n for n, m in model.named_modules() if isinstance(m, SepNorm)} == {*same_cls, *others}
    assert [line.split()[0] for line in str(report).splitlines()] == list(report.replaced)


@NAMES
def test_the_originals_outputs_and_state_dicts(name):
    """With LayerNorm for both the outputs are the same; state dicts load into all arms."""
    model, given = made(name), an_input(name)
    with torch.no_grad():
        truth = output(model, given)
        for shared in (False, True):
            swapped = copy.deepcopy(model)
            report = replace_norms(swapped, "ln", "ln", shared=shared)
            assert {*report.replaced.values()} == {"shared-ln" if shared else "ln+ln"}
            torch.testing.assert_close(output(swapped, given), truth, rtol=1e-5, atol=1e-5)
        for kind in ("ln", "bn"):
            swapped = MODELS[name][0]().eval()
            replace_norms(swapped, kind, kind)
            swapped.load_state_dict(model.state_dict(), assign=kind == "bn")
            norms = {k: m for k, m in swapped.named_modules() if isinstance(m, SepNorm)}
            for path, norm in norms.items():
                theirs, (one, other) = model.get_submodule(path), norm.children()
                for branch in (one, other):
                    assert torch.equal(branch.weight, theirs.weight)
                    assert torch.equal(branch.bias, theirs.bias)
                assert one.weight.data_ptr() != other.weight.data_ptr()
            if kind == "ln":
                torch.testing.assert_close(output(swapped, given), truth, rtol=1e-5, atol=1e-5)


def test_examples_that_are_made_up():
    assert replace_norms(encoder().double()).replaced  # in the precision of the model
    assert replace_norms(vit(), cls_position=7).replaced  # of 1 + 16 positions of an image
    with pytest.raises(ConfigError, match=r"acts on \[3, 17, 16\]"):
        replace_norms(vit(), cls_position=17)


# [CLS] of the decoder is thrown away: what comes after attention learns nothing.
UNUSED = ("decoder.decoder_norm.cls", "decoder.decoder_layers.0.layernorm_after.cls")


@NAMES
@pytest.mark.parametrize("kinds", [("bn", "ln"), ("bn", "bn")], ids="+".join)
def test_it_trains_and_evaluates(name, kinds):
    torch.manual_seed(1)
    model, given = MODELS[name][0](), an_input(name)
    replace_norms(model.train(), *kinds)
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(2):
        optimizer.zero_grad()
        out = output(model, given)
        (out * torch.randn_like(out)).sum().backward()
        optimizer.step()
    for path, norm in model.named_modules():
        if isinstance(norm, TokenNorm):
            for part, value in norm.state_dict().items():
                place = f"{path}.{part}"
                if not (place.startswith(UNUSED) and part.endswith(("weight", "bias"))):
                    assert not torch.equal(value, before[place]), place
    model.eval()
    with torch.no_grad():
        one = output(model, {key: value[:1] for key, value in given.items()})
        torch.testing.assert_close(one, output(model, given)[:1], rtol=1e-4, atol=1e-5)


def test_it_is_compiled_in_one_graph():
    model = small_bert().train()
    replace_norms(model, "bn", "bn")
    eager, given = copy.deepcopy(model), an_input("bert")
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(output(compiled, given), output(eager, given))
    torch.testing.assert_close(model.state_dict(), eager.state_dict())


@NAMES
@pytest.mark.parametrize("kinds", [("bn", "ln"), ("bn", "bn")], ids="+".join)
def test_autocast_to_bfloat16(name, kinds):
    """Each norm returns what the LayerNorm in its place returned."""
    model, given = made(name), an_input(name)
    swapped = copy.deepcopy(model)
    replace_norms(swapped, *kinds)
    dtypes: list[list[torch.dtype]] = []
    for one in (model, swapped.train()):
        found: list[torch.dtype] = []
        for norm in one.modules():
            if isinstance(norm, TokenNorm) or (one is model and isinstance(norm, nn.LayerNorm)):
                norm.register_forward_hook(lambda *args, found=found: found.append(args[2].dtype))
        with torch.autocast("cpu", torch.bfloat16):
            out = output(one, given)
        assert out.float().isfinite().all()
        dtypes.append([*found, out.dtype])
    assert dtypes[0] == dtypes[1]


def test_nothing_but_the_norms_changes():
    model = made("bert").to(torch.bfloat16)
    model.encoder.layer[0].train()
    model.encoder.layer[1].output.LayerNorm.requires_grad_(False)
    modes = {name: module.training for name, module in model.named_modules()}
    masks = vit_mae()  # draws which patches it sees, when it is run
    random = torch.get_rng_state()
    replace_norms(masks)
    replace_norms(model, "bn", "bn")
    assert torch.equal(torch.get_rng_state(), random)
    for name, mode in modes.items():
        assert model.get_submodule(name).training == mode
    norms = [module for module in model.modules() if isinstance(module, SepNorm)]
    assert {one.dtype for norm in norms for one in norm.parameters()} == {torch.bfloat16}
    for norm in norms:
        assert [branch.eps for branch in norm.children()] == [model.config.layer_norm_eps] * 2
        assert all(branch.training == norm.training for branch in norm.children())
        frozen = norm is model.encoder.layer[1].output.LayerNorm
        assert all(parameter.requires_grad != frozen for parameter in norm.parameters())


class Odd(nn.Module):
    """Norms of many kinds; and one that has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LayerNorm(D)
        self.one = nn.ModuleDict({"norm": nn.LayerNorm(D, bias=False)})
        self.other = nn.ModuleDict({"norm": self.one["norm"]})
        self.heads = nn.LayerNorm(4)
        self.time_first = nn.LayerNorm(D)
        self.unused, self.plain = nn.LayerNorm(D), nn.LayerNorm(D, elementwise_affine=False)
        self.root = nn.RMSNorm(D)
        self.mix = nn.Linear(D, D)

    def forward(self, tokens: Tensor) -> Tensor:
        cls = torch.ones_like(tokens[:, :1])
        tokens = self.first(torch.cat([cls, tokens], dim=1))
        tokens = self.root(tokens + self.mix(tokens.mean(1, keepdim=True)))
        tokens = self.plain(self.other["norm"](self.one["norm"](tokens)))
        tokens = self.heads(tokens.unflatten(2, (-1, 4))).flatten(2)
        return self.time_first(tokens.transpose(0, 1)).transpose(0, 1)


def test_what_is_kept_and_why():
    model, tokens = Odd().eval(), torch.randn(N, L, D)
    same = copy.deepcopy(model)
    report = replace_norms(model, example=tokens)
    assert report.replaced == {"first": "ln+ln", "one.norm": "bn+ln", "other.norm": "bn+ln"}
    assert report.kept == {
        "heads": f"acts on [{N}, {L + 1}, 4, 4] in the example, not on [N, L, D]",
        "time_first": f"acts on [{L + 1}, {N}, {D}] in the example, not on [N, L, D]",
        "unused": "not called in the example",
        "plain": "has no weight that another norm could begin with",
        "root": "RMSNorm is no nn.LayerNorm over the last axis",
    }
    assert "kept       not called in the example" in str(report)
    assert model.one["norm"] is model.other["norm"]
    assert model.one["norm"].tok_norm_layer.bias is None
    replace_norms(same, "ln", "ln", example=(tokens,))
    model.load_state_dict(Odd().state_dict())
    with torch.no_grad():
        torch.testing.assert_close(same(tokens), Odd.forward(same, tokens))


class Twice(nn.Module):
    """Uses norms again: `shared` in a second layer, `pooled` on the mean of the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.pooled, self.last = (nn.LayerNorm(D) for _ in range(3))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = self.shared(torch.cat([torch.ones_like(tokens[:, :1]), tokens], dim=1))
        tokens = self.pooled(self.shared(tokens + tokens.mean(1, keepdim=True)))
        return self.last(tokens + self.pooled(tokens.mean(1))[:, None])


def test_every_call_of_a_norm_counts():
    report = replace_norms(Twice(), example=torch.randn(N, L, D))
    assert report.replaced == {"shared": "ln+ln", "last": "bn+ln"}
    assert report.kept == {"pooled": f"acts on [{N}, {D}] in the example, not on [N, L, D]"}


class DoubledNorm(nn.LayerNorm):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class ExtendedNorm(nn.LayerNorm):
    """As LayerNorm in the example: until it is trained, or in evaluation."""

    def __init__(self, more: nn.Parameter | nn.Module) -> None:
        super().__init__(D)
        self.more = more

    def forward(self, input: Tensor) -> Tensor:
        found = super().forward(input)
        return self.more(found) if isinstance(self.more, nn.Module) else self.more * found


def between(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(D, D), norm, nn.LayerNorm(D))


class MaskedNorm(nn.LayerNorm):
    def forward(self, input: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(input)


class CallsWithMask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.norm, self.last = nn.Linear(D, D), MaskedNorm(D), nn.LayerNorm(D)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.last(self.norm(self.mix(tokens), mask=None))


@pytest.mark.parametrize(
    "make",
    [
        lambda: between(ExtendedNorm(nn.Parameter(torch.ones(D)))),
        lambda: between(ExtendedNorm(nn.Dropout())),
        lambda: between(DoubledNorm(D)),
        CallsWithMask,
    ],
)
def test_a_layer_norm_that_only_looks_like_one_stays(make):
    report = replace_norms(make(), example=torch.randn(N, L, D))
    assert [*report.replaced.values()] == ["bn+ln"]
    (reason,) = report.kept.values()
    assert "does more than layer_norm" in reason
    model = make()
    if not isinstance(model, CallsWithMask):  # whose norms are called with more than tokens
        assert len(replace_norms(model, example=torch.randn(N, L, D), force=True).replaced) == 2


class LayerNorm(nn.LayerNorm):
    """With the two forwards of timm's: in the precision of the tokens, and in float32."""

    def __init__(self, in_float32: bool) -> None:
        super().__init__(D, eps=1e-6)
        self.in_float32 = in_float32

    def forward(self, x: Tensor) -> Tensor:
        given = [x, self.weight, self.bias]
        if self.in_float32:
            given = [one.float() for one in given]
        given, weight, bias = given
        return nn.functional.layer_norm(given, (D,), weight, bias, self.eps).to(x.dtype)


@pytest.mark.parametrize("in_float32", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_subclass_that_computes_what_layer_norm_does_is_replaced(in_float32, dtype):
    model = nn.Sequential(nn.Linear(D, D), LayerNorm(in_float32), nn.Linear(D, D)).to(dtype)
    randomize(model)
    tokens = torch.randn(N, L, D, dtype=dtype)
    truth = model(tokens)
    assert replace_norms(model, "ln", "ln", example=tokens).replaced == {"1": "ln+ln"}
    assert model[1].eps == 1e-6
    torch.testing.assert_close(model(tokens), truth)


def test_however_small_the_tokens_are_a_cls_that_differs_is_seen():
    model = nn.Sequential(nn.Linear(D, D, bias=False), nn.LayerNorm(D))
    report = replace_norms(model, example=1e-9 * torch.randn(N, L, D))
    assert report.replaced == {"1": "bn+ln"}


@pytest.mark.parametrize(
    ("where", "replaced"),
    [
        ("one.*", {"one.norm", "other.norm"}),
        (["first", "heads"], {"first"}),
        (lambda name, norm: norm.bias is not None and name != "heads", {"first"}),
    ],
    ids=["pattern", "names", "function"],
)
def test_where(where, replaced):
    model = Odd()
    report = replace_norms(model, where=where, example={"tokens": torch.randn(N, L, D)})
    assert report.replaced.keys() == replaced
    assert "left out by where=" in report.kept.values()
    assert all(isinstance(model.get_submodule(name), SepNorm) for name in replaced)
    assert sum(isinstance(m, SepNorm) for m in model.modules()) == len(replaced - {"other.norm"})


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
def test_layers_behind_those_left_out_meet_padded_tokens():
    """An encoder as torch makes it, whose first layer would have nested tensors in evaluation."""
    layer = nn.TransformerEncoderLayer(D, 2, dim_feedforward=24, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    given, swapped = an_input("encoder"), copy.deepcopy(model)
    replace_norms(swapped, "ln", "ln", where="layers.1.*")
    real = ~given["src_key_padding_mask"]
    with torch.no_grad():
        found, truth = swapped(**given)[real], model(**given)[real]
    torch.testing.assert_close(found, truth, rtol=1e-5, atol=1e-5)


def test_dropout_makes_no_cls_another():
    model = nn.Sequential(nn.Dropout(0.5), encoder(norm_first=True)).train()
    tokens = torch.randn(N, L, D)
    tokens[:, 0] = 1
    assert replace_norms(model, example=tokens).same_cls == ("1.layers.0.norm1",)


def test_in_a_causal_model_the_token_is_one_that_sees_the_others():
    sizes = {"vocab_size": 40, "n_embd": D, "n_layer": 2, "n_head": 2}
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    with pytest.raises(ConfigError, match=r"causal model, the cls_position= .* \(-1\)"):
        replace_norms(GPT2Model(config))
    assert len(replace_norms(GPT2Model(config), "ln", "ln").replaced) == 5
    model = GPT2Model(config)
    report = replace_norms(model, cls_position=-1)
    assert report.same_cls == ("h.0.ln_1",)
    assert report.replaced["ln_f"] == "bn+ln"
    assert model.ln_f.cls_position == -1


def test_a_shared_norm_keeps_layer_norm_for_the_same_cls():
    model = made("bert")
    report = replace_norms(model, nn.BatchNorm1d, "bn", shared=True)
    expected = dict.fromkeys(OF_BERT, "shared-bn")
    assert report.replaced == {"embeddings.LayerNorm": "ln+bn", **expected}
    assert isinstance(model.get_submodule(OF_BERT[0]), ShareNorm)


def replaced_before() -> nn.Module:
    model = bert()
    replace_norms(model)
    return model


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda: nn.Linear(D, D), {}, "Linear has no nn.LayerNorm"),
        (replaced_before, {}, "have been replaced before"),
        (lambda: nn.LayerNorm(D), {}, r"LayerNorm is a norm: SepNorm\.from_layer_norm makes one"),
        (lambda: nn.TransformerEncoderLayer(D, 2), {}, r"self_attn works on \[L, N, D\].*batch_f"),
        (Odd, {}, "not known what Odd is called with: give an example="),
        (Odd, {"example": torch.randn(N, L, D + 1)}, "did not run on the example.*RuntimeError"),
        (Odd, {"example": ()}, "holds no tensor"),
        (Odd, {"example": torch.ones(N, L, D)}, "two different sequences"),
        (Odd, {"example": torch.randn(N, L, D), "where": "two.*"}, "first, for one: left out by"),
        (bert, {"cls_position": 99}, "cls_position 99 lies outside the 5 positions of an example"),
        (lambda: nn.Sequential(nn.LayerNorm(D)), {}, "not known what Sequential is called with"),
        (bert, {"tok_norm": "rms"}, "'bn'.*not 'rms'"),
        (bert, {"shared": True}, "of one kind, not of 'bn' and 'ln'"),
    ],
)
def test_clear_errors(make, options, message):
    model = make()
    before = [*model.modules()]
    with pytest.raises(ConfigError, match=message) as caught:
        replace_norms(model, **options)
    assert "\n" not in str(caught.value)
    assert [*model.modules()] == before
    pickle.dumps(model)  # nothing that listened is left
