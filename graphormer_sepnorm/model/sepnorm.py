"""`SepNorm` for any transformer that works on ``[N, L, D]``.

N sequences · L positions, the [CLS] token among them · D channels
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.norm_arms import NORM_KINDS

_NAME_OF = {nn.BatchNorm1d: "bn", nn.LayerNorm: "ln"}

# The parts are named as in the paper's class, so that state dicts fit in both directions. They had
# names of their own before; state dicts with those load too.
_FORMER_NAMES = {"cls_norm": "cls_norm_layer", "tok_norm": "tok_norm_layer"}


class _NoLayerNorm:
    """What stands in `SepNorm` where torch looks for the weight and the bias of a LayerNorm.

    `nn.TransformerEncoderLayer` and `nn.TransformerEncoder` have a fast path for evaluation that
    takes ``norm1.weight``, ``norm1.bias`` and ``norm1.eps`` and computes a LayerNorm, whatever
    norm1 is. They leave it where one of these overrides torch's functions, as this object does; a
    function that is given it nevertheless raises a TypeError.
    """

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        return NotImplemented


class SepNorm(nn.Module):
    """Normalises the [CLS] token and the other tokens separately (Chen et al. 2023, Eq. 5).

    A drop-in for the ``nn.LayerNorm`` of a transformer. BatchNorm on tokens normalises channels
    over all real tokens of the batch.

    Args:
        hidden_size: D, channels of a token.
        cls_norm: `nn.BatchNorm1d` or `nn.LayerNorm`, for [CLS].
        tok_norm: `nn.BatchNorm1d` or `nn.LayerNorm`, for the other tokens.
        cls_position: Where [CLS] stands on the second axis; negative counts from the end.

    Attributes:
        cls_norm_layer: The norm of [CLS].
        tok_norm_layer: The norm of the other tokens.

    Raises:
        ConfigError: If a norm is another class.
    """

    weight = bias = _NoLayerNorm()
    eps = 1e-5  # of both norms

    def __init__(
        self,
        hidden_size: int,
        cls_norm: type[nn.Module] = nn.BatchNorm1d,
        tok_norm: type[nn.Module] = nn.LayerNorm,
        cls_position: int = 0,
    ) -> None:
        super().__init__()
        for norm in (cls_norm, tok_norm):
            if norm not in _NAME_OF:
                raise ConfigError(
                    f"SepNorm takes nn.BatchNorm1d or nn.LayerNorm, not {norm!r}: pass the class"
                )
        self.cls_position = cls_position
        self.cls_norm_layer = NORM_KINDS[_NAME_OF[cls_norm]](hidden_size)
        self.tok_norm_layer = NORM_KINDS[_NAME_OF[tok_norm]](hidden_size)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalise a batch of sequences.

        Args:
            tokens: N sequences of L tokens, ``[N, L, D]``.
            mask: bool ``[N, L]``, True for real tokens; None: all are real. The entry of [CLS] is
                not looked at.

        Returns:
            ``[N, L, D]``.

        Raises:
            DataError: In training, for BatchNorm over fewer than two sequences or tokens (with a
                mask on a CPU only).
            ConfigError: If no token stands at `cls_position`.
        """
        length = tokens.shape[1]
        position = self.cls_position
        if not -length <= position < length:
            raise ConfigError(f"cls_position {position} lies outside {length} positions")
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

    @property
    def cls_norm(self) -> nn.Module:
        """Former name of `cls_norm_layer`."""
        return self.cls_norm_layer

    @property
    def tok_norm(self) -> nn.Module:
        """Former name of `tok_norm_layer`."""
        return self.tok_norm_layer

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for former, name in _FORMER_NAMES.items():
            for key in [key for key in state_dict if key.startswith(f"{prefix}{former}.")]:
                parameter = key.removeprefix(f"{prefix}{former}.")
                state_dict[f"{prefix}{name}.{parameter}"] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *rest)
