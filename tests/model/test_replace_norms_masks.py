"""Masks of replaced norms: what lies in the padding counts in no statistics."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from replaced_models import D, L, N, an_input, bert, encoder, made, output, vit
from torch import Tensor, nn
from transformers import BartConfig, BartModel

from graphormer_sepnorm import replace_norms
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.sepnorm import TokenNorm

WITH_MASK = pytest.mark.parametrize("name", ["bert", "masked_bert", "roberta", "encoder"])


@WITH_MASK
@pytest.mark.parametrize("shared", [False, True], ids=["bn+bn", "shared-bn"])
def test_batch_norm_over_tokens_leaves_padding_out(name, shared):
    model, given = made(name), an_input(name)
    assert replace_norms(model, "bn", "bn", shared=shared).mask_from
    tokens = "src" if name == "encoder" else "input_ids"
    padding = given["src_key_padding_mask"] if name == "encoder" else given["attention_mask"] == 0
    if name == "roberta":  # counts the positions of what is no padding by number
        given["position_ids"] = torch.arange(2, L + 2).expand(N, L)
    assert_padding_does_not_count(model, given, {tokens: padding})


def test_the_mask_is_that_of_the_call_and_forgotten_after_it():
    model = made("masked_bert").train()
    replace_norms(model, "bn", "bn")
    given = an_input("masked_bert")
    whole = given | {"attention_mask": torch.ones(N, L)}
    state = copy.deepcopy(model.state_dict())

    def output_of(one: dict[str, Any], call: Callable = model) -> Tensor:
        model.load_state_dict(state)
        return call(**one)[0]

    without = {"input_ids": given["input_ids"]}
    truth, of_part = (copy.deepcopy(one)(**without)[0] for one in (model, model.bert))
    masked = output_of(given)
    assert torch.equal(output_of(without), truth)
    # Sums of a mask round otherwise, by more or less with the number of threads.
    torch.testing.assert_close(output_of(whole), truth, rtol=1e-5, atol=5e-5)
    with pytest.raises(IndexError):
        model(input_ids=given["input_ids"] + 100, attention_mask=given["attention_mask"])
    assert torch.equal(output_of(without, model.bert), of_part)
    assert torch.equal(output_of(without), truth)
    # Positional, and by a part of the model.
    model.load_state_dict(state)
    assert torch.equal(model(*given.values())[0], masked)


def test_a_call_that_cannot_know_the_padding_is_a_clear_error():
    model = made("masked_bert").train()
    replace_norms(model, "bn", "bn")
    given = an_input("masked_bert")
    states = model.bert(**given)[0]  # a part that takes the mask
    with pytest.raises(ConfigError, match="outside of the model and its like"):
        model.cls(states)
    four = given["attention_mask"][:, None, None].bool()
    with pytest.raises(ConfigError, match=r"attention_mask \[4, 1, 1, 9\], .*mask \[N, L\]"):
        model.bert(given["input_ids"], four)
    model.eval()  # nobody needs to know
    assert model.cls(states).shape == model(given["input_ids"], four)[0].shape


def test_a_mask_of_other_tokens_is_a_clear_error():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.text, self.image = bert(), vit()

        def forward(self, pixel_values, **text):
            return self.text(**text)[0].sum() + self.image(pixel_values)[0].sum()

    class Both(Two):
        def forward(self, input_ids, attention_mask, pixel_values):
            return super().forward(pixel_values, input_ids=input_ids, attention_mask=attention_mask)

    given = an_input("bert") | an_input("vit")
    two = Two().train()
    replace_norms(two, "bn", "bn", example=given)
    two(**given).backward()  # each has its own
    both = Both().train()
    replace_norms(both, "bn", "bn", example=given)
    with pytest.raises(ConfigError, match=r"mask of \[4, 9\], and.* met \[4, 17\] tokens"):
        both(**given)


def assert_padding_does_not_count(
    model: nn.Module, given: dict[str, Any], padding: dict[str, Tensor]
) -> None:
    """What lies in the padding of some inputs, ``[N, L]`` by their name, changes no statistics."""
    states = []
    for _ in range(2):
        run = copy.deepcopy(model).train()
        run(**given)
        states.append(run.state_dict())
        for name, padded in padding.items():
            other = given[name].roll(1, 0)
            padded = padded.reshape(*padded.shape, *[1] * (other.dim() - 2))
            assert not torch.equal(other, given[name])
            given = given | {name: torch.where(padded, other, given[name])}
    assert any(name.endswith("running_mean") for name in states[0])
    torch.testing.assert_close(*states)


def some_padding(*lengths: int) -> Tensor:
    return torch.arange(L) >= torch.tensor(lengths)[:, None]


def test_an_encoder_and_a_decoder_have_masks_of_their_own():
    """Of as many tokens each, so that no shape tells them apart."""
    source, target = some_padding(L, 6, 3, L), some_padding(4, L, L, 7)
    torch.manual_seed(0)
    model = nn.Transformer(D, 2, 1, 1, 24, dropout=0.0, batch_first=True)
    given = {
        **{"src": torch.randn(N, L, D), "tgt": torch.randn(N, L, D)},
        **{"src_key_padding_mask": source, "memory_key_padding_mask": source},
        **{"tgt_key_padding_mask": target},
    }
    sequences = {name: given[name] for name in ("src", "tgt")}
    report = replace_norms(model, "bn", "bn", example=sequences)
    assert report.mask_from == ("encoder", "decoder")
    assert_padding_does_not_count(model, given, {"src": source, "tgt": target})

    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "dropout": 0.0}
    config = BartConfig(d_model=D, vocab_size=40, max_position_embeddings=20, **sizes, **heads)
    bart = BartModel(config)
    given = {
        "input_ids": torch.randint(3, 40, (N, L)),
        "attention_mask": (~source).long(),
        "decoder_input_ids": torch.randint(3, 40, (N, L)),
        "decoder_attention_mask": (~target).long(),
    }
    assert replace_norms(bart, "bn", "bn", example=given).mask_from == ("encoder", "decoder")
    assert_padding_does_not_count(bart, given, {"input_ids": source, "decoder_input_ids": target})


class OwnModel(nn.Module):
    """A norm beside torch's encoder, which alone takes a mask by a name that is known."""

    def __init__(self):
        super().__init__()
        self.encoder, self.norm = encoder(), nn.LayerNorm(D)

    def forward(self, tokens, hidden=None):
        return self.norm(self.encoder(tokens, src_key_padding_mask=hidden))


