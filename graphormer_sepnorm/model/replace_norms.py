"""`replace_norms`: SepNorm into a transformer that is there, of torch or of Hugging Face.

Which norms see tokens ``[N, L, D]``, and which of them the same [CLS] in every sequence, is not
read from names but seen in a small forward of the model.

    N sequences · L positions · D channels
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.sepnorm import SepNorm, ShareNorm, TokenNorm, norm_kind

Where = str | Sequence[str] | Callable[[str, nn.Module], bool]

_SEQUENCES, _LENGTH = 3, 5  # of an example that is made up
_ROUNDING = 8 * torch.finfo(torch.float32).eps
_SAME_CLS = "[CLS] is the same in every sequence here and keeps LayerNorm"
# Arguments that say which of [N, L] are real: Hugging Face's by 1, and those that mark padding as
# torch does.
_MARKS_REAL, _OF_DECODER = "attention_mask", "tgt_key_padding_mask"
_MASKS = (_MARKS_REAL, "src_key_padding_mask", _OF_DECODER, "key_padding_mask", "padding_mask")
# Who takes this has a decoder inside, whose mask is not that of other parts.
_DECODERS = "decoder_attention_mask"


@dataclass(frozen=True)
class ReplacedNorms:
    """What `replace_norms` did. ``print`` shows it, a norm a line.

    Attributes:
        replaced: Norm by qualified name, as ``bn+ln`` ([CLS] + tokens) or ``shared-bn``.
        kept: Why each other norm stayed, by name.
        same_cls: Those of `replaced` that met the same [CLS] in every sequence.
        mask_from: Modules whose padding mask BatchNorm over tokens is handed.
        unmasked: Norms with BatchNorm over tokens that lie in none of these: it counts every token.
    """

    replaced: dict[str, str]
    kept: dict[str, str]
    same_cls: tuple[str, ...] = ()
    mask_from: tuple[str, ...] = ()
    unmasked: tuple[str, ...] = ()

    def __str__(self) -> str:
        why = dict.fromkeys(self.same_cls, _SAME_CLS)
        rows = [(name, arm, why.get(name, "")) for name, arm in self.replaced.items()]
        rows += [(name, "kept", reason) for name, reason in self.kept.items()]
        width = max(len(name) for name, _, _ in rows)
        lines = [f"{name:<{width}}  {what:<9}  {why}".rstrip() for name, what, why in rows]
        if self.mask_from:
            lines.append(f"padding mask taken from {', '.join(self.mask_from)}")
        lines += [f"no padding mask reaches {name}: every token counts" for name in self.unmasked]
        return "\n".join(lines)


@dataclass
class _Seen:
    """What one LayerNorm met in the example."""

    other_shape: list[int] | None = None  # of an input that is not [N, L, D]
    same_cls: bool = False  # whether [CLS] was the same in every sequence
    computes_more: bool = False  # whether its output was not that of `layer_norm`


def replace_norms(
    model: nn.Module,
    cls_norm: str | type[nn.Module] = "bn",
    tok_norm: str | type[nn.Module] = "ln",
    *,
    shared: bool = False,
    where: Where | None = None,
    cls_position: int = 0,
    example: Any = None,
    force: bool = False,
) -> ReplacedNorms:
    """Replace, in place, each `nn.LayerNorm` of a transformer that acts on tokens ``[N, L, D]``.

    That of a subclass, such as timm's, is one of them if it computes on the example what
    `nn.functional.layer_norm` does and has no parameters and modules but weight and bias.

    The new norms begin with weight, bias and eps of the old, in both branches, and state dicts of
    the original model load. With ``"ln"`` and ``"ln"`` outputs are those of the original until it
    is trained. A norm that meets the same [CLS] in every sequence, as the first of most models
    does, keeps LayerNorm for it: BatchNorm would return its bias for all of them.

    To see which norms these are, the model is run once, in evaluation mode. Put an optimizer,
    `torch.compile` and DistributedDataParallel around it afterwards.

    Args:
        model: Changed in place. Its [CLS] is expected at `cls_position` of every sequence.
        cls_norm: For [CLS]: ``"bn"``, ``"ln"`` or the class of torch.
        tok_norm: For the other tokens. BatchNorm leaves out the padding that the
            ``attention_mask`` of a call tells (1 is a token), or ``padding_mask`` and torch's
            ``src_key_padding_mask`` and its like (True is padding), wherever in the model one of
            them is taken.
        shared: One norm for [CLS] and tokens, of the kind that both arguments name.
        where: The norms to replace, of those that can be: a pattern of qualified names
            (``"encoder.*"``), several, or a function of name and module. None: all.
        cls_position: Where [CLS] stands; negative counts from the end.
        example: At least two different sequences: a tensor, a tuple of arguments or a mapping of
            keyword arguments of the model, the first tensor one of sequences. None: made up, for
            models of Hugging Face that take ``input_ids`` or ``pixel_values``, and for torch's
            encoder and its layers.
        force: Replace subclasses of `nn.LayerNorm` that compute something else, too.

    Raises:
        ConfigError: There is nothing to replace, the example does not run or shows nothing, or the
            model works on ``[L, N, D]``. The model is then as it was.
    """
    kinds = (norm_kind(cls_norm), norm_kind(tok_norm))
    if shared and kinds[0] != kinds[1]:
        raise ConfigError(f"a shared norm is of one kind, not of '{kinds[0]}' and '{kinds[1]}'")
    norms, others = _norms_by_name(model)
    with _nothing_changes(model):
        seen = _look(model, set(norms.values()), example, cls_position)
    # A norm that has two names stays one module: wanted under one of them is wanted.
    wanted = {norm for name, norm in norms.items() if where is None or _matches(name, norm, where)}
    kept = {
        name: _reason_to_keep(norm, norm in wanted, force, seen.get(norm))
        for name, norm in norms.items()
    }
    if all(kept.values()):
        name, reason = next(iter(kept.items()))
        raise ConfigError(f"no norm can be replaced; {name}, for one: {reason}")
    met = [one.same_cls for one in seen.values() if not one.other_shape]
    if kinds[0] != "ln" and all(met):
        raise ConfigError(
            "[CLS] is the same in every sequence of the example, in all norms, so none can be told "
            "from the first one: give an example= of at least two different sequences, or, in a "
            "causal model, the cls_position= of a token that sees the others (-1)"
        )

    new: dict[nn.Module, TokenNorm] = {}
    replaced, same_cls = {}, []
    for name, norm in norms.items():
        if kept[name]:
            continue
        (cls_kind, tok_kind), one_for_both = kinds, shared
        if seen[norm].same_cls and cls_kind != "ln":
            cls_kind, one_for_both = "ln", False
            same_cls.append(name)
        replaced[name] = f"shared-{tok_kind}" if one_for_both else f"{cls_kind}+{tok_kind}"
        if norm not in new:
            if one_for_both:
                new[norm] = ShareNorm.from_layer_norm(norm, tok_kind)
            else:
                new[norm] = SepNorm.from_layer_norm(norm, cls_kind, tok_kind, cls_position)
        model.set_submodule(name, new[norm])
    for module in model.modules():
        # Encoders of torch ask only the norms of the first layer, which may have been left out,
        # whether nested tensors will do for all.
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor &= set(new.values()).isdisjoint(module.modules())
    reasons = {name: reason for name, reason in kept.items() if reason}
    for name, norm in others.items():
        reasons[name] = f"{_class_of(norm)} is no nn.LayerNorm over the last axis"
    masks = _hand_padding_on(model, list(replaced)) if kinds[1] != "ln" else ((), ())
    return ReplacedNorms(replaced, reasons, tuple(same_cls), *masks)


def _norms_by_name(model: nn.Module) -> tuple[dict[str, nn.LayerNorm], dict[str, nn.Module]]:
    """The LayerNorms, under each of their names, and other norms; not SepNorm's."""
    norms, others, before = {}, {}, ()
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, TokenNorm):
            before += (f"{name}.",)
        elif name.startswith(before):
            continue
        elif isinstance(module, nn.LayerNorm) and len(module.normalized_shape) == 1:
            norms[name] = module
        elif "norm" in type(module).__name__.lower() and next(module.children(), None) is None:
            others[name] = module
        elif isinstance(module, nn.MultiheadAttention) and not module.batch_first:
            raise ConfigError(
                f"{_shown(name)} works on [L, N, D] and SepNorm on [N, L, D]: make the model with "
                "batch_first=True"
            )
    if "" in norms:
        raise ConfigError(f"{_class_of(model)} is a norm: SepNorm.from_layer_norm makes one of it")
    if not norms:
        raise ConfigError(
            f"{type(model).__name__} has no nn.LayerNorm over the last axis to replace: they are "
            "of other classes, or have been replaced before"
        )
    return norms, others


