"""`SepNorm` for any transformer that works on ``[N, L, D]``.

N sequences · L positions, the [CLS] token among them · D channels
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.norm_arms import NORM_KINDS

_NAME_OF = {nn.BatchNorm1d: "bn", nn.LayerNorm: "ln"}


class SepNorm(nn.Module):
    """Normalises the [CLS] token and the other tokens separately (Chen et al. 2023, Eq. 5).

    A drop-in for the ``nn.LayerNorm`` of a transformer. BatchNorm on tokens normalises channels
    over all real tokens of the batch.

    Args:
        hidden_size: D.
        cls_norm: `nn.BatchNorm1d` or `nn.LayerNorm`, for [CLS].
        tok_norm: `nn.BatchNorm1d` or `nn.LayerNorm`, for the other tokens.
        cls_position: Where [CLS] stands on the second axis; negative counts from the end.

    Raises:
        ConfigError: If a norm is another class.
    """

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
        # Named as in the paper's class, so that its state dicts fit.
        self.cls_norm = NORM_KINDS[_NAME_OF[cls_norm]](hidden_size)
        self.tok_norm = NORM_KINDS[_NAME_OF[tok_norm]](hidden_size)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalise a batch of sequences.

        Args:
            tokens: ``[N, L, D]``.
            mask: bool ``[N, L]``, True for real tokens; None: all are real. The entry of [CLS] is
                not looked at.

        Returns:
            ``[N, L, D]``.

        Raises:
            DataError: In training, for BatchNorm over fewer than two sequences or tokens (with a
                mask on a CPU only).
            ConfigError: If no token stands at `cls_position`.
        """
        n, length, channels = tokens.shape
        if not -length <= self.cls_position < length:
            raise ConfigError(f"cls_position {self.cls_position} lies outside {length} positions")
        position = range(length)[self.cls_position]
        before, cls, after = tokens.split([position, 1, length - position - 1], dim=1)
        others = torch.cat([before, after], dim=1).reshape(-1, channels)
        real = None
        if mask is not None:
            parts = mask.split([position, 1, length - position - 1], dim=1)
            real = torch.cat([parts[0], parts[2]], dim=1).reshape(-1)
        cls = self.cls_norm(cls.reshape(n, channels))
        others = self.tok_norm(others, real)
        before, after = others.reshape(n, length - 1, channels).split(
            [position, length - position - 1], dim=1
        )
        return torch.cat([before, cls[:, None], after], dim=1)
