"""The sums of messages along bonds as GPU programs; only `gpu_messages` imports this.

A program takes some bonds, and adds to rows and kinds of bonds in whatever order programs come.
Bonds that only fill up are left out: as additions to one row they would wait for each other.

R packed rows · E bonds · C channels · W: C rounded up to a power of 2
"""

# Triton's functions are compiled from their source: names and types mean what Triton means by them.
# pyright: basic, reportMissingImports=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportIndexIssue=false, reportOptionalSubscript=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _bonds(ways, E, R, EDGES: tl.constexpr):
    """Source, target and kind of the bonds of this program, and which of them are bonds."""
    edge = tl.program_id(0) * EDGES + tl.arange(0, EDGES)
    listed = edge < E
    source = tl.load(ways + edge, mask=listed, other=0)
    target = tl.load(ways + E + edge, mask=listed, other=R)
    kind = tl.load(ways + 2 * E + edge, mask=listed, other=0)
    return edge, source, target, kind, target < R


@triton.jit
def _relu(values):
    """ReLU that lets nan pass, as torch's does."""
    return tl.where(values <= 0, 0.0, values)


@triton.jit
def messages_forward(
    rows, values, ways, sums, E, R, C, EDGES: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Add ``ReLU(rows_j + values_kind)`` of each bond to `sums`, which are zeros."""
    _, source, target, kind, real = _bonds(ways, E, R, EDGES)
    channel = tl.arange(0, W)
    there = real[:, None] & (channel < C)[None, :]
    said = tl.load(rows + source[:, None] * C + channel[None, :], mask=there, other=0.0)
    said += tl.load(values + kind[:, None] * C + channel[None, :], mask=there, other=0.0)
    to = sums + target[:, None] * C + channel[None, :]
    tl.atomic_add(to, _relu(said), mask=there, sem="relaxed")


@triton.jit
def messages_backward(
    rows, values, ways, of_sums, of_rows, of_values, E, R, C,
    EDGES: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Add to the gradients of rows and values, which are zeros."""
    _, source, target, kind, real = _bonds(ways, E, R, EDGES)
    channel = tl.arange(0, W)
    there = real[:, None] & (channel < C)[None, :]
    of_source = source[:, None] * C + channel[None, :]
    of_kind = kind[:, None] * C + channel[None, :]
    said = tl.load(rows + of_source, mask=there, other=0.0)
    said += tl.load(values + of_kind, mask=there, other=0.0)
    given = tl.load(of_sums + target[:, None] * C + channel[None, :], mask=there, other=0.0)
    gradient = tl.where(said <= 0, 0.0, given)
    tl.atomic_add(of_rows + of_source, gradient, mask=there, sem="relaxed")
    tl.atomic_add(of_values + of_kind, gradient, mask=there, sem="relaxed")


@triton.jit
def state_messages_forward(
    rows, ends, values, before, ways, sums, states, E, R, C,
    FIRST: tl.constexpr, EDGES: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Write the states of bonds, and add ``ReLU(rows_j + state)`` to `sums`, which are zeros."""
    edge, source, target, kind, real = _bonds(ways, E, R, EDGES)
    channel = tl.arange(0, W)
    there = real[:, None] & (channel < C)[None, :]
    of_source = source[:, None] * C + channel[None, :]
    of_target = target[:, None] * C + channel[None, :]
    state = tl.load(ends + of_source, mask=there, other=0.0)
    state += tl.load(ends + of_target, mask=there, other=0.0)
    state += tl.load(values + kind[:, None] * C + channel[None, :], mask=there, other=0.0)
    state = _relu(state)
    of_edge = edge[:, None] * C + channel[None, :]
    if not FIRST:
        state += tl.load(before + of_edge, mask=there, other=0.0)
    tl.store(states + of_edge, state, mask=(edge < E)[:, None] & (channel < C)[None, :])
    said = _relu(tl.load(rows + of_source, mask=there, other=0.0) + state)
    tl.atomic_add(sums + of_target, said, mask=there, sem="relaxed")


@triton.jit
def state_messages_backward(
    rows, ends, values, states, ways, of_sums, of_states, of_rows, of_ends, of_values, of_before,
    E, R, C, FIRST: tl.constexpr, LAST: tl.constexpr, EDGES: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the states before; add to the others, which are zeros."""
    edge, source, target, kind, real = _bonds(ways, E, R, EDGES)
    channel = tl.arange(0, W)
    listed = (edge < E)[:, None] & (channel < C)[None, :]
    there = real[:, None] & listed
    of_source = source[:, None] * C + channel[None, :]
    of_target = target[:, None] * C + channel[None, :]
    of_kind = kind[:, None] * C + channel[None, :]
    of_edge = edge[:, None] * C + channel[None, :]
    said = tl.load(rows + of_source, mask=there, other=0.0)
    said += tl.load(states + of_edge, mask=there, other=0.0)
    given = tl.load(of_sums + of_target, mask=there, other=0.0)
    gradient = tl.where(said <= 0, 0.0, given)
    tl.atomic_add(of_rows + of_source, gradient, mask=there, sem="relaxed")
    if not LAST:
        gradient += tl.load(of_states + of_edge, mask=there, other=0.0)
    if not FIRST:
        tl.store(of_before + of_edge, gradient, mask=listed)
    grown = tl.load(ends + of_source, mask=there, other=0.0)
    grown += tl.load(ends + of_target, mask=there, other=0.0)
    grown += tl.load(values + of_kind, mask=there, other=0.0)
    gradient = tl.where(grown <= 0, 0.0, gradient)
    tl.atomic_add(of_ends + of_source, gradient, mask=there, sem="relaxed")
    tl.atomic_add(of_ends + of_target, gradient, mask=there, sem="relaxed")
    tl.atomic_add(of_values + of_kind, gradient, mask=there, sem="relaxed")
