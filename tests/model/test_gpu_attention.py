"""The fused attention kernel against the plain path, on a GPU or by Triton's interpreter."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from reference.compiled import DEVICE
from torch import Tensor

from graphormer_sepnorm.graphs.batch import PADDING_PAIR, TOKEN_PAIR, AttentionBlock
from graphormer_sepnorm.model import attention
from graphormer_sepnorm.model.attention import GraphAttention
from graphormer_sepnorm.model.fused import gpu_attention

HEADS = 3


def block_of(sizes: list[int], tokens: int, first: int) -> AttentionBlock:
    """Graphs of these numbers of tokens, whose packed rows follow each other."""
    size = torch.tensor(sizes)
    place = torch.arange(tokens)
    real = place < size[:, None]
    start = first + size.cumsum(0) - size
    pair_type = torch.where(real, TOKEN_PAIR, PADDING_PAIR)[:, None].repeat(1, tokens, 1)
    rows = torch.where(real, start[:, None] + place, 0)
    return AttentionBlock(rows, pair_type)._map(lambda tensor: tensor.to(DEVICE))


def batch_and_biases(channels: int) -> tuple[SimpleNamespace, list[Tensor], Tensor]:
    """Two blocks, with padding, and three rows that belong to no graph."""
    blocks = (block_of([2, 5, 9], 11, 0), block_of([17, 20], 20, 16))
    rows = 16 + 37 + 3
    unpad = torch.zeros(rows, dtype=torch.int64, device=DEVICE)
    flat = 0
    for block in blocks:
        real = block.pair_type[:, 0] != PADDING_PAIR
        unpad[block.rows[real]] = flat + real.flatten().nonzero().flatten()
        flat += real.numel()
    biases = []
    for block in blocks:
        bias = torch.randn(len(block.rows), HEADS, *block.pair_type.shape[1:], device=DEVICE)
        padding = (block.pair_type == PADDING_PAIR)[:, None]
        biases.append(bias.masked_fill(padding, float("-inf")).requires_grad_())
    values = torch.randn(rows, HEADS * channels, device=DEVICE, requires_grad=True)
    return SimpleNamespace(blocks=blocks, unpad=unpad), biases, values


def run(layer: GraphAttention, batch, biases, values) -> list[Tensor]:
    """Outputs of the rows that belong to a graph, and all gradients."""
    output = layer(values, batch, biases)[:-3]
    parts = [values, *biases, *layer.parameters()]
    slope = torch.linspace(-1, 1, output.numel(), device=DEVICE).view_as(output)
    return [output, *torch.autograd.grad(output, parts, slope)]


@pytest.mark.parametrize("channels", [4, 12, 16, 20])
def test_fused_attention_is_the_plain_one(channels, kernels, monkeypatch):
    torch.manual_seed(0)
    batch, biases, values = batch_and_biases(channels)
    layer = GraphAttention(HEADS * channels, HEADS, 0.0).to(DEVICE)
    calls = []
    attend = gpu_attention.attend
    monkeypatch.setattr(gpu_attention, "attend", lambda *a: calls.append(1) or attend(*a))
    results = []
    for fused in (False, True):
        monkeypatch.setattr(gpu_attention, "usable", lambda *_, fused=fused: fused)
        results.append(run(layer, batch, biases, values))
    assert calls == [1]
    for plain, fused in zip(*results, strict=True):
        # The gradient of a key's bias is rounding alone.
        torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-5)


def test_dropout_drops_the_same_weights_backward(kernels):
    """With the identity as values, outputs are the weights that are left."""
    tokens, probability = 16, 0.4
    block = block_of([16, 11], tokens, 0)
    torch.manual_seed(0)
    projected = torch.randn(27, 3 * 16, device=DEVICE)
    for row in range(27):
        projected[row, 32:] = torch.eye(16, device=DEVICE)[row if row < 16 else row - 16]
    projected.requires_grad_()
    bias = torch.zeros(2, 1, tokens, tokens, device=DEVICE)
    bias[1, :, :, 11:] = float("-inf")
    bias.requires_grad_()
    whole = gpu_attention.attend(projected, [block], [bias], 1, 0.0)
    torch.manual_seed(1)
    left = gpu_attention.attend(projected, [block], [bias], 1, probability)
    kept = left != 0
    torch.testing.assert_close(left[kept], whole[kept] / (1 - probability))
    possible = whole != 0
    assert 0.5 < kept.sum() / possible.sum() < 0.7
    torch.manual_seed(1)
    again = gpu_attention.attend(projected, [block], [bias], 1, probability)
    assert torch.equal(left, again)
    slope = torch.randn_like(left)
    found = torch.autograd.grad(left, (projected, bias), slope)
    # The same masks on the plain path; rows 0 to 15 are the first graph's.
    plain = torch.zeros_like(left)
    for graph, rows in enumerate((slice(0, 16), slice(16, 27))):
        query, key, value = projected[rows].split(16, 1)
        size = len(query)
        logits = query @ key.T / 4 + bias[graph, 0, :size, :size]
        mask = kept[rows, :size] / (1 - probability)
        plain[rows] = (logits.softmax(-1) * mask) @ value
    truth = torch.autograd.grad(plain, (projected, bias), slope)
    for one, other in zip(found, truth, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", [5, 39, 64])
def test_kernel_is_compared_with_the_plain_path_before_it_is_used(tokens, kernels):
    device = torch.device(DEVICE)
    assert gpu_attention.disagreement(device, tokens, 2, 12) < 1e-5
    with torch.inference_mode():  # a validation may be the first to meet a size
        assert gpu_attention.agrees(device, tokens, 2, 12)


def test_a_cpu_takes_the_plain_path():
    block = block_of([3], 3, 0)._map(lambda tensor: tensor.cpu())
    assert not gpu_attention.usable(torch.zeros(3, 24), [block], 2)
    assert attention.gpu_attention is gpu_attention
