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

# Arguments that say which of [N, L] are real: those of Hugging Face by 1, those of torch mark the
# padding. Masks of what a decoder attends to (`encoder_attention_mask`, `memory_key_padding_mask`)
# are of other tokens.
_MARK_REAL = ("attention_mask", "decoder_attention_mask")
_MARK_PADDING = (
    *("src_key_padding_mask", "tgt_key_padding_mask", "key_padding_mask"),
    "padding_mask",
)


class PaddingMask:
    """The padding mask of the call under way, for all norms that share this object.

    Of modules inside each other the outermost counts: further in the mask may have become something
    else, which is added to the attention scores. A module that takes the masks of two sequences, as
    an encoder with a decoder, is none: its parts know which is theirs.

    Attributes:
        real: bool ``[N, L]``, True for real tokens; None: all are, or no call is under way.
        under_way: Qualified name of the module whose call it is; None between calls.
        readers: Qualified names of the modules that note their mask.
        outside: What norms outside of all these met last, ``(N, L)`` by their name.
        padded: Shape of the last mask that had padding in it. Noted if there are norms outside.
    """

    def __init__(self) -> None:
        self.real: Tensor | None = None
        self.under_way: str | None = None
        self.readers: list[str] = []
        self.outside: dict[str, tuple[int, ...]] = {}
        self.padded: tuple[int, ...] | None = None

    def read_by(self, name: str, module: nn.Module) -> bool:
        """Note the mask whenever a module is called; return whether it takes one at all."""
        parameters = list(inspect.signature(module.forward).parameters)
        taken = [one for one in (*_MARK_REAL, *_MARK_PADDING) if one in parameters]
        if len(taken) != 1:
            return False
        reader = _Reader(self, name, taken[0], parameters.index(taken[0]))
        module.register_forward_pre_hook(reader.begin, with_kwargs=True)
        module.register_forward_hook(reader.end, always_call=True)  # after an error too
        self.readers.append(name)
        return True

    def outside_of_it(self, name: str) -> NormOutside:
        """Return what a norm is given in place of this that lies in none of the modules."""
        self.outside[name] = ()
        return NormOutside(self, name)

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
                f"{shown(self.under_way)} was given a padding mask of {list(self.real.shape)}, and "
                f"inside of it BatchNorm met {list(tokens.shape[:2])} tokens: leave these norms "
                "out (where=), or replace the norms of each encoder by itself"
            )
        return self.real

    def refuse_padding_outside(self) -> None:
        """Raise a ConfigError if a norm outside of all modules met tokens that have padding."""
        for name, shape in self.outside.items():
            if shape and shape == self.padded:
                raise ConfigError(
                    f"{shown(self.readers[0])} was given a padding mask of {list(shape)}, and "
                    f"BatchNorm over as many tokens in {name}, outside of it, cannot know it: give "
                    "the whole model that mask in an argument of its own named padding_mask (True "
                    "is padding) or attention_mask (1 is a token), leave the norm out (where=), or "
                    "replace the norms of each encoder by itself"
                )


class NormOutside:
    """In place of a `PaddingMask`, for a norm that no module with a mask contains.

    Its tokens have no padding, as those of an image beside a text, unless they are as many as a
    mask with padding was for.
    """

    def __init__(self, padding: PaddingMask, name: str) -> None:
        self.padding, self.name = padding, name

    def of(self, tokens: Tensor) -> None:
        """Return None for tokens ``[N, L, D]``, which are all real.

        Raises:
            ConfigError: A mask with padding was of just such tokens.
        """
        self.padding.outside[self.name] = tuple(tokens.shape[:2])
        self.padding.refuse_padding_outside()


class _Reader:
    """The hooks of one module. An object, not a closure, so that they are copied with the model."""

    def __init__(self, padding: PaddingMask, name: str, argument: str, place: int) -> None:
        self.padding, self.name, self.argument, self.place = padding, name, argument, place

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._within_another():
            return
        given = args[self.place] if self.place < len(args) else kwargs.get(self.argument)
        if given is not None and not (isinstance(given, Tensor) and given.dim() == 2):
            if module.training:
                shape = list(given.shape) if isinstance(given, Tensor) else type(given).__name__
                raise ConfigError(
                    f"{shown(self.name)} was given the {self.argument} {shape}, from which "
                    "BatchNorm over tokens cannot tell the padding: turn gradient checkpointing "
                    "off, or call the model with a mask [N, L]"
                )
            given = None  # in evaluation nobody looks
        real = None if given is None else self.real_tokens(given)
        if self.padding.outside and real is not None and not real.all():
            self.padding.padded = tuple(real.shape)
            if module.training:
                self.padding.refuse_padding_outside()
        self.padding.real, self.padding.under_way = real, self.name

    def _within_another(self) -> bool:
        """Whether this is a part of the module whose call is under way.

        Else that call is over: Ctrl-C ends one without the hooks at its end.
        """
        outer = self.padding.under_way
        return outer is not None and outer != self.name and self.name.startswith(inside(outer))

    def end(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self.padding.under_way == self.name:
            self.padding.real = self.padding.under_way = None

    def real_tokens(self, given: Tensor) -> Tensor:
        """Hugging Face marks real tokens by 1; torch padding by True, or by minus infinity."""
        if self.argument in _MARK_REAL:
            return given != 0
        return ~given if given.dtype == torch.bool else given != float("-inf")


def shown(name: str) -> str:
    """Return what messages call the module of a qualified name."""
    return name or "the model"


def inside(name: str) -> str:
    """Return what the qualified names of all parts of a module begin with."""
    return f"{name}." if name else ""


def _few(names: list[str]) -> str:
    first = shown(names[0])
    return first if len(names) == 1 else f"{first} and {len(names) - 1} other modules"
