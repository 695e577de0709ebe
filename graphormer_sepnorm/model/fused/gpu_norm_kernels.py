"""The norms of packed rows as GPU programs; only `gpu_norm` imports this.

Rows lie in two stretches, each with a norm of its own. The programs of a stretch share its tiles of
rows: the first pass sums over rows, the second joins what the programs of the stretch have summed,
each program for itself in the same order, and does the rows.

R rows · D channels · W: D rounded up to a power of 2 · P programs
"""

# Triton's functions are compiled from their source: names and types mean what Triton means by them.
# pyright: basic, reportMissingImports=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportIndexIssue=false, reportOptionalSubscript=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl

# Kinds of norms (`cpu_norm.kind_of`).
OF_ROWS, OF_BATCH = tl.constexpr(0), tl.constexpr(1)


@triton.jit
def _stretch(split, R, first_programs):
    """First row, end, number of this program, programs, and those of the stretch before."""
    program = tl.program_id(0)
    second = program >= first_programs
    before = tl.where(second, first_programs, 0)
    programs = tl.where(second, tl.num_programs(0) - first_programs, first_programs)
    return (
        tl.where(second, split, 0),
        tl.where(second, R, split),
        program - before,
        programs,
        before,
    )


@triton.jit
def _counted(real, row, last, tokens, MASKED: tl.constexpr):
    """Which rows enter statistics: graph tokens do, atoms where they are real."""
    counted = row < last
    if MASKED:
        is_atom = counted & (row >= tokens)
        counted = counted & (tl.load(real + (row - tokens), mask=is_atom, other=1) != 0)
    return counted


@triton.jit
def _shift(input, real, first, last, tokens, D, MASKED: tl.constexpr, W: tl.constexpr):
    """The first row of a stretch, if it counts: numbers near 0 add up with less rounding."""
    channel = tl.arange(0, W)
    counted = _counted(real, first + channel * 0, last, tokens, MASKED)
    return tl.load(input + first * D + channel, mask=counted & (channel < D), other=0.0)


