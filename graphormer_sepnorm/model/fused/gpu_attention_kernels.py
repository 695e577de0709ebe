"""Attention of one head of one graph as one GPU program; only `gpu_attention` imports this.

Graphs of molecules are small: all logits of a head fit into the registers of a program, so nothing
of their size but the bias is read, and nothing but its gradient written.

b graphs of a block · T tokens · S: T rounded up to a power of 2 · H heads · C channels of a head ·
D: C rounded up
"""

# Triton's functions are compiled from their source: names and types mean what Triton means by them.
# pyright: basic, reportMissingImports=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportIndexIssue=false, reportOptionalSubscript=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _places(
    rows, pair_type, T, HEADS: tl.constexpr, C: tl.constexpr, S: tl.constexpr, D: tl.constexpr
):
    """Where a program finds its tokens, its pairs, and which of them are none of padding."""
    graph, head = tl.program_id(0), tl.program_id(1)
    token = tl.arange(0, S)
    channel = tl.arange(0, D)
    # Pairs of the graph token with padding are of type 0.
    real = tl.load(pair_type + graph * T * T + token, mask=token < T, other=0) != 0
    row = tl.load(rows + graph * T + token, mask=real, other=0)
    columns = head * C + channel
    projected = row[:, None] * (3 * HEADS * C) + columns[None, :]
    mixed = row[:, None] * (HEADS * C) + columns[None, :]
    taken = real[:, None] & (channel < C)[None, :]
    pairs = ((graph * HEADS + head) * T + token[:, None]) * T + token[None, :]
    there = (token < T)[:, None] & (token < T)[None, :]
    return projected, mixed, taken, pairs, there, real


@triton.jit
def _softmax(query, key, bias, pairs, real, scale):
    """Attention weights ``[S, S]`` before dropout; zero for padding."""
    both = real[:, None] & real[None, :]
    logits = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
    logits = logits + tl.load(bias + pairs, mask=both, other=0.0)
    logits = tl.where(both, logits, float("-inf"))
    largest = tl.where(real, tl.max(logits, 1), 0.0)
    powers = tl.exp(logits - largest[:, None])
    return powers / tl.where(real, tl.sum(powers, 1), 1.0)[:, None]


@triton.jit
def attention_forward(
    projected, bias, rows, pair_type, seed, output, T, scale, dropout,
    HEADS: tl.constexpr, C: tl.constexpr, S: tl.constexpr, D: tl.constexpr, DROPPING: tl.constexpr,
):  # fmt: skip
    """Write ``dropout(softmax(q k / sqrt(C) + bias)) v`` of the real tokens."""
    own, mixed, taken, pairs, _, real = _places(rows, pair_type, T, HEADS, C, S, D)
    query = tl.load(projected + own, mask=taken, other=0.0)
    key = tl.load(projected + own + HEADS * C, mask=taken, other=0.0)
    value = tl.load(projected + own + 2 * HEADS * C, mask=taken, other=0.0)
    weights = _softmax(query, key, bias, pairs, real, scale)
    if DROPPING:
        kept = tl.rand(tl.load(seed), pairs) >= dropout
        weights = tl.where(kept, weights / (1 - dropout), 0.0)
    tl.store(output + mixed, tl.dot(weights, value, input_precision="ieee"), mask=taken)


@triton.jit
def attention_backward(
    projected, bias, rows, pair_type, seed, gradient, projected_gradient, bias_gradient, T, scale,
    dropout,
    HEADS: tl.constexpr, C: tl.constexpr, S: tl.constexpr, D: tl.constexpr, DROPPING: tl.constexpr,
):  # fmt: skip
    """Write the gradients of query, key and value of the real tokens, and of the bias."""
    own, mixed, taken, pairs, there, real = _places(rows, pair_type, T, HEADS, C, S, D)
    query = tl.load(projected + own, mask=taken, other=0.0)
    key = tl.load(projected + own + HEADS * C, mask=taken, other=0.0)
    value = tl.load(projected + own + 2 * HEADS * C, mask=taken, other=0.0)
    weights = _softmax(query, key, bias, pairs, real, scale)
    slope = tl.load(gradient + mixed, mask=taken, other=0.0)
    by_weight = tl.dot(slope, tl.trans(value), input_precision="ieee")
    dropped = weights
    if DROPPING:
        kept = tl.rand(tl.load(seed), pairs) >= dropout
        dropped = tl.where(kept, weights / (1 - dropout), 0.0)
        by_weight = tl.where(kept, by_weight / (1 - dropout), 0.0)
    by_value = tl.dot(tl.trans(dropped), slope, input_precision="ieee")
    by_logit = weights * (by_weight - tl.sum(weights * by_weight, 1)[:, None])
    by_query = tl.dot(by_logit, key, input_precision="ieee") * scale
    by_key = tl.dot(tl.trans(by_logit), query, input_precision="ieee") * scale
    tl.store(projected_gradient + own, by_query, mask=taken)
    tl.store(projected_gradient + own + HEADS * C, by_key, mask=taken)
    tl.store(projected_gradient + own + 2 * HEADS * C, by_value, mask=taken)
    tl.store(bias_gradient + pairs, by_logit, mask=there)
