"""How norms deep inside a model learn which tokens are padding.

A model is given the padding mask, its norms are not: they see tokens and nothing else. So every
module that takes a mask notes it while it runs (`PaddingMask.read_by`), for the norms below.

    N sequences · L positions
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from graphormer_sepnorm.errors import ConfigError

# Arguments that say which of [N, L] are real: Hugging Face's, and that of torch's own encoder.
_ARGUMENTS = ("attention_mask", "src_key_padding_mask")


class PaddingMask:
    """The padding mask of the call under way, for all norms that share this object.

    Of modules inside each other the outermost counts: further in the mask may have become something
    else, which is added to the attention scores.

    Attributes:
        real: bool ``[N, L]``, True for real tokens; None: all are, or no call is under way.
        under_way: Name of the module whose call it is; None between calls.
    """

    def __init__(self) -> None:
        self.real: Tensor | None = None
        self.under_way: str | None = None
        self.readers: list[str] = []

    def read_by(self, name: str, module: nn.Module) -> bool:
        """Note the mask whenever a module is called; return whether it takes one at all."""
        parameters = list(inspect.signature(module.forward).parameters)
        argument = next((one for one in _ARGUMENTS if one in parameters), None)
        if argument is None:
            return False
        reader = _Reader(self, name or "the model", argument, parameters.index(argument))
        module.register_forward_pre_hook(reader.begin, with_kwargs=True)
        module.register_forward_hook(reader.end, always_call=True)  # after an error too
        self.readers.append(reader.name)
        return True

    def of(self, tokens: Tensor) -> Tensor | None:
        """Return the mask for tokens ``[N, L, D]``.

        Raises:
            ConfigError: If no module that takes a mask is running, or the mask is of other tokens.
        """
        if self.under_way is None:
            raise ConfigError(
                "BatchNorm over tokens was called where it cannot know the padding, outside of "
                f"{_few(self.readers)}: turn gradient checkpointing off, or call one of these"
            )
        if self.real is not None and self.real.shape != tokens.shape[:2]:
            raise ConfigError(
                f"{self.under_way} was given a padding mask of {list(self.real.shape)}, and "
                f"inside of it BatchNorm met {list(tokens.shape[:2])} tokens: leave these norms "
                "out (where=), or replace the norms of each encoder by itself"
            )
        return self.real


class _Reader:
    """The hooks of one module. An object, not a closure, so that they are copied with the model."""

    def __init__(self, padding: PaddingMask, name: str, argument: str, place: int) -> None:
        self.padding, self.name, self.argument, self.place = padding, name, argument, place

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.padding.under_way is not None:
            return
        given = args[self.place] if self.place < len(args) else kwargs.get(self.argument)
        if given is not None and not (isinstance(given, Tensor) and given.dim() == 2):
            if module.training:
                shape = list(given.shape) if isinstance(given, Tensor) else type(given).__name__
                raise ConfigError(
                    f"{self.name} was given the {self.argument} {shape}, from which BatchNorm over "
                    "tokens cannot tell the padding: turn gradient checkpointing off, or call the "
                    "model with a mask [N, L]"
                )
            given = None  # in evaluation nobody looks
        self.padding.real = None if given is None else self.real_tokens(given)
        self.padding.under_way = self.name

    def end(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self.padding.under_way == self.name:
            self.padding.real = self.padding.under_way = None

    def real_tokens(self, given: Tensor) -> Tensor:
        """Hugging Face marks real tokens by 1; torch padding by True, or by minus infinity."""
        if self.argument == "attention_mask":
            return given != 0
        return ~given if given.dtype == torch.bool else given != float("-inf")


def _few(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} of its parts"
