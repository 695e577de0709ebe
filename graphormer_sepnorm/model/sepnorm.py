"""`SepNorm` for any transformer that works on ``[N, L, D]``, and for graphs as packed rows.

N sequences · L positions, the [CLS] token among them · R rows of graphs · D channels
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.model.norms import NORM_KINDS

if TYPE_CHECKING:
    from graphormer_sepnorm.model.padding import PaddingMask

_NAME_OF: dict[Any, str] = {nn.BatchNorm1d: "bn", nn.LayerNorm: "ln"}
_STATE = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


class _NoLayerNorm:
    """What stands in `SepNorm` where torch looks for the weight and the bias of a LayerNorm.

    torch's encoders have a fast path for evaluation that takes ``norm1.weight``, ``norm1.bias`` and
    ``norm1.eps`` and computes a LayerNorm, whatever norm1 is. They leave it where one of these
    overrides torch's functions, as this object does; any other function raises a TypeError.
    """

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        return NotImplemented


def norm_kind(norm: str | type[nn.Module]) -> str:
    """Return the name of a kind of norm, given that or a class of torch.

    Raises:
        ConfigError: There is no such kind.
    """
    kind = norm if isinstance(norm, str) else _NAME_OF.get(norm)
    if kind not in NORM_KINDS:
        kinds = ", ".join(f"'{kind}'" for kind in NORM_KINDS)
        raise ConfigError(
            f"a norm is nn.BatchNorm1d or nn.LayerNorm, or its name ({kinds}), not {norm!r}: pass "
            "the class or the name"
        )
    return kind


class TokenNorm(nn.Module):
    """A norm of all tokens ``[N, L, D]`` in the place of an ``nn.LayerNorm``.

    Args:
        hidden_size: D, channels of a token.
        eps: Of its norms.

    Attributes:
        padding: Where to find the padding mask if none is given (`replace_norms` sets it).
    """

    weight = bias = _NoLayerNorm()
    padding: PaddingMask | None = None

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.hidden_size, self.eps = hidden_size, eps

    def extra_repr(self) -> str:
        """What ``print`` shows with the branches."""
        return f"{self.hidden_size}, eps={self.eps:g}"

    def _branch(self, norm: str | type[nn.Module]) -> nn.Module:
        branch = NORM_KINDS[norm_kind(norm)](self.hidden_size)
        branch.eps = self.eps  # type: ignore[assignment]
        return branch

    def _checked(self, tokens: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return the mask as bool, after a look at the shapes."""
        if tokens.dim() not in (2, 3) or tokens.shape[-1] != self.hidden_size:
            raise DataError(
                f"tokens are of shape {list(tokens.shape)}, and must be "
                f"[N, L, {self.hidden_size}]: sequences, positions, channels; or rows "
                f"[R, {self.hidden_size}]"
            )
        if mask is None:
            return None
        if mask.is_floating_point():
            raise DataError("the mask holds floats: give bool [N, L], True for real tokens")
        # In a graph of torch.compile or torch.export this would fix the sizes.
        if not torch.compiler.is_compiling() and mask.shape != tokens.shape[:-1]:
            wanted = f"{list(tokens.shape[:-1])} for tokens {list(tokens.shape)}: [N, L] or [R]"
            raise DataError(f"the mask is of shape {list(mask.shape)}, and must be {wanted}")
        return mask != 0

    def _real(self, tokens: Tensor, mask: Tensor | None, norm: nn.Module) -> Tensor | None:
        """The mask for a norm, if there is one and it makes a difference."""
        if mask is None and self.padding is not None and norm.training:
            return None if isinstance(norm, nn.LayerNorm) else self.padding.of(tokens)
        return mask

    def _begin_as(self, norm: Any) -> Self:
        """Take the state, eps, dtype, device and mode of another norm over, in each branch."""
        self.eps = norm.eps
        for branch in self.children():
            branch.eps = norm.eps
            if norm.weight is not None:
                branch.to(norm.weight.device, norm.weight.dtype)
            for name in _STATE:
                theirs, ours = getattr(norm, name, None), getattr(branch, name, None)
                if theirs is None and ours is not None and isinstance(branch, nn.LayerNorm):
                    branch.register_parameter(name, None)
                elif theirs is not None and ours is not None:
                    ours.data.copy_(theirs.data)
                    ours.requires_grad_(theirs.requires_grad)
        return self.train(norm.training)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Load the state of a norm of torch into each branch; what it lacks is left as it is."""
        branches = dict(self.named_children())
        for name in _STATE:
            takers = [one for one in branches if getattr(branches[one], name, None) is not None]
            if f"{prefix}{name}" in state_dict and (takers or name not in ("weight", "bias")):
                value = state_dict.pop(f"{prefix}{name}")  # statistics may have no taker
                for one in takers:  # not the same tensor: assign=True makes it the parameter
                    state_dict[f"{prefix}{one}.{name}"] = value.clone()
                    if not isinstance(branches[one], nn.LayerNorm):
                        for key, own in branches[one].state_dict(prefix=f"{prefix}{one}.").items():
                            state_dict.setdefault(key, own)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class ShareNorm(TokenNorm):
    """Normalizes [CLS] and the other tokens by one norm, all alike.

    Args:
        hidden_size: D, channels of a token.
        norm: `nn.BatchNorm1d` (``"bn"``) or `nn.LayerNorm` (``"ln"``).
        eps: Added to the variance.

    Attributes:
        norm_layer: The norm of all tokens.

    Raises:
        ConfigError: The norm is another.
    """

    def __init__(
        self, hidden_size: int, norm: str | type[nn.Module] = "bn", *, eps: float = 1e-5
    ) -> None:
        super().__init__(hidden_size, eps)
        self.norm_layer = self._branch(norm)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalize ``[N, L, D]``, or rows, of which no mask is needed; see `SepNorm.forward`."""
        checked = self._checked(tokens, mask)
        if tokens.dim() == 2:
            return self.norm_layer(tokens, None)
        real = self._real(tokens, checked, self.norm_layer)
        rows = self.norm_layer(tokens.flatten(0, 1), None if real is None else real.flatten())
        return rows.reshape(tokens.shape)


