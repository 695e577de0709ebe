"""Small transformers of two libraries with random weights, and inputs for them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference.models import randomize
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    RobertaConfig,
    RobertaModel,
    ViTConfig,
    ViTMAEConfig,
    ViTMAEForPreTraining,
    ViTModel,
)

N, L, D = 4, 9, 16
SIZES: dict[str, Any] = {
    **{"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 24, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}
TEXT = SIZES | {"vocab_size": 40, "max_position_embeddings": 20}
IMAGE = SIZES | {"image_size": 8, "patch_size": 2, "num_channels": 1}
PAD = 1


def bert() -> BertModel:
    return BertModel(BertConfig(**TEXT))


def vit() -> ViTModel:
    return ViTModel(ViTConfig(**IMAGE))


def vit_mae() -> ViTMAEForPreTraining:
    decoder = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes = {f"decoder_{name}": size for name, size in decoder.items()}
    return ViTMAEForPreTraining(ViTMAEConfig(**IMAGE, **sizes, decoder_intermediate_size=12))


def encoder(norm_first: bool = False) -> nn.TransformerEncoder:
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    layer = nn.TransformerEncoderLayer(D, 2, 24, **options)
    norm = nn.LayerNorm(D) if norm_first else None
    return nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)


def layers(pattern: str, number: int, *norms: str) -> list[str]:
    return [pattern.format(layer) + norm for layer in range(number) for norm in norms]


OF_BERT = layers("encoder.layer.{}.", 2, "attention.output.LayerNorm", "output.LayerNorm")
OF_VIT = layers("layers.{}.", 2, "layernorm_before", "layernorm_after")
# What makes a model, the norms whose [CLS] is the same in every sequence, and the others.
MODELS: dict[str, tuple[Callable[[], nn.Module], list[str], list[str]]] = {
    "bert": (bert, ["embeddings.LayerNorm"], OF_BERT),
    "masked_bert": (
        lambda: BertForMaskedLM(BertConfig(**TEXT)),
        ["bert.embeddings.LayerNorm"],
        [*(f"bert.{name}" for name in OF_BERT), "cls.predictions.transform.LayerNorm"],
    ),
    "roberta": (lambda: RobertaModel(RobertaConfig(**TEXT)), ["embeddings.LayerNorm"], OF_BERT),
    "vit": (vit, OF_VIT[:1], [*OF_VIT[1:], "layernorm"]),
    "vit_mae": (
        vit_mae,
        [f"vit.{OF_VIT[0]}"],
        [
            *(f"vit.{name}" for name in [*OF_VIT[1:], "layernorm"]),
            *layers("decoder.decoder_layers.{}.", 1, "layernorm_before", "layernorm_after"),
            "decoder.decoder_norm",
        ],
    ),
    "encoder": (encoder, [], layers("layers.{}.", 2, "norm1", "norm2")),
    "pre_norm_encoder": (
        lambda: encoder(norm_first=True),
        ["layers.0.norm1"],
        ["layers.0.norm2", "layers.1.norm1", "layers.1.norm2", "norm"],
    ),
}
NAMES = pytest.mark.parametrize("name", list(MODELS))


def made(name: str) -> nn.Module:
    """A model with parameters far from their initial values."""
    model = MODELS[name][0]().eval()
    randomize(model)
    return model


def small_bert() -> BertModel:
    """One layer, for what takes long to compile."""
    model = BertModel(BertConfig(**TEXT | {"num_hidden_layers": 1})).eval()
    randomize(model)
    return model


def an_input(name: str) -> dict[str, Any]:
    """Sequences of which some are padded, as far as the model knows padding."""
    real = torch.arange(L) < torch.tensor([L, 6, 3, L])[:, None]
    if "encoder" in name:
        return {"src": torch.randn(N, L, D), "src_key_padding_mask": ~real}
    if "vit" in name:
        images = {"pixel_values": torch.randn(N, 1, 8, 8)}
        return images | ({"noise": torch.rand(N, 16)} if name == "vit_mae" else {})
    ids = torch.randint(2, 40, (N, L)).masked_fill(~real, PAD)
    ids[:, 0] = 0
    return {"input_ids": ids, "attention_mask": real.long()}


def output(model: nn.Module, given: dict[str, Any]) -> Tensor:
    out = model(**given)
    return out if isinstance(out, Tensor) else out.logits if "logits" in out else out[0]
