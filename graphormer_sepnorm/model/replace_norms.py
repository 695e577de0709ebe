"""`replace_norms`: SepNorm in an existing model of torch, Hugging Face or PyG.

Which norms see tokens ``[N, L, D]`` (or nodes of graphs ``[R, D]``), and which of them the same
[CLS] in every sequence, is not read from names but seen in a small forward of the model.

    N sequences · L positions · R nodes of all graphs · D channels
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.node_norms import (
    VirtualNodes,
    does_more,
    is_norm_of_nodes,
    last_of_each_graph,
    node_norm,
)
from graphormer_sepnorm.model.padding import hand_padding_on, shown
from graphormer_sepnorm.model.sepnorm import SepNorm, ShareNorm, TokenNorm, norm_kind

Where = str | Sequence[str] | Callable[[str, nn.Module], bool]

_SEQUENCES, _LENGTH = 3, 5  # of an example that is made up
_ROUNDING = 8 * torch.finfo(torch.float32).eps
_SAME_CLS = "[CLS] is the same in every sequence here and keeps LayerNorm"
_TOKENS, _NODES = "[N, L, D]", "nodes [R, D]"


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
        notes = dict.fromkeys(self.same_cls, _SAME_CLS)
        rows = [(name, arm, notes.get(name, "")) for name, arm in self.replaced.items()]
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
    virtual_nodes: Literal["last"] | Callable[..., Tensor] | None = None,
    example: Any = None,
    force: bool = False,
) -> ReplacedNorms:
    """Replace, in place, each `nn.LayerNorm` of a transformer that acts on tokens ``[N, L, D]``.

    In message passing, with `virtual_nodes`, each `nn.LayerNorm` and `nn.BatchNorm1d`, PyG's too,
    that acts on nodes ``[R, D]``.

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
        virtual_nodes: For message passing: which nodes are [CLS]. ``"last"`` of each graph, where
            PyG's `VirtualNode` puts them, if the model is called with a batch of PyG or with
            ``batch=``; or a function that takes what the model is called with and returns bool
            ``[R]``, True for virtual nodes.
        example: At least two different sequences or graphs: a tensor, a tuple of arguments, a
            mapping of keyword arguments of the model, or a batch of PyG; the first tensor one of
            sequences. None: made up, for models of Hugging Face that take ``input_ids`` or
            ``pixel_values``, and for torch's encoder and its layers.
        force: Replace subclasses of `nn.LayerNorm` that compute something else, too.

    Raises:
        ConfigError: There is nothing to replace, the example does not run or shows nothing, or the
            model works on ``[L, N, D]``. The model is then as it was.
    """
    kinds = (norm_kind(cls_norm), norm_kind(tok_norm))
    if shared and kinds[0] != kinds[1]:
        raise ConfigError(f"a shared norm is of one kind, not of '{kinds[0]}' and '{kinds[1]}'")
    norms, others = _norms_by_name(model, of_nodes=virtual_nodes is not None)
    find = last_of_each_graph if virtual_nodes == "last" else virtual_nodes
    if not (find is None or callable(find)):
        raise ConfigError(f"virtual_nodes is 'last' or a function, not {virtual_nodes!r}")
    nodes = None if find is None else VirtualNodes(model, find)
    try:
        with _nothing_changes(model):
            seen = _look(model, set(norms.values()), example, nodes or cls_position)
        kept = _kept(norms, seen, where, kinds, force, _TOKENS if nodes is None else _NODES)
    except BaseException:
        if nodes is not None:
            nodes.remove()
        raise
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
            if nodes is not None:
                new[norm] = node_norm(norm, cls_kind, tok_kind, one_for_both, nodes)
            elif one_for_both:
                new[norm] = ShareNorm(len(norm.weight), tok_kind)._begin_as(norm)
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
    padded = kinds[1] != "ln" and nodes is None
    masks = hand_padding_on(model, list(replaced)) if padded else ((), ())
    return ReplacedNorms(replaced, reasons, tuple(same_cls), *masks)


def _kept(
    norms: Mapping[str, nn.Module],
    seen: Mapping[nn.Module, _Seen],
    where: Where | None,
    kinds: tuple[str, str],
    force: bool,
    shape: str,
) -> dict[str, str]:
    """Why each norm stays as it is, by name; empty if it need not.

    Raises:
        ConfigError: All do, or the example cannot tell the first one from others.
    """
    # A norm that has two names stays one module: wanted under one of them is wanted.
    wanted = {norm for name, norm in norms.items() if where is None or _matches(name, norm, where)}
    kept = {
        name: _reason_to_keep(norm, norm in wanted, force, seen.get(norm), shape)
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
    return kept


def _norms_by_name(model: nn.Module, of_nodes: bool) -> tuple[dict[str, Any], dict[str, nn.Module]]:
    """The norms that may be replaced, under each of their names, and others; not SepNorm's."""
    norms, others, before = {}, {}, ()
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, TokenNorm):
            before += (f"{name}.",)
        elif name.startswith(before):
            continue
        elif is_norm_of_nodes(module) and (of_nodes or isinstance(module, nn.LayerNorm)):
            norms[name] = module
        elif "norm" in type(module).__name__.lower() and next(module.children(), None) is None:
            others[name] = module
        elif isinstance(module, nn.MultiheadAttention) and not (module.batch_first or of_nodes):
            raise ConfigError(
                f"{shown(name)} works on [L, N, D] and SepNorm on [N, L, D]: make the model with "
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


def _computes_more(norm: nn.Module, args: tuple[Any, ...], named: Any, found: Any) -> bool:
    """Whether a LayerNorm was called with more than tokens, or a subclass did more with them."""
    if not isinstance(norm, nn.LayerNorm):
        return does_more(norm)
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


def _reason_to_keep(norm: Any, wanted: bool, force: bool, seen: _Seen | None, shape: str) -> str:
    """Why a norm stays as it is; empty if it need not."""
    if not wanted:
        return "left out by where="
    if seen is None:
        return "not called in the example"
    if other := seen.other_shape:
        return f"acts on {other} in the example, not on {shape}"
    if norm.weight is None:
        return "has no weight that another norm could begin with"
    if isinstance(norm, nn.BatchNorm1d) and (norm.running_mean is None or norm.momentum is None):
        return "keeps no running averages"
    if seen.computes_more and not force:
        return f"{_class_of(norm)} does more than layer_norm; use force=True to replace it anyway"
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
    model: nn.Module, norms: Iterable[nn.Module], example: Any, cls: int | VirtualNodes
) -> dict[nn.Module, _Seen]:
    """Run the example; return what each norm met in it. [CLS] has a position, or is a node."""
    if example is None:
        example = _made_up(model, cls)
    named, single = isinstance(example, Mapping), not isinstance(example, tuple | list)
    args = () if named else (example,) if single else tuple(example)
    kwargs = dict(example) if named else {}
    given = (one for one in (*args, *kwargs.values()) if isinstance(one, Tensor))
    sequences = next((len(one) for one in given if one.dim()), None)
    if sequences is None and isinstance(cls, int):
        raise ConfigError(
            "example= holds no tensor: give what the model is called with; for graphs give "
            "virtual_nodes= too"
        )
    met: dict[nn.Module, _Seen] = {}

    def cls_among(tokens: Tensor) -> Tensor | None:
        if not isinstance(cls, int):
            mask = cls.of(tokens)
            return None if mask is None else tokens[mask]
        shape = tokens.shape
        if len(shape) == 3 and shape[0] == sequences and -shape[1] <= cls < shape[1]:
            return tokens[:, cls]
        return None

    def note(norm: Any, args: tuple[Any, ...], named: dict[str, Any], found: Any) -> None:
        tokens = (*args, *named.values())[0]
        seen, found_cls = met.setdefault(norm, _Seen()), cls_among(tokens)
        if found_cls is None:
            seen.other_shape = list(tokens.shape)
        else:
            values = found_cls.float()
            difference = (values - values[:1]).abs().max()
            seen.same_cls |= bool(difference <= _ROUNDING * values.abs().max())
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


def _made_up(model: nn.Module, position: int | VirtualNodes) -> Any:
    """A few random sequences with the same [CLS], for models that are known to take them."""
    if not isinstance(position, int):
        raise ConfigError("give a batch of at least two different graphs as example=")
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
