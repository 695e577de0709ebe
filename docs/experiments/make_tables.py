"""Evaluates P1, the probe of its atoms and PyG's networks by the contrasts fixed for them.

    python docs/experiments/make_tables.py docs/experiments/compare/p1
    python docs/experiments/make_tables.py docs/experiments/compare/p1/atoms.csv
    python docs/experiments/make_tables.py docs/experiments/compare/pyg.csv

From the folder of the comparisons, or a table with one error a row, it prints a table in Markdown:
changes of the error in percent with 95 % intervals, paired by table or by draw.
"""

import math
import sys
from pathlib import Path

import numpy as np
import pandas
from scipy import stats

from graphormer_sepnorm.compare.pooling import errors_of
from graphormer_sepnorm.compare.statistics import CONTRASTS, Values, holm, pooled
from graphormer_sepnorm.formatting import interval, p_value, signed

FIXED = ("SepNorm vs ShareNorm", "shared BatchNorm vs SepNorm", "separation, all six arms")
# Of PyG's networks there are three arms, so that nothing can be said of separation as such.
EXPECTED = {"p1": (27, FIXED), "atoms.csv": (27, FIXED), "pyg.csv": (8, FIXED[:2])}
SAME = math.log(1.025)  # up to which two errors are the same
HEADER = """\
| error | contrast | tables | change, % | 95 % interval | t-test p | Holm-adjusted p | sign-flip p |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"""


def errors_of_tables(source: Path) -> list[Values]:
    """Return the logarithms of errors of each table, the mean over its seeds, by arm."""
    folders = sorted(path.parent for path in source.glob("*/results.json"))
    of_seeds = [errors_of(folder)[1] for folder in folders]
    return [{a: {0: np.mean([*of.values()])} for a, of in one.items()} for one in of_seeds]


def main(source: Path) -> None:
    """Print the table."""
    if source.is_dir():
        settings = {"test MAE": errors_of_tables(source)}
    else:
        table = pandas.read_csv(source, dtype=str)
        settings = {
            str(name): [
                {row.arm: {0: math.log(float(row.error))} for row in one.itertuples()}
                for _, one in of_property.groupby("table", sort=False)
            ]
            for name, of_property in table.groupby("property", sort=False)
        }
    tables, fixed = EXPECTED[source.resolve().name]
    arms = {arm for name in fixed for side in CONTRASTS[name][:2] for arm in side}
    rows = []
    for what, values in settings.items():
        assert len(values) == tables, f"{what}: {len(values)} tables, not {tables}"
        assert all(one.get(arm) for one in values for arm in arms), "a table lacks an arm"
        for name in fixed:
            without, having, _ = CONTRASTS[name]
            one = pooled(values, without, having)
            assert one is not None
            rows.append((what, name, one, _equivalent(values, without, having)))
    adjusted = holm([one.p_value for _, _, one, _ in rows])
    print(HEADER)
    for (what, name, one, _), p in zip(rows, adjusted, strict=True):
        change, low, high = one.percent
        cells = f"{one.settings} | {signed(change, 1)} | {interval(low, high, 1)}"
        ps = " | ".join(map(p_value, (one.p_value, float(p), one.signs_p)))
        print(f"| {what} | {name} | {cells} | {ps} |")
    for what, name, _, p in rows:
        if name == FIXED[-1]:
            print(f"\n{what}, {name}: within ± 2.5 %, p {p_value(p)} (two one-sided tests)")
    if source.is_dir():
        print("\nnot fixed beforehand, t-test p without adjustment:")
        for name in [name for name in CONTRASTS if name not in fixed]:
            one = pooled(settings["test MAE"], *CONTRASTS[name][:2])
            assert one is not None
            change, low, high = (signed(value, 1) for value in one.percent)
            print(f"{name}: {change} % [{low}, {high}], p {p_value(one.p_value)}")


def _equivalent(settings: list[Values], without: tuple[str, ...], having: tuple[str, ...]) -> float:
    """Return the larger p of two one-sided t-tests that the change is within `SAME`."""
    each = [pooled([one], without, having) for one in settings]
    changes = [one.mean for one in each if one is not None]
    low = stats.ttest_1samp(changes, -SAME, alternative="greater").pvalue
    return max(low, stats.ttest_1samp(changes, SAME, alternative="less").pvalue)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