class SepNorm(TokenNorm):
    """Normalizes the [CLS] token and the other tokens separately (Chen et al. 2023, Eq. 5).

    A drop-in for the ``nn.LayerNorm`` of a transformer. BatchNorm on tokens normalizes channels
    over all real tokens of the batch.

    Args:
        hidden_size: D, channels of a token.
        cls_norm: `nn.BatchNorm1d` (``"bn"``) or `nn.LayerNorm` (``"ln"``), for [CLS].
        tok_norm: The same, for the other tokens.
        cls_position: Where [CLS] stands on the second axis; negative counts from the end.
        eps: Added to the variance, in both.

    Attributes:
        cls_norm_layer: The norm of [CLS], named as in the paper's class: state dicts fit both.
        tok_norm_layer: The norm of the other tokens.

    Raises:
        ConfigError: A norm is another.
    """

    def __init__(
        self,
        hidden_size: int,
        cls_norm: str | type[nn.Module] = nn.BatchNorm1d,
        tok_norm: str | type[nn.Module] = nn.LayerNorm,
        cls_position: int = 0,
        *,
        eps: float = 1e-5,
    ) -> None:
        super().__init__(hidden_size, eps)
        self.cls_position = cls_position
        self.cls_norm_layer = self._branch(cls_norm)
        self.tok_norm_layer = self._branch(tok_norm)

    def extra_repr(self) -> str:
        """What ``print`` shows with the branches."""
        return f"{super().extra_repr()}, cls_position={self.cls_position}"

    @classmethod
    def from_layer_norm(
        cls,
        norm: nn.LayerNorm,
        cls_norm: str | type[nn.Module] = nn.BatchNorm1d,
        tok_norm: str | type[nn.Module] = nn.LayerNorm,
        cls_position: int = 0,
    ) -> SepNorm:
        """Make one that begins with weight, bias and eps of a LayerNorm, in both branches.

        With LayerNorm in both it computes what `norm` does. A BatchNorm does not: it divides by
        other deviations, and its running statistics are 0 and 1 until batches have been seen.

        Args:
            norm: Over the last axis. Dtype, device, mode and what needs no gradient stay as there.
            cls_norm: For [CLS].
            tok_norm: For the other tokens.
            cls_position: Where [CLS] stands on the second axis.

        Raises:
            ConfigError: `norm` is no LayerNorm over the last axis, or another kind is asked for.
        """
        if not isinstance(norm, nn.LayerNorm) or len(norm.normalized_shape) != 1:
            what = "only an nn.LayerNorm over the last axis can be replaced"
            raise ConfigError(f"{what}, not {norm}")
        return cls(norm.normalized_shape[0], cls_norm, tok_norm, cls_position)._begin_as(norm)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalize a batch of sequences, or the nodes of graphs.

        Args:
            tokens: N sequences of L tokens, ``[N, L, D]``; or R nodes of graphs, one after the
                other as in PyG, ``[R, D]``, the virtual node of each among them.
            mask: bool ``[N, L]``, True for real tokens, or integers, 0 for padding, as Hugging
                Face's ``attention_mask``; None: all are real. The entry of [CLS] is not looked at.
                Of rows bool ``[R]``, True for virtual nodes, which are [CLS] here.

        Returns:
            The same tokens normalized, of the same shape.

        Raises:
            DataError: Tokens or mask are of another shape, or the mask of floats; in training, for
                BatchNorm over fewer than two sequences or tokens (with a mask on a CPU only).
            ConfigError: No token stands at `cls_position`.
        """
        mask = self._checked(tokens, mask)
        if tokens.dim() == 2:
            if mask is None:
                raise DataError("rows need a mask, bool [R]: True for virtual nodes, or [CLS]")
            own, others = self.cls_norm_layer(tokens, mask), self.tok_norm_layer(tokens, ~mask)
            return torch.where(mask[:, None], own, others)
        length = tokens.shape[1]
        position = self.cls_position
        if not -length <= position < length:
            raise ConfigError(f"cls_position {position} lies outside {length} positions")
        mask = self._real(tokens, mask, self.tok_norm_layer)
        # Turned until [CLS] comes first, and back: shapes that do not depend on the position let
        # torch.compile and torch.export keep the length a variable.
        if position != 0:
            tokens = tokens.roll(-position, dims=1)
            mask = None if mask is None else mask.roll(-position, dims=1)
        cls, others = tokens.split([1, length - 1], dim=1)
        real = None if mask is None else mask[:, 1:].flatten()
        cls = self.cls_norm_layer(cls.flatten(0, 1)).reshape(cls.shape)
        others = self.tok_norm_layer(others.flatten(0, 1), real).reshape(others.shape)
        tokens = torch.cat([cls, others], dim=1)
        return tokens if position == 0 else tokens.roll(position, dims=1)
