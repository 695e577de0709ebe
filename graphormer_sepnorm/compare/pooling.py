"""What several comparisons, or cross-validations of variants, say together: `train.py pool`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean

from graphormer_sepnorm.compare.folds import FOLDS, SUMMARY
from graphormer_sepnorm.compare.results import RESULTS, ArmResult, Results, norms_of
from graphormer_sepnorm.compare.statistics import (
    CONTRASTS,
    Pooled,
    Values,
    holm,
    log_errors,
    pooled,
)
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import require_json, write_columns
from graphormer_sepnorm.formatting import aligned, interval, listed, p_value, signed
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import METRICS
from graphormer_sepnorm.runs.directory import read_rows
from graphormer_sepnorm.runs.plan import CROSS_VALIDATION, Arm, Plan

# Of what is pooled, as it is printed and in a file.
_TITLES = (
    *("", "settings", "pairs", "change, %", "95 % interval"),
    *("sign-flip p", "Holm-adjusted p", "t-test p", "without one"),
)
_COLUMNS = (
    *("contrast", "settings", "pairs", "change_percent", "low_percent", "high_percent"),
    *("p", "holm_p", "t_p", "without_one_low", "without_one_high"),
)


def errors_of(directory: Path) -> tuple[str, Values]:
    """Return the baseline and the logarithms of test errors, by arm and by seed.

    Norms have their canonical names. Of a cross-validation it is one value, the mean over the folds
    that all arms have: folds share molecules of training, so that they are no independent runs.

    Raises:
        DataError: There is no comparison, and no cross-validation of arms, or one that cannot be
            pooled: it has several repeats, or a fold without an error.
    """
    if (results := Results.read(directory)) is not None:
        common = results.configuration.get("model", {}).get("norm")
        return _named(directory, results.arms, results.baseline, results.errors, common)
    plan = Plan.read(directory / CROSS_VALIDATION)
    if plan is None or len(plan.arms) < 2 or not (rows := read_rows(directory / FOLDS)):
        raise DataError(f"{directory} has neither {RESULTS} nor a readable {FOLDS} of several arms")
    if len(plan.seeds) > 1:
        raise DataError(
            f"{directory} has several repeats, whose folds have molecules in common: pool "
            "cross-validations of one repeat"
        )
    metric = METRICS[Task(**require_json(directory / SUMMARY)["task"]).metric]
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        value = float(row.get(f"test_{metric.name}") or "nan")
        if math.isnan(value):
            continue
        [log] = log_errors([value], higher_is_better=metric.higher_is_better).tolist()
        if math.isnan(log):
            raise DataError(
                f"{directory}: the {metric.label} of arm '{row['arm']}' in fold {row['fold']} "
                f"is {value:g}: there is no ratio of errors where one is 0"
            )
        found.setdefault(row["arm"], {})[int(row["fold"])] = log
    common = set.intersection(*({*found.get(arm.name, ())} for arm in plan.arms))
    means = {arm: {0: fmean(own[one] for one in common)} for arm, own in found.items() if common}
    return _named(directory, plan.arms, plan.baseline, means, plan.base.model.norm)


def _named(
    directory: Path, arms: Sequence[Arm | ArmResult], baseline: str, errors: Values, common: str
) -> tuple[str, Values]:
    """Call arms what they are called in all settings: by their norm, if that is all they have."""
    norms = norms_of(arms, common)
    names = {arm.name: arm.name for arm in arms} | (norms if len(norms) > 1 else {})
    if len({*names.values()}) < len(names):
        raise DataError(f"{directory}: two arms have one norm, {listed([*names.values()])}")
    return names[baseline], {names[arm]: own for arm, own in errors.items()}


def pool(directories: Sequence[Path]) -> dict[str, tuple[Pooled, float]]:
    """Pool what comparisons have found, see `pool_settings`; a DataError if one has nothing."""
    different = dict.fromkeys(one.resolve() for one in directories)
    baselines, settings = zip(*map(errors_of, different), strict=True)
    if found := pool_settings(settings, {*baselines}):
        return found
    raise DataError("these comparisons have no two arms with a seed in common")


def pool_settings(
    settings: Sequence[Values], baselines: Collection[str] = ()
) -> dict[str, tuple[Pooled, float]]:
    """Pool the contrasts of norms over settings; of other arms the changes from a baseline.

    Args:
        settings: Logarithms of errors, by arm and by seed.
        baselines: Arms that others are compared with, but for norms that contrasts found have.

    Returns:
        By name, those that are in a setting, each with its p-value by Holm.
    """
    made = {name: one for name, of in CONTRASTS.items() if (one := pooled(settings, *of[:2]))}
    known = {norm for name in made for side in CONTRASTS[name][:2] for norm in side}
    arms = dict.fromkeys(arm for errors in settings for arm in errors)
    for arm, baseline in product(arms, baselines):
        new = not {arm, baseline} <= known and f"{baseline} vs {arm}" not in made
        if new and arm != baseline and (one := pooled(settings, [baseline], [arm])):
            made[f"{arm} vs {baseline}"] = one
    adjusted = holm([one.signs_p for one in made.values()]).tolist()
    return {name: (one, p) for (name, one), p in zip(made.items(), adjusted, strict=True)}


def pooled_table(found: Mapping[str, tuple[Pooled, float]], file: Path | None = None) -> str:
    """Return what `pool` found as text, and write it to a CSV file."""
    rows, lines = [[*_TITLES]], []
    for name, (one, holm_p) in found.items():
        change, low, high = one.percent
        left = [100 * math.expm1(mean) for mean in one.without_one]
        p_values = one.signs_p, holm_p, one.p_value
        cells = [str(one.settings), str(one.pairs), signed(change, 1), interval(low, high, 1)]
        rows.append([f"  {name}", *cells, *map(p_value, p_values), interval(left[0], left[1], 1)])
        values = name, one.settings, one.pairs, change, low, high, *p_values, *left
        lines.append(["" if value != value else value for value in values])
    if file is not None:
        write_columns(file, dict(zip(_COLUMNS, zip(*lines, strict=True), strict=True)))
    return (
        f"{aligned(rows)}\n"
        "Change of the test error, each setting with the same weight. The sign-flip test exchanges "
        "the arms within each\nseed; interval and t-test use the spread within settings, of single "
        "seeds between them. A cross-validation is one\nseed. Holm: over all rows. Without one: "
        "without any one setting"
    )
