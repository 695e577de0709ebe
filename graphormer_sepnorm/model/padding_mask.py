"""How norms deep inside a model learn which tokens are padding.

A model is given the padding mask, its norms are not: they see tokens and nothing else. So every
module that takes a mask notes it while it runs (`PaddingMask.read_by`), for the norms below.

    N sequences · L positions
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from graphormer_sepnorm.errors import ConfigError

# Arguments that say which of [N, L] are real: Hugging Face's by 1, and those that mark padding as
# torch does.
_MARKS_REAL = "attention_mask"
_OF_DECODER = "tgt_key_padding_mask"
_ARGUMENTS = (_MARKS_REAL, "src_key_padding_mask", _OF_DECODER, "key_padding_mask", "padding_mask")
# Who takes this has a decoder inside, whose mask is not that of other parts.
_DECODERS = "decoder_attention_mask"


class PaddingMask:
    """The padding mask of the call under way, for all norms that share this object.

    Of modules inside each other the outermost counts: further in the mask may have become something
    else, which is added to the attention scores. A module around an encoder and a decoder is none
    of them: each of its parts knows which mask is its own.

    Attributes:
        real: bool ``[N, L]``, True for real tokens; None: all are, or no call is under way.
        under_way: What noted the mask of the call; None between calls.
        readers: What messages call the modules that note their mask.
    """

    def __init__(self) -> None:
        self.real: Tensor | None = None
        self.under_way: _Reader | None = None
        self.readers: list[str] = []

    def read_by(self, names: Collection[str], module: nn.Module) -> bool:
        """Note the mask whenever a module is called; return whether it takes one that is its own.

        Args:
            names: All qualified names of the module in its model.
            module: The module.
        """
        parameters = list(inspect.signature(module.forward).parameters)
        argument = _own_mask(module)
        if argument is None or any(_is_of_another(part, argument) for part in module.modules()):
            return False
        reader = _Reader(self, names, argument, parameters.index(argument))
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
                f"{self.readers[0]} and its like: turn gradient checkpointing off, or call these"
            )
        if self.real is not None and self.real.shape != tokens.shape[:2]:
            raise ConfigError(
                f"{self.under_way.name} was given a padding mask of {list(self.real.shape)}, and "
                f"inside of it BatchNorm met {list(tokens.shape[:2])} tokens: leave these norms "
                "out (where=), or replace the norms of each encoder by itself"
            )
        return self.real


class _Reader:
    """The hooks of one module. An object, not a closure, so that they are copied with the model."""

    def __init__(
        self, padding: PaddingMask, names: Collection[str], argument: str, place: int
    ) -> None:
        self.padding, self.names, self.argument, self.place = padding, names, argument, place

    @property
    def name(self) -> str:
        """What messages call the module."""
        return shown(next(iter(self.names)))

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_within(self.padding.under_way):
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
        self.padding.under_way = self

    def end(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self.padding.under_way is self:
            self.padding.real = self.padding.under_way = None

    def real_tokens(self, given: Tensor) -> Tensor:
        """Hugging Face marks real tokens by 1; torch padding by True, or by minus infinity.

        Floats of Hugging Face's argument may also be what is added to scores: 0 for real tokens and
        something negative for padding.
        """
        if self.argument == _MARKS_REAL:
            if given.is_floating_point():
                return torch.where((given > 0).any(), given > 0, given >= 0)
            return given != 0
        return ~given if given.dtype == torch.bool else given == 0

    def _is_within(self, outer: _Reader | None) -> bool:
        """Whether this module is a part of one whose call is under way.

        If it is not, that call is over: Ctrl-C ends a call without the hook at its end. (A part of
        what was interrupted cannot tell, until the whole is called again.)
        """
        return (
            outer is not None
            and outer is not self
            and any(own.startswith(tuple(map(inside, outer.names))) for own in self.names)
        )


def _own_mask(module: nn.Module) -> str | None:
    """The argument with the mask of the tokens of a module; None if there is none, or several."""
    parameters = inspect.signature(module.forward).parameters
    taken = [one for one in _ARGUMENTS if one in parameters]
    return taken[0] if len(taken) == 1 and _DECODERS not in parameters else None


def _is_of_another(part: nn.Module, argument: str) -> bool:
    """Whether a part has a decoder's mask, where the whole takes another one in this argument."""
    parameters = inspect.signature(part.forward).parameters
    return argument != _OF_DECODER and (_OF_DECODER in parameters or _DECODERS in parameters)


def shown(name: str) -> str:
    """Return what messages call the module of a qualified name."""
    return name or "the model"


def inside(name: str) -> str:
    """Return what the qualified names of all parts of a module begin with."""
    return f"{name}." if name else ""
