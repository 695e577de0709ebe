"""Operations on packed rows, in C on a CPU where that can be, in torch elsewhere.

Each function chooses by itself. The two forms agree up to rounding; their dropout masks are other
samples of one distribution. A form in C keeps nothing large that backward can make again, and its
gradient cannot be differentiated: torch raises an error where that is tried.

R packed rows · C channels · K features in · N features out · E bonds · k kinds of bond
"""

from __future__ import annotations

import ctypes
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from graphormer_sepnorm.kernels.library import integers, library, point, pointers, run

LANES = 8  # kernels/vector.h
# What a thread takes at a time.
ROWS, CHANNELS, _NUMBERS = 256, 32, 1 << 16
_ROWS_OF_PRODUCT, _OUTPUTS_OF_PRODUCT = 280, 48
_WIDE = 16  # kernels/linear.c
# Larger matrices do not stay in the cache, and are what torch's libraries are made for.
_MOST_WEIGHTS = 1 << 17


def usable(rows: Tensor, channels: int = LANES) -> bool:
    """Whether the compiled functions can take `rows`, for heads of `channels` channels."""
    if torch.compiler.is_compiling() or not rows.is_cpu or rows.dtype != torch.float32:
        return False
    if library() is None or torch.is_autocast_enabled("cpu"):
        return False
    return compiled_channels(channels) > 0


def compiled_channels(channels: int) -> int:
    """Return the fewest channels that there is code for and that hold those of a head; 0: none."""
    compiled = library()
    assert compiled is not None
    return int(compiled.attention_channels(ctypes.c_int64(channels)))


def in_threads(name: str, arguments: ctypes.Structure, count: int, share: int) -> None:
    """Call a compiled function in torch's threads; see `kernels.library.run`."""
    run(name, arguments, count, share, torch.get_num_threads())


# Linear layers. A batch has a few thousand rows, another number each time, and the matrices are
# small: with AVX-512 MKL reaches half of the products' speed, and oneDNN makes a new program for
# each number of rows. Here no result depends on the number of other rows, or of threads.


class _Linear(ctypes.Structure):
    """``Linear`` of kernels/linear.c."""

    _fields_ = (
        *pointers("input", "matrix", "bias", "gradient", "packed", "output", "bias_gradient"),
        *integers("rows", "depth", "columns", "outputs", "matrix_row", "matrix_column"),
        *pointers("residual"),
        *integers("activated"),
    )