class NamedAsUsual(OwnModel):
    def forward(self, tokens, padding_mask):
        return super().forward(tokens, padding_mask.bool())


class Translator(nn.Module):
    """The usual wrapper: its mask is that of the source."""

    def __init__(self):
        super().__init__()
        self.both = nn.Transformer(D, 2, 1, 1, 24, dropout=0.0, batch_first=True)

    def forward(self, src, tgt, src_key_padding_mask=None):
        masks = {"memory_key_padding_mask": src_key_padding_mask}
        return self.both(src, tgt, src_key_padding_mask=src_key_padding_mask, **masks)


def test_a_norm_that_no_mask_reaches_is_named():
    tokens = torch.randn(N, L, D)
    report = replace_norms(OwnModel(), "bn", "bn", example=tokens)
    assert (report.mask_from, report.unmasked) == (("encoder",), ("norm",))
    assert "no padding mask reaches norm" in str(report)
    assert "padding" not in str(replace_norms(OwnModel(), "bn", "ln", example=tokens))
    plain = nn.Sequential(nn.Identity(), nn.LayerNorm(D))
    plain[0].forward = torch.relu  # of which there is no signature
    report = replace_norms(plain, "bn", "bn", example=tokens)
    assert (report.mask_from, report.unmasked) == ((), ("1",))


class MarksReal(OwnModel):
    """Takes masks as Hugging Face does."""

    def forward(self, tokens, attention_mask):
        return super().forward(tokens, attention_mask == 0)


class AddsItsMask(OwnModel):
    """Takes in attention_mask what is added to scores."""

    def forward(self, tokens, attention_mask):
        return super().forward(tokens, attention_mask < 0)


@pytest.mark.parametrize(
    ("make", "argument", "real", "padded"),
    [
        *((MarksReal, "attention_mask", one, type(one)(0)) for one in (True, 1, 2, 1.0)),
        (AddsItsMask, "attention_mask", 0.0, -1e9),
        *((NamedAsUsual, "padding_mask", type(one)(0), one) for one in (True, 1, 1.0, -torch.inf)),
    ],
)
def test_a_mask_of_the_users_model(make, argument, real, padded):
    padding, model = some_padding(L, 6, 3, L), make()
    mask = torch.where(padding, torch.tensor(padded), torch.tensor(real))
    given = {"tokens": torch.randn(N, L, D), argument: mask}
    report = replace_norms(model, "bn", "bn", example=given)
    assert (report.mask_from, report.unmasked) == (("the model",), ())
    assert_padding_does_not_count(model, given, {"tokens": padding})


def test_of_a_module_with_two_masks_none_is_taken():
    class TakesTwo(OwnModel):
        def forward(self, tokens, attention_mask, padding_mask):
            return super().forward(tokens, padding_mask)

    padding = some_padding(L, 6, 3, L)
    given = {"tokens": torch.randn(N, L, D), "attention_mask": ~padding, "padding_mask": padding}
    assert replace_norms(TakesTwo(), "bn", "bn", example=given).mask_from == ("encoder",)


def test_of_a_batch_without_padding_an_added_mask_leaves_nothing_out():
    given = {"tokens": torch.randn(N, L, D), "attention_mask": torch.zeros(N, L)}
    model = AddsItsMask()
    replace_norms(model, "bn", "bn", example=given)
    plain = copy.deepcopy(model)
    found = model.train()(**given)
    assert torch.equal(found, plain.train()(given["tokens"], torch.ones(N, L)))


def test_a_decoder_has_not_the_mask_of_its_source():
    """It lies inside a module that takes the source's alone."""
    padding, model = some_padding(L, 6, 3, L), Translator()
    given = {"src": torch.randn(N, L, D), "tgt": torch.randn(N, L, D)}
    report = replace_norms(model, "bn", "bn", example=given)
    assert report.mask_from == ("both.encoder", "both.decoder")
    given |= {"src_key_padding_mask": padding}
    assert_padding_does_not_count(model, given, {"src": padding})


def test_gradient_checkpointing():
    given = an_input("masked_bert") | {"labels": torch.randint(40, (N, L))}
    for tok_norm in ("ln", "bn"):
        model = made("masked_bert").train()
        replace_norms(model, "bn", tok_norm)
        model.activation_checkpointing_enable()
        loss = model(**given).loss
        if tok_norm == "ln":
            loss.backward()
            continue
        with pytest.raises(ConfigError, match="turn gradient checkpointing off"):
            loss.backward()


def test_copies_have_masks_of_their_own():
    model = made("bert").train()
    replace_norms(model, "bn", "bn")
    given = an_input("bert")
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    truth = output(model, given)
    masks = {id(norm.padding) for norm in model.modules() if isinstance(norm, TokenNorm)}
    for one in copies:
        assert torch.equal(output(one, given), truth)
        theirs = {id(norm.padding) for norm in one.modules() if isinstance(norm, TokenNorm)}
        assert len(theirs) == 1
        assert not theirs & masks
        masks |= theirs