def _matches(name: str, norm: nn.Module, where: Where) -> bool:
    if callable(where):
        return where(name, norm)
    patterns = [where] if isinstance(where, str) else where
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _class_of(norm: nn.Module) -> str:
    """Name a class, with its module unless that is torch's: timm has a LayerNorm of its own."""
    kind = type(norm)
    own = kind.__module__.startswith("torch.")
    return kind.__name__ if own else f"{kind.__module__}.{kind.__name__}"


def _computes_more(norm: nn.LayerNorm, args: tuple[Any, ...], named: Any, found: Any) -> bool:
    """Whether a LayerNorm was called with more than tokens, or a subclass did more with them."""
    if len(args) != 1 or named:
        return True
    if type(norm).forward is nn.LayerNorm.forward:
        return False
    own = {**dict(norm.named_parameters()), **dict(norm.named_buffers())}
    if own.keys() - {"weight", "bias"} or next(norm.children(), None) is not None:
        return True
    tokens, shape = args[0], norm.normalized_shape
    if not isinstance(found, Tensor) or found.shape != tokens.shape or tokens.shape[-1:] != shape:
        return True
    dtype = torch.promote_types(tokens.dtype, torch.float32)
    weight, bias = (None if one is None else one.to(dtype) for one in (norm.weight, norm.bias))
    wanted = nn.functional.layer_norm(tokens.to(dtype), shape, weight, bias, norm.eps)
    allowed = 16 * torch.finfo(found.dtype).eps * wanted.abs().max()
    return not bool((found.to(dtype) - wanted).abs().max() <= allowed)