def products_usable(values: Tensor) -> bool:
    """Whether compiled matrix products can take `values`, and are faster here than torch's."""
    # First: torch.compile must not look into the library.
    return usable(values) and cast(Any, library()).products_are_fast(torch.is_grad_enabled()) == 1


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``rows @ weight.T + bias``, as `torch.nn.functional.linear`."""
    if _fits(rows, weight):
        return cast(Tensor, _LinearFunction.apply(rows, weight, bias))
    return functional.linear(rows, weight, bias)


def _fits(rows: Tensor, weight: Tensor) -> bool:
    return (
        products_usable(rows)
        and weight.dtype == torch.float32
        and weight.numel() <= _MOST_WEIGHTS
        # C would read beyond what is there; torch says what does not fit.
        and rows.dim() == 2
        and rows.shape[1] == weight.shape[1]
    )


class Linear(nn.Linear):
    """`nn.Linear` for packed rows ``[R, K]``, by `linear`."""

    def forward(self, rows: Tensor) -> Tensor:
        """Return ``[R, N]``."""
        return linear(rows, self.weight, self.bias)


def is_plain(part: nn.Module, kind: type[nn.Module] = Linear) -> bool:
    """Whether a part is of this very class, and no hook wants to see what goes in or comes out."""
    return type(part) is kind and not (part._forward_hooks or part._forward_pre_hooks)


class FeedForward(nn.Sequential):
    """A linear layer, GELU and a linear layer, of packed rows ``[R, C]``.

    Without gradients, GELU and the residual need no pass of their own on a CPU, unless a hook or
    another module in place of these wants to see what is between.
    """

    def forward(self, rows: Tensor, residual: Tensor | None = None) -> Tensor:
        """Return what the rows become, and the residual, if there is one, added: ``[R, C]``."""
        if torch.is_grad_enabled() or not self._needs_fewer_passes(rows, residual):
            return dropout(super().forward(rows), 0.0, residual)
        first, _, second = cast(Any, self)
        rows, weight = rows.contiguous(), first.weight.contiguous()
        inner = _products(rows, weight, first.bias, True, activated=True)
        return _products(inner, second.weight.contiguous(), second.bias, True, residual)

    def _needs_fewer_passes(self, rows: Tensor, residual: Tensor | None) -> bool:
        if len(self) != 3 or not all(map(is_plain, self, (Linear, nn.GELU, Linear))):
            return False
        first, gelu, second = cast(Any, self)
        return (
            gelu.approximate == "none"
            and _fits(rows, first.weight)
            and second.weight.dtype == first.weight.dtype
            and second.weight.shape == first.weight.shape[::-1]
            and (residual is None or (residual.shape, residual.dtype) == (rows.shape, rows.dtype))
        )


class _LinearFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, weight = rows.contiguous(), weight.contiguous()
        ctx.save_for_backward(rows, weight)
        return _products(rows, weight, bias, transposed=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        rows, weight = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_rows = _products(gradient, weight) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return of_rows, None, gradient.sum(0) if ctx.needs_input_grad[2] else None
        of_weight = torch.empty_like(weight)
        outputs, columns = weight.shape
        of_bias = weight.new_empty(outputs) if ctx.needs_input_grad[2] else None
        arguments = _Linear(rows=rows.shape[0], columns=columns, outputs=outputs)
        point(arguments, input=rows, gradient=gradient, output=of_weight, bias_gradient=of_bias)
        in_threads("linear_weights", arguments, outputs, _OUTPUTS_OF_PRODUCT)
        return of_rows, of_weight, of_bias


def _products(
    rows: Tensor,
    matrix: Tensor,
    bias: Tensor | None = None,
    transposed: bool = False,
    residual: Tensor | None = None,
    activated: bool = False,
) -> Tensor:
    """Return ``rows @ matrix + bias`` (or ``matrix.T``; both contiguous), GELU of it, the sum."""
    depth, columns = reversed(matrix.shape) if transposed else matrix.shape
    count = rows.shape[0]
    output = rows.new_empty(count, columns)
    bias = None if bias is None else bias.contiguous()
    residual = None if residual is None else residual.contiguous()
    arguments = _Linear(rows=count, depth=depth, columns=columns, activated=activated)
    arguments.matrix_row, arguments.matrix_column = (1, depth) if transposed else (columns, 1)
    point(arguments, input=rows, matrix=matrix, bias=bias, output=output, residual=residual)
    packed = None
    if torch.get_num_threads() > 1 and count > _ROWS_OF_PRODUCT:  # else one packs for itself
        packed = rows.new_empty(depth * -(-columns // _WIDE) * _WIDE)
        run("linear_pack", point(arguments, packed=packed), 1, 1)
    in_threads("linear_rows", arguments, count, _ROWS_OF_PRODUCT)
    return output


# Dropout, alone and on its way into the residual stream. Masks are not stored: backward makes them
# again.


class Dropout(ctypes.Structure):
    """``Dropout`` of kernels/vector.h."""

    _fields_ = (
        ("seed", ctypes.c_uint32 * 2),
        ("threshold", ctypes.c_uint32),
        ("scale", ctypes.c_float),
    )


class _DropoutAddition(ctypes.Structure):
    """``DropoutAdd`` of kernels/dropout.c."""

    _fields_ = (("dropout", Dropout), *pointers("residual", "update", "output"))


def new_dropout(probability: float) -> Dropout:
    """Sample a seed from torch's generator, so that `torch.manual_seed` decides the masks."""
    if not probability:
        return Dropout()
    seed = torch.randint(0, 1 << 32, (2,), device="cpu").tolist()
    return Dropout(
        seed=(ctypes.c_uint32 * 2)(*seed),
        threshold=round(probability * 2**32),
        scale=1 / (1 - probability),
    )


def dropout(values: Tensor, probability: float, residual: Tensor | None = None) -> Tensor:
    """Drop values with a probability (Srivastava et al. 2014); add a residual of their shape."""
    if probability and usable(values):
        return cast(Tensor, _DropoutAdd.apply(residual, values, probability))
    values = functional.dropout(values, probability)
    return values if residual is None else residual + values


