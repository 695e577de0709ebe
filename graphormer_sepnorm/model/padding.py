"""Padding masks for norms that see tokens and nothing else: taken from the calls around them.

N sequences · L positions
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from graphormer_sepnorm.errors import ConfigError

# Arguments that say which of [N, L] are real: Hugging Face's by 1, and those that mark padding as
# torch does.
_MARKS_REAL, _OF_DECODER = "attention_mask", "tgt_key_padding_mask"
_MASKS = (_MARKS_REAL, "src_key_padding_mask", _OF_DECODER, "key_padding_mask", "padding_mask")
# Who takes this has a decoder inside, whose mask is not that of other parts.
_DECODERS = "decoder_attention_mask"


def hand_padding_on(model: nn.Module, norms: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Connect norms with the modules around them that take a mask.

    Returns the outer ones of these modules, and the norms in none of them.
    """
    new = {name: model.get_submodule(name) for name in norms}
    padding, outermost, reached = PaddingMask(), [], set()
    for name, module in model.named_modules():
        within = {*module.modules()}.intersection(new.values())
        if within and (argument := _own_mask(module)):
            padding.read_by(module, shown(name), argument)
            if not within <= reached:
                outermost.append(shown(name))
            reached |= within
    for norm in reached:
        norm.padding = padding
    return tuple(outermost), tuple(name for name in norms if new[name] not in reached)


def _own_mask(module: nn.Module) -> str | None:
    """The argument with the mask of the tokens of a module; None if there is none, or several.

    A module around an encoder and a decoder has none: each of its parts knows which is its own.
    """

    def arguments(part: nn.Module) -> list[str]:
        return [*inspect.signature(part.forward).parameters]

    taken = [one for one in arguments(module) if one in _MASKS]
    if len(taken) != 1 or _DECODERS in arguments(module):
        return None
    inner = {name for part in module.modules() for name in arguments(part)}
    of_another = taken[0] != _OF_DECODER and not inner.isdisjoint((_DECODERS, _OF_DECODER))
    return None if of_another else taken[0]


class PaddingMask:
    """The padding mask of the call under way, for all norms that share this object.

    Norms see tokens and nothing else, so every module that takes a mask notes it while it runs. Of
    modules inside each other the outermost counts: further in the mask may have become something
    else, which is added to the attention scores.
    """

    def __init__(self) -> None:
        # Of [N, L] True for real tokens; None: all are, or no call is under way.
        self.real: Tensor | None = None
        self.under_way = ""  # what noted the mask of the call
        self._first = ""

    def read_by(self, module: nn.Module, name: str, argument: str) -> None:
        """Note the mask in an argument of a module of this name, whenever it is called."""
        # Partial functions, not closures, so that they are copied with the model.
        begin, end = partial(self._begin, name, argument), partial(self._end, name)
        module.register_forward_pre_hook(begin, with_kwargs=True)
        module.register_forward_hook(end, always_call=True)  # after an error too
        self._first = self._first or name

    def of(self, tokens: Tensor) -> Tensor | None:
        """Return the mask for tokens ``[N, L, D]``."""
        if not self.under_way:
            raise ConfigError(
                "BatchNorm over tokens was called where it cannot know the padding, outside of "
                f"{self._first} and its like: turn gradient checkpointing off, or call these"
            )
        if self.real is not None and self.real.shape != tokens.shape[:2]:
            raise ConfigError(
                f"{self.under_way} was given a padding mask of {list(self.real.shape)}, and "
                f"inside of it BatchNorm met {list(tokens.shape[:2])} tokens: leave these norms "
                "out (where=), or replace the norms of each encoder by itself"
            )
        return self.real

    def _begin(
        self, name: str, argument: str, module: nn.Module, args: tuple[Any, ...], kwargs: Any
    ) -> None:
        if self.under_way not in ("", name):
            return
        index = [*inspect.signature(module.forward).parameters].index(argument)
        given = args[index] if index < len(args) else kwargs.get(argument)
        if given is not None and not (isinstance(given, Tensor) and given.dim() == 2):
            if module.training:
                shape = list(given.shape) if isinstance(given, Tensor) else type(given).__name__
                raise ConfigError(
                    f"{name} was given the {argument} {shape}, from which BatchNorm over tokens "
                    "cannot tell the padding: turn gradient checkpointing off, or call the model "
                    "with a mask [N, L]"
                )
            given = None  # in evaluation nobody looks
        # Hugging Face marks real tokens by 1; torch padding by True, or by minus infinity. Floats
        # of Hugging Face's argument may also be what is added to scores: 0 for real tokens and
        # something negative for padding.
        if given is None:
            self.real = None
        elif argument != _MARKS_REAL:
            self.real = ~given if given.dtype == torch.bool else given == 0
        elif given.is_floating_point():
            self.real = torch.where((given > 0).any(), given > 0, given >= 0)
        else:
            self.real = given != 0
        self.under_way = name

    def _end(self, name: str, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self.under_way == name:
            self.real, self.under_way = None, ""


def shown(name: str) -> str:
    """What messages call the module of a qualified name."""
    return name or "the model"
