"""The effects of factors, where the arms of a comparison form a factorial of the norms.

Arms are cells of a factorial if they are {LayerNorm, BatchNorm} for [CLS] x the same for the atoms,
each of its own, or {one norm shared by both, separate ones} x {LayerNorm, BatchNorm}. An effect is
the mean of the cells that have something less the mean of those that have not, for each seed that
all of them have finished; over the seeds it is treated as the difference of two arms is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphormer_sepnorm.compare.arms import NORM
from graphormer_sepnorm.compare.results import ArmResult, Results
from graphormer_sepnorm.compare.statistics import PairedDifference, holm, paired_difference
from graphormer_sepnorm.model.config import NORM_ALIASES

_FACTORIALS = ({"ln+ln", "ln+bn", "bn+ln", "bn+bn"}, {"shared-ln", "shared-bn", "ln+ln", "bn+bn"})
_SHARED, _SEPARATE = ("shared-ln", "shared-bn"), ("ln+ln", "ln+bn", "bn+ln", "bn+bn")
# Norms ([CLS] + atoms) without and with it, and what the difference of their means is multiplied
# by: an interaction is a difference of effects, twice that of means. Of all six arms half of [CLS]
# and half of the atoms have BatchNorm on both sides, so that separation is what differs.
_EFFECTS = {
    "BatchNorm on the atoms": (("ln+ln", "bn+ln"), ("ln+bn", "bn+bn"), 1),
    "BatchNorm on [CLS]": (("ln+ln", "ln+bn"), ("bn+ln", "bn+bn"), 1),
    "interaction of the two": (("ln+bn", "bn+ln"), ("ln+ln", "bn+bn"), 2),
    "separation of LayerNorm": (("shared-ln",), ("ln+ln",), 1),
    "separation of BatchNorm": (("shared-bn",), ("bn+bn",), 1),
    "separation, the same kind on both": (_SHARED, ("ln+ln", "bn+bn"), 1),
    "separation, all six arms": (_SHARED, _SEPARATE, 1),
}


@dataclass(frozen=True)
class FactorEffect:
    """The effect of a factor on the test metric.

    Attributes:
        name: Of the effect; with the other options of its arms, if there are several factorials.
        difference: With it less without it, paired by seed.
        holm_p: Its p-value, adjusted for all effects.
    """

    name: str
    difference: PairedDifference
    holm_p: float = 1.0


def factor_effects(results: Results) -> list[FactorEffect]:
    """Return the effects of all factorials among the arms; empty if they form none.

    Arms are of one factorial if they have the same options but for the norm. An effect is left out
    if no seed is finished under all arms that it is taken from.
    """
    common = results.configuration.get("model", {}).get("norm")
    cells: dict[str, dict[str, ArmResult]] = {}
    for arm in results.arms:
        options = {name: value for name, value in arm.options.items() if name != NORM}
        others = ", ".join(f"{name}={value}" for name, value in sorted(options.items()))
        norm = str(arm.options.get(NORM) or common).lower()
        cells.setdefault(others, {})[NORM_ALIASES.get(norm, norm)] = arm
    factorials = {
        others: of_norm
        for others, of_norm in cells.items()
        if any(norms <= of_norm.keys() for norms in _FACTORIALS)
    }
    found = []
    for others, of_norm in factorials.items():
        for name, difference in norm_effects({n: arm.tests for n, arm in of_norm.items()}).items():
            title = f"{name}, {others}" if len(factorials) > 1 else name
            found.append(FactorEffect(title, difference))
    adjusted = holm([one.difference.p_value for one in found]).tolist()
    return [replace(one, holm_p=p) for one, p in zip(found, adjusted, strict=True)]


def norm_effects(values: Mapping[str, Mapping[int, float]]) -> dict[str, PairedDifference]:
    """Return the effects of BatchNorm and of separation, by name, as far as the norms allow.

    Args:
        values: A metric by canonical name of the norm, and by seed. The seeds that all norms of an
            effect have are taken.
    """
    found = {}
    for name, (without, having, times) in _EFFECTS.items():
        if not {*without, *having} <= values.keys():
            continue
        seeds = [s for s in values[without[0]] if all(s in values[n] for n in (*without, *having))]
        if seeds:
            sides = (
                [times * sum(values[norm][seed] for norm in side) / len(side) for seed in seeds]
                for side in (without, having)
            )
            found[name] = paired_difference(*sides)
    return found