class _DropoutAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor | None, update: Tensor, probability: float) -> Tensor:
        ctx.dropout = new_dropout(probability)
        return _run_dropout(ctx.dropout, residual, update)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:  # type: ignore[override]
        residual = gradient if ctx.needs_input_grad[0] else None
        return residual, _run_dropout(ctx.dropout, None, gradient), None


def _run_dropout(mask: Dropout, residual: Tensor | None, update: Tensor) -> Tensor:
    update = update.contiguous()
    output = torch.empty_like(update)
    residual = None if residual is None else residual.contiguous()
    arguments = point(_DropoutAddition(mask), residual=residual, update=update, output=output)
    in_threads("dropout_add", arguments, update.numel(), _NUMBERS)
    return output


# What attention gives, scaled by degree, and messages, in one pass.


class _Residual(ctypes.Structure):
    """``Residual`` of kernels/residual.c."""

    _fields_ = (
        *pointers("messages", "update", "log_degree", "plain", "by_degree", "output"),
        *pointers("gradient", "update_gradient", "plain_gradient", "by_degree_gradient"),
        *integers("rows", "width"),
    )


def scaled_sum(
    update: Tensor, log_degree: Tensor, plain: Tensor, by_degree: Tensor, messages: Tensor | None
) -> Tensor:
    """Return ``update * (plain + log_degree * by_degree) + messages``; no messages are zeros.

    Of rows ``[R, C]``, their constants ``log_degree [R, 1]`` and channels ``[C]``.
    """
    if messages is not None and usable(update):
        return cast(Tensor, _ScaledSum.apply(messages, update, log_degree, plain, by_degree))
    scaled = update * (plain + log_degree * by_degree)
    return scaled if messages is None else scaled + messages


class _ScaledSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, messages: Tensor, update: Tensor, *scaling: Tensor) -> Tensor:
        messages, update = messages.contiguous(), update.contiguous()
        output = torch.empty_like(update)
        arguments = point(_scaling_of(update, *scaling), messages=messages, output=output)
        in_threads("residual_forward", arguments, len(update), ROWS)
        ctx.save_for_backward(update, *scaling)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        gradient = gradient.contiguous()
        of_update, _, of_plain, of_degree = map(torch.empty_like, ctx.saved_tensors)
        arguments = _scaling_of(*ctx.saved_tensors)
        point(arguments, gradient=gradient, update_gradient=of_update)
        point(arguments, plain_gradient=of_plain, by_degree_gradient=of_degree)
        in_threads("residual_backward", arguments, len(of_plain), CHANNELS)
        return gradient, of_update, None, of_plain, of_degree


def _scaling_of(update: Tensor, log_degree: Tensor, plain: Tensor, by_degree: Tensor) -> _Residual:
    sizes = _Residual(rows=update.shape[0], width=update.shape[1])
    return point(sizes, update=update, log_degree=log_degree, plain=plain, by_degree=by_degree)


# Messages along bonds. Of their size only the states of bonds are stored.


class _Messages(ctypes.Structure):
    """``Messages`` of kernels/messages.c."""

    _fields_ = (
        *pointers("source", "target", "kind"),
        *integers("bonds", "rows", "width"),
        *pointers("values", "bond_values", "sums"),
        *pointers("sums_gradient", "values_gradient", "bond_values_gradient"),
        *pointers("ends", "before", "states", "states_gradient"),
        *pointers("ends_gradient", "before_gradient"),
    )


def message_sums(rows: Tensor, bond_values: Tensor, bonds: Tensor) -> Tensor:
    """Return ``sum_{bonds j -> i} ReLU(rows_j + bond_values_kind)`` of each row.

    Args:
        rows: What the atoms pass on, ``[R, C]``.
        bond_values: What each kind of bond adds, ``[k, C]``.
        bonds: int64 ``[3, E]``, see `GraphBatch.bonds`.
    """
    if usable(rows):
        return cast(Tensor, _MessageSums.apply(rows, bond_values, bonds))
    source, target, kind = bonds
    messages = (rows.index_select(0, source) + bond_values.index_select(0, kind)).relu()
    return _sums_at(target, messages, len(rows))


