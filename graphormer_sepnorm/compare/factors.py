"""What each factor of the norms does, where the arms of a comparison form a factorial.

Arms are cells of {LayerNorm, BatchNorm} for [CLS] x the same for the atoms, each of its own, or of
{one norm shared by both, separate ones} x {LayerNorm, BatchNorm}. An effect is the mean of the
cells that have something less the mean of those that have not, for each seed that all of them have
finished; over the seeds it is treated as the difference of two arms is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphormer_sepnorm.compare.arms import NORM
from graphormer_sepnorm.compare.results_file import ArmResult, Results
from graphormer_sepnorm.compare.statistics import PairedDifference, holm, paired_difference
from graphormer_sepnorm.model.norm_arms import NORM_ALIASES

_FACTORIALS = ({"ln+ln", "ln+bn", "bn+ln", "bn+bn"}, {"shared-ln", "shared-bn", "ln+ln", "bn+bn"})
# Norms ([CLS] + atoms) without and with it; of several pairs the mean is taken, or the sum.
_EFFECTS = {
    "BatchNorm on the atoms": (("ln+ln", "bn+ln"), ("ln+bn", "bn+bn"), 2),
    "BatchNorm on [CLS]": (("ln+ln", "ln+bn"), ("bn+ln", "bn+bn"), 2),
    "interaction of the two": (("ln+bn", "bn+ln"), ("ln+ln", "bn+bn"), 1),
    "separation of LayerNorm": (("shared-ln",), ("ln+ln",), 1),
    "separation of BatchNorm": (("shared-bn",), ("bn+bn",), 1),
    "separation, mean of both": (("shared-ln", "shared-bn"), ("ln+ln", "bn+bn"), 2),
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
    cells: dict[str, dict[str, ArmResult]] = {}
    for arm in results.arms:
        options = {name: value for name, value in arm.options.items() if name != NORM}
        others = ", ".join(f"{name}={value}" for name, value in sorted(options.items()))
        cells.setdefault(others, {})[_norm(results, arm)] = arm
    factorials = {
        others: of_norm
        for others, of_norm in cells.items()
        if any(norms <= of_norm.keys() for norms in _FACTORIALS)
    }
    found = []
    for others, of_norm in factorials.items():
        for name, (without, having, pairs) in _EFFECTS.items():
            if not {*without, *having} <= of_norm.keys():
                continue
            tests = {norm: of_norm[norm].tests for norm in (*without, *having)}
            seeds = [seed for seed in results.seeds if all(seed in one for one in tests.values())]
            if seeds:
                sides = (
                    [sum(tests[norm][seed] for norm in side) / pairs for seed in seeds]
                    for side in (without, having)
                )
                title = f"{name}, {others}" if len(factorials) > 1 else name
                found.append(FactorEffect(title, paired_difference(*sides)))
    adjusted = holm([one.difference.p_value for one in found]).tolist()
    return [replace(one, holm_p=p) for one, p in zip(found, adjusted, strict=True)]


def _norm(results: Results, arm: ArmResult) -> str:
    """The norm of an arm, its own or that of all of them, without an alias."""
    name = arm.options.get(NORM) or str(results.configuration.get("model", {}).get("norm"))
    return NORM_ALIASES.get(name.lower(), name.lower())
