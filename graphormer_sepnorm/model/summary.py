"""Where the parameters of a model are."""

from __future__ import annotations

from torch import nn

from graphormer_sepnorm.formatting import aligned


def count_parameters(module: nn.Module) -> int:
    """Number of parameters that are trained."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def parameter_table(model: nn.Module) -> str:
    """Return one line per part of the model, in its own names, and one for the total."""
    parts = [(name, count_parameters(part)) for name, part in model.named_children()]
    rows = [*((name, count) for name, count in parts if count), ("total", count_parameters(model))]
    return aligned([(name, f"{count:,}") for name, count in rows], numbers_from=1)