def state_message_sums(
    rows: Tensor, ends: Tensor, bond_values: Tensor, before: Tensor | None, bonds: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the sums of messages that go by the states of bonds, and these.

    The state ``s_ji`` of a bond grows by ``ReLU(ends_j + ends_i + bond_values_kind)``; then each
    row i receives ``sum_{bonds j -> i} ReLU(rows_j + s_ji)``.

    Args:
        rows: What the atoms pass on, ``[R, C]``.
        ends: What states take from the atoms at both ends, ``[R, C]``.
        bond_values: What they take from each kind of bond, ``[k, C]``.
        before: The states so far, ``[E, C]``; None: zeros.
        bonds: int64 ``[3, E]``, see `GraphBatch.bonds`.
    """
    if usable(rows):
        given = rows, ends, bond_values, before, bonds
        return cast(tuple[Tensor, Tensor], _StateMessageSums.apply(*given))
    source, target, kind = bonds
    own = target.clamp(max=len(rows) - 1)  # a bond that only fills up leads to one row more
    both = ends.index_select(0, source) + ends.index_select(0, own)
    states = (both + bond_values.index_select(0, kind)).relu()
    states = states if before is None else before + states
    return _sums_at(target, (rows.index_select(0, source) + states).relu(), len(rows)), states


def _sums_at(target: Tensor, messages: Tensor, rows: int) -> Tensor:
    """Return the sums of `messages [E, C]` at each row, ``[R, C]``."""
    # Bonds that only fill up lead to one row more.
    sums = messages.new_zeros(rows + 1, messages.shape[1])
    return sums.index_add(0, target, messages)[:-1]


def _run_messages(
    name: str, rows: Tensor, bond_values: Tensor, bonds: Tensor, **others: Tensor | None
) -> None:
    source, target, kind = bonds
    width = rows.shape[1]
    arguments = _Messages(bonds=bonds.shape[1], rows=rows.shape[0], width=width)
    point(arguments, source=source, target=target, kind=kind, values=rows, bond_values=bond_values)
    in_threads(name, point(arguments, **others), width, CHANNELS)


class _MessageSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, bond_values: Tensor, bonds: Tensor) -> Tensor:
        inputs = rows.contiguous(), bond_values.contiguous(), bonds.contiguous()
        sums = torch.zeros_like(inputs[0])
        _run_messages("messages_forward", *inputs, sums=sums)
        ctx.save_for_backward(*inputs)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        of_rows, of_bonds = (torch.zeros_like(one) for one in ctx.saved_tensors[:2])
        _run_messages(
            "messages_backward",
            *ctx.saved_tensors,
            sums_gradient=gradient.contiguous(),
            values_gradient=of_rows,
            bond_values_gradient=of_bonds,
        )
        return of_rows, of_bonds, None


class _StateMessageSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        ends: Tensor,
        bond_values: Tensor,
        before: Tensor | None,
        bonds: Tensor,
    ) -> tuple[Tensor, Tensor]:
        inputs = rows.contiguous(), bond_values.contiguous(), bonds.contiguous()
        ends, before = ends.contiguous(), None if before is None else before.contiguous()
        sums, states = torch.zeros_like(inputs[0]), rows.new_zeros(bonds.shape[1], rows.shape[1])
        own = {"ends": ends, "before": before, "sums": sums, "states": states}
        _run_messages("state_messages_forward", *inputs, **own)
        ctx.save_for_backward(*inputs, ends, states)
        ctx.first = before is None
        ctx.set_materialize_grads(False)
        return sums, states

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, of_sums: Tensor | None, of_states: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None]:
        rows, bond_values, bonds, ends, states = ctx.saved_tensors
        of_rows, of_ends, of_bonds, of_before = (
            torch.zeros_like(one) for one in (rows, ends, bond_values, states)
        )
        of_sums = torch.zeros_like(rows) if of_sums is None else of_sums.contiguous()
        of_states = None if of_states is None else of_states.contiguous()
        _run_messages(
            "state_messages_backward",
            *(rows, bond_values, bonds),
            ends=ends,
            states=states,
            sums_gradient=of_sums,
            states_gradient=of_states,
            values_gradient=of_rows,
            ends_gradient=of_ends,
            bond_values_gradient=of_bonds,
            before_gradient=of_before,
        )
        return of_rows, of_ends, of_bonds, None if ctx.first else of_before, None