@triton.jit
def _take_statistics(
    input, real, partial, split, R, first_programs, tokens, D, MASKED: tl.constexpr,
    ROWS: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    first, last, own, programs, _ = _stretch(split, R, first_programs)
    channel = tl.arange(0, W)
    shift = _shift(input, real, first, last, tokens, D, MASKED, W)
    count = 0.0
    mean = tl.zeros([W], tl.float32)
    squares = tl.zeros([W], tl.float32)
    tile = own
    while tile < tl.cdiv(last - first, ROWS):
        row = first + tile * ROWS + tl.arange(0, ROWS)
        counted = _counted(real, row, last, tokens, MASKED)
        there = counted[:, None] & (channel < D)[None, :]
        values = tl.load(input + row[:, None] * D + channel[None, :], mask=there, other=0.0)
        values = tl.where(there, values - shift[None, :], 0.0)
        number = tl.sum(counted.to(tl.float32), 0)
        of_tile = tl.sum(values, 0) / tl.maximum(number, 1.0)
        centred = tl.where(there, values - of_tile[None, :], 0.0)
        # Two means and the squares around them, joined (Chan, Golub & LeVeque 1983).
        share = number / tl.maximum(count + number, 1.0)
        distance = of_tile - mean
        mean += distance * share
        squares += tl.sum(centred * centred, 0) + distance * distance * (share * count)
        count += number
        tile += programs
    to = partial + tl.program_id(0) * 3 * D + channel
    tl.store(to, mean, mask=channel < D)
    tl.store(to + D, squares, mask=channel < D)
    tl.store(to + 2 * D, mean * 0.0 + count, mask=channel < D)


@triton.jit
def norm_statistics(
    input, real, partial, split, R, first_programs, tokens, D,
    KIND0: tl.constexpr, KIND1: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr,
    PART: tl.constexpr, MOST: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Write mean, squares around it, and count of the rows of each program, ``[P, 3, D]``."""
    if tl.program_id(0) < first_programs:
        if KIND0 == OF_BATCH:
            _take_statistics(input, real, partial, split, R, first_programs, tokens, D,
                             MASKED, ROWS, W)  # fmt: skip
    else:
        if KIND1 == OF_BATCH:
            _take_statistics(input, real, partial, split, R, first_programs, tokens, D,
                             MASKED, ROWS, W)  # fmt: skip


@triton.jit
def _join(partial, before, programs, D, PART: tl.constexpr, MOST: tl.constexpr, W: tl.constexpr):
    """Count, mean and squares around it of a whole stretch."""
    channel = tl.arange(0, W)
    count = tl.zeros([W], tl.float32)
    mean = tl.zeros([W], tl.float32)
    squares = tl.zeros([W], tl.float32)
    for start in range(0, MOST, PART):
        program = start + tl.arange(0, PART)
        there = (program < programs)[:, None] & (channel < D)[None, :]
        at = partial + (before + program)[:, None] * (3 * D) + channel[None, :]
        number = tl.load(at + 2 * D, mask=there, other=0.0)
        count += tl.sum(number, 0)
        mean += tl.sum(number * tl.load(at, mask=there, other=0.0), 0)
    count = tl.where(channel < D, count, 2.0)  # no channel there, and nothing is divided by 0
    mean = mean / count
    for start in range(0, MOST, PART):
        program = start + tl.arange(0, PART)
        there = (program < programs)[:, None] & (channel < D)[None, :]
        at = partial + (before + program)[:, None] * (3 * D) + channel[None, :]
        number = tl.load(at + 2 * D, mask=there, other=0.0)
        distance = tl.load(at, mask=there, other=0.0) - mean[None, :]
        squares += tl.sum(tl.load(at + D, mask=there, other=0.0), 0)
        squares += tl.sum(tl.where(there, distance * distance * number, 0.0), 0)
    return count, mean, squares


@triton.jit
def _over_channels(values, there, D, eps):
    """Rows around their means, and one over their deviations."""
    centred = tl.where(there, values - (tl.sum(values, 1) / D)[:, None], 0.0)
    return centred, 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / D + eps)


@triton.jit
def _do_rows(
    input, real, partial, statistics, output, weight, bias, running_mean, running_var, tracked,
    eps, momentum, split, R, first_programs, tokens, D,
    KIND: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr, PART: tl.constexpr,
    MOST: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    first, last, own, programs, before = _stretch(split, R, first_programs)
    channel = tl.arange(0, W)
    within = channel < D
    factor = tl.load(weight + channel, mask=within, other=0.0)
    offset = tl.load(bias + channel, mask=within, other=0.0)
    if KIND != OF_ROWS:
        if KIND == OF_BATCH:
            shift = _shift(input, real, first, last, tokens, D, MASKED, W)
            count, mean, squares = _join(partial, before, programs, D, PART, MOST, W)
            scale = 1.0 / tl.sqrt(squares / count + eps)
        else:
            shift = tl.load(running_mean + channel, mask=within, other=0.0)
            mean = tl.zeros([W], tl.float32)
            scale = 1.0 / tl.sqrt(tl.load(running_var + channel, mask=within, other=1.0) + eps)
            count = mean
        if own == 0:
            to = statistics + tl.where(before > 0, 4 * D, 0) + channel
            tl.store(to, shift, mask=within)
            tl.store(to + D, mean, mask=within)
            tl.store(to + 2 * D, scale, mask=within)
            tl.store(to + 3 * D, count, mask=within)
            if KIND == OF_BATCH:
                old = tl.load(running_mean + channel, mask=within, other=0.0)
                old += momentum * (mean + shift - old)
                tl.store(running_mean + channel, old, mask=within)
                old = tl.load(running_var + channel, mask=within, other=0.0)
                old += momentum * (squares / (count - 1.0) - old)
                tl.store(running_var + channel, old, mask=within)
                tl.store(tracked, tl.load(tracked) + 1)
    tile = own
    while tile < tl.cdiv(last - first, ROWS):
        row = first + tile * ROWS + tl.arange(0, ROWS)
        there = (row < last)[:, None] & within[None, :]
        places = row[:, None] * D + channel[None, :]
        values = tl.load(input + places, mask=there, other=0.0)
        if KIND == OF_ROWS:
            centred, by_row = _over_channels(values, there, D, eps)
            normal = centred * by_row[:, None]
        else:
            normal = (values - shift[None, :] - mean[None, :]) * scale[None, :]
        tl.store(output + places, normal * factor[None, :] + offset[None, :], mask=there)
        tile += programs


@triton.jit
def norm_forward(
    input, real, partial, statistics, output,
    weight0, bias0, mean0, var0, tracked0, eps0, momentum0,
    weight1, bias1, mean1, var1, tracked1, eps1, momentum1,
    split, R, first_programs, tokens, D,
    KIND0: tl.constexpr, KIND1: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr,
    PART: tl.constexpr, MOST: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Write the normalised rows; running statistics follow.

    Of a BatchNorm ``statistics [4, D]`` gets shift, mean of the shifted rows, scale and count.
    """
    if tl.program_id(0) < first_programs:
        _do_rows(input, real, partial, statistics, output, weight0, bias0, mean0, var0, tracked0,
                 eps0, momentum0, split, R, first_programs, tokens, D,
                 KIND0, MASKED, ROWS, PART, MOST, W)  # fmt: skip
    else:
        _do_rows(input, real, partial, statistics, output, weight1, bias1, mean1, var1, tracked1,
                 eps1, momentum1, split, R, first_programs, tokens, D,
                 KIND1, MASKED, ROWS, PART, MOST, W)  # fmt: skip


@triton.jit
def _load_rows(
    input, gradient, statistics, eps, row, last, before, D, KIND: tl.constexpr, W: tl.constexpr
):
    """Normalised rows, their gradients, and one over their deviations, all 0 beyond the last."""
    channel = tl.arange(0, W)
    within = channel < D
    there = (row < last)[:, None] & within[None, :]
    places = row[:, None] * D + channel[None, :]
    values = tl.load(input + places, mask=there, other=0.0)
    slope = tl.load(gradient + places, mask=there, other=0.0)
    if KIND == OF_ROWS:
        centred, by_row = _over_channels(values, there, D, eps)
        scale = by_row[:, None]
    else:
        of = statistics + tl.where(before > 0, 4 * D, 0) + channel
        shift = tl.load(of, mask=within, other=0.0)
        mean = tl.load(of + D, mask=within, other=0.0)
        centred = values - shift[None, :] - mean[None, :]
        scale = tl.load(of + 2 * D, mask=within, other=0.0)[None, :]
    return tl.where(there, centred * scale, 0.0), slope, scale, places, there


@triton.jit
def _sum_rows(
    input, gradient, statistics, partial, eps, split, R, first_programs, D,
    KIND: tl.constexpr, ROWS: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    first, last, own, programs, before = _stretch(split, R, first_programs)
    channel = tl.arange(0, W)
    of_weight = tl.zeros([W], tl.float32)
    of_bias = tl.zeros([W], tl.float32)
    tile = own
    while tile < tl.cdiv(last - first, ROWS):
        row = first + tile * ROWS + tl.arange(0, ROWS)
        normal, slope, _, _, _ = _load_rows(
            input, gradient, statistics, eps, row, last, before, D, KIND, W
        )
        of_weight += tl.sum(normal * slope, 0)
        of_bias += tl.sum(slope, 0)
        tile += programs
    to = partial + tl.program_id(0) * 2 * D + channel
    tl.store(to, of_weight, mask=channel < D)
    tl.store(to + D, of_bias, mask=channel < D)


@triton.jit
def norm_sums(
    input, gradient, statistics, partial, eps0, eps1, split, R, first_programs, tokens, D,
    KIND0: tl.constexpr, KIND1: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr,
    PART: tl.constexpr, MOST: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Write what the rows of each program add to the gradients of weight and bias, [P, 2, D]."""
    if tl.program_id(0) < first_programs:
        _sum_rows(input, gradient, statistics, partial, eps0, split, R, first_programs, D,
                  KIND0, ROWS, W)  # fmt: skip
    else:
        _sum_rows(input, gradient, statistics, partial, eps1, split, R, first_programs, D,
                  KIND1, ROWS, W)  # fmt: skip


@triton.jit
def _undo_rows(
    input, real, gradient, statistics, partial, input_gradient, weight, weight_gradient,
    bias_gradient, eps, split, R, first_programs, tokens, D,
    KIND: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr, PART: tl.constexpr,
    MOST: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    first, last, own, programs, before = _stretch(split, R, first_programs)
    channel = tl.arange(0, W)
    within = channel < D
    factor = tl.load(weight + channel, mask=within, other=0.0)
    # Another kind of norm needs the sums over all rows in one program only.
    parts = programs if KIND == OF_BATCH else tl.where(own == 0, programs, 0)
    of_weight = tl.zeros([W], tl.float32)
    of_bias = tl.zeros([W], tl.float32)
    for start in range(0, MOST, PART):
        program = start + tl.arange(0, PART)
        there = (program < parts)[:, None] & within[None, :]
        at = partial + (before + program)[:, None] * (2 * D) + channel[None, :]
        of_weight += tl.sum(tl.load(at, mask=there, other=0.0), 0)
        of_bias += tl.sum(tl.load(at + D, mask=there, other=0.0), 0)
    if own == 0:
        tl.store(weight_gradient + channel, of_weight, mask=within)
        tl.store(bias_gradient + channel, of_bias, mask=within)
    tile = own
    while tile < tl.cdiv(last - first, ROWS):
        row = first + tile * ROWS + tl.arange(0, ROWS)
        normal, slope, scale, places, there = _load_rows(
            input, gradient, statistics, eps, row, last, before, D, KIND, W
        )
        slope = slope * factor[None, :]
        if KIND == OF_ROWS:
            slope -= (tl.sum(slope, 1) / D)[:, None]
            slope -= normal * (tl.sum(slope * normal, 1) / D)[:, None]
        if KIND == OF_BATCH:
            counted = _counted(real, row, last, tokens, MASKED)
            of = statistics + tl.where(before > 0, 4 * D, 0) + channel
            share = factor / tl.load(of + 3 * D, mask=within, other=1.0)
            shared = (of_bias * share)[None, :] + normal * (of_weight * share)[None, :]
            slope -= tl.where(counted[:, None], shared, 0.0)
        tl.store(input_gradient + places, slope * scale, mask=there)
        tile += programs


@triton.jit
def norm_backward(
    input, real, gradient, statistics, partial, input_gradient,
    weight0, weight_gradient0, bias_gradient0, eps0,
    weight1, weight_gradient1, bias_gradient1, eps1,
    split, R, first_programs, tokens, D,
    KIND0: tl.constexpr, KIND1: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr,
    PART: tl.constexpr, MOST: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the rows, of weights and of biases."""
    if tl.program_id(0) < first_programs:
        _undo_rows(input, real, gradient, statistics, partial, input_gradient, weight0,
                   weight_gradient0, bias_gradient0, eps0, split, R, first_programs, tokens, D,
                   KIND0, MASKED, ROWS, PART, MOST, W)  # fmt: skip
    else:
        _undo_rows(input, real, gradient, statistics, partial, input_gradient, weight1,
                   weight_gradient1, bias_gradient1, eps1, split, R, first_programs, tokens, D,
                   KIND1, MASKED, ROWS, PART, MOST, W)  # fmt: skip