def _reason_to_keep(norm: nn.LayerNorm, wanted: bool, force: bool, seen: _Seen | None) -> str:
    """Why a norm stays as it is; empty if it need not."""
    if not wanted:
        return "left out by where="
    if seen is None:
        return "not called in the example"
    if shape := seen.other_shape:
        return f"acts on {shape} in the example, not on [N, L, D]"
    if norm.weight is None:
        return "has no weight that another norm could begin with"
    if seen.computes_more and not force:
        return f"{_class_of(norm)} does more than layer_norm; force=True replaces it all the same"
    return ""


@contextmanager
def _nothing_changes(model: nn.Module) -> Iterator[None]:
    """Leave modes, gradients and random states as they are; in between the model evaluates."""
    modes = {module: module.training for module in model.modules()}
    devices = {p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=list(devices)):
            model.eval()
            yield
    finally:
        for module, training in modes.items():
            module.training = training


def _look(
    model: nn.Module, norms: Iterable[nn.Module], example: Any, position: int
) -> dict[nn.Module, _Seen]:
    """Run the example; return what each LayerNorm met in it."""
    if example is None:
        example = _made_up(model, position)
    named = isinstance(example, Mapping)
    args = () if named else (example,) if isinstance(example, Tensor) else tuple(example)
    kwargs = dict(example) if named else {}
    given = (one for one in (*args, *kwargs.values()) if isinstance(one, Tensor))
    first = next((one for one in given if one.dim()), None)
    if first is None:
        raise ConfigError("example= holds no tensor: give what the model is called with")
    met: dict[nn.Module, _Seen] = {}

    def note(norm: Any, args: tuple[Any, ...], named: dict[str, Any], found: Any) -> None:
        tokens = (*args, *named.values())[0]
        seen, shape = met.setdefault(norm, _Seen()), list(tokens.shape)
        if len(shape) == 3 and shape[0] == len(first) and -shape[1] <= position < shape[1]:
            cls = tokens[:, position].float()
            seen.same_cls |= bool((cls - cls[:1]).abs().max() <= _ROUNDING * cls.abs().max())
        else:
            seen.other_shape = shape
        seen.computes_more |= _computes_more(norm, args, named, found)

    hooks = [norm.register_forward_hook(note, with_kwargs=True) for norm in norms]
    try:
        model(*args, **kwargs)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(
            f"{type(model).__name__} did not run on the example, which shows what its norms meet "
            f"({reason}): give one that does, example="
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    return met


def _made_up(model: nn.Module, position: int) -> Any:
    """A few random sequences with the same [CLS], for models that are known to take them."""
    parameter = next(model.parameters(), torch.empty(0))
    random = torch.Generator().manual_seed(0)
    layer = model.layers[0] if isinstance(model, nn.TransformerEncoder) else model
    if isinstance(layer, nn.TransformerEncoderLayer):
        tokens = torch.randn(_SEQUENCES, _LENGTH, layer.self_attn.embed_dim, generator=random)
        _repeat_cls(tokens, position)
        return tokens.to(parameter)
    config: Any = getattr(model, "config", None)
    takes = getattr(model, "main_input_name", None)
    with suppress(AttributeError):
        if takes == "input_ids":
            ids = torch.randint(config.vocab_size - 1, (_SEQUENCES, _LENGTH), generator=random)
            padding = getattr(config, "pad_token_id", None)
            if padding is not None:
                ids += ids >= padding  # any token but this
            _repeat_cls(ids, position)
            return {takes: ids.to(parameter.device)}
        if takes == "pixel_values":
            size = config.image_size
            height, width = (size, size) if isinstance(size, int) else size
            images = torch.randn(_SEQUENCES, config.num_channels, height, width, generator=random)
            return {takes: images.to(parameter)}
    raise ConfigError(
        f"it is not known what {type(model).__name__} is called with: give an example= of at least "
        "two different sequences"
    )


def _repeat_cls(tokens: Tensor, position: int) -> None:
    """Give all sequences ``[N, L, ...]`` the [CLS] of the first, in place."""
    if not -_LENGTH <= position < _LENGTH:
        raise ConfigError(
            f"cls_position {position} lies outside the {_LENGTH} positions of an example that is "
            "made up: give an example= of sequences that are long enough"
        )
    tokens[:, position] = tokens[0, position].clone()


def _hand_padding_on(model: nn.Module, norms: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Connect norms with the modules around them that take a mask.

    Returns the outer ones of these modules, and the norms in none of them.
    """
    new = {name: model.get_submodule(name) for name in norms}
    padding, outermost, reached = PaddingMask(), [], set()
    for name, module in model.named_modules():
        within = {*module.modules()}.intersection(new.values())
        if within and (argument := _own_mask(module)):
            padding.read_by(module, _shown(name), argument)
            if not within <= reached:
                outermost.append(_shown(name))
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


def _shown(name: str) -> str:
    """What messages call the module of a qualified name."""
    return name or "the model"
