"""The table of a comparison in LaTeX, for a paper; needs the package booktabs."""

from __future__ import annotations

import re

from graphormer_sepnorm.compare.report.data import (
    Results,
    arm_names,
    arm_of,
    baselines_of,
    made_comparisons,
    values_of,
)
from graphormer_sepnorm.compare.report.text import (
    MINUS,
    NONE,
    arm_label,
    cautions,
    count,
    decimals_of,
    interval,
    metric_name,
    number,
    p_value,
    sign_flip,
    signed,
    spread,
)

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",  # after the end of a row it would begin an optional argument
    "]": "{]}",
    MINUS: "$-$",
    "±": r"$\pm$",
    NONE: "--",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def latex(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    return re.sub("|".join(map(re.escape, _SPECIAL)), lambda found: _SPECIAL[found.group()], text)


def to_latex(results: Results) -> str:
    """Return a table: each arm with mean and SD, difference with interval, and p-values."""
    decimals = decimals_of(results)
    of_unit = f" ({results['unit']})" if results["unit"] else ""
    comparisons = {one["arm"]: one for one in made_comparisons(results)}
    rows = []
    for name in arm_names(results):
        one = comparisons.get(name)
        test = one["test"] if one else {}
        difference = NONE
        if one:
            ends = interval(test["low"], test["high"], decimals)
            difference = f"{signed(test['mean'], decimals)} [{ends}]"
        rows.append(
            [
                arm_label(results, name),
                number(arm_of(results, name).get("parameters"), 0),
                spread(values_of(results, name, "validation"), decimals),
                spread(values_of(results, name, "test"), decimals),
                difference,
                p_value(test.get("p_value")),
                p_value(one["holm_p"]) if one else NONE,
            ]
        )
    for simple in baselines_of(results):
        ends = [number(simple[part], decimals) for part in ("validation", "test")]
        rows.append([simple["name"], NONE, *ends, NONE, NONE, NONE])
    header = ["Arm", "Parameters", f"Validation{of_unit}", f"Test{of_unit}"]
    header += [f"Difference [95 %]{of_unit}", "$p$", "$p$ (Holm)"]
    escaped = [latex(title) if "$" not in title else title for title in header]
    lines = [
        "% Needs \\usepackage{booktabs}.",
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{latex(_caption(results))}}}",
        "  \\begin{tabular}{lrrrrrr}",
        "    \\toprule",
        f"    {' & '.join(escaped)} \\\\",
        "    \\midrule",
        *(f"    {' & '.join(map(latex, row))} \\\\" for row in rows),
        "    \\bottomrule",
        "  \\end{tabular}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _caption(results: Results) -> str:
    finished = [len(values_of(results, name, "test")) for name in arm_names(results)]
    fewest, most = min(finished), max(finished)
    seeds = count(most, "seed") if fewest == most else f"{fewest} to {count(most, 'seed')}"
    text = (
        f"{metric_name(results)} on {results['dataset']} ({results['better']} is better), mean ± "
        f"SD over {seeds}; difference to {results['baseline']}, paired by seed, with its t "
        f"interval; {sign_flip(results)} p, plain and with Holm's correction."
    )
    if not results["complete"]:
        text = f"PARTIAL RESULTS. {text}"
    return " ".join([text, *cautions(results)])
