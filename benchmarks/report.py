"""The table of a benchmark, for the terminal and for ``docs/experiments/performance.md``.

python -m benchmarks.report FILE.json [FILE.json ...] docs/experiments/performance.md

What stands in the document behind the line `BY_HAND` is kept: what the numbers mean.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.rows import MATRIX_PRODUCT

HEADER = ("work", "threads", "compared with", "times as fast", "seconds", "its seconds", "memory",
          "its memory", "of peak", "its share")  # fmt: skip
BY_HAND = "## What the numbers say"
LEGEND = """\
*Times as fast*: seconds of the other side divided by ours within the same round; median and
quartiles. *Seconds*: median of a round, ours and the other's; they change with the machine's load,
the ratios hardly. *Memory*: peak in MB; for work inside a process what the work took beyond the
loaded libraries, for whole commands all of it. *Of peak*: floating-point operations of the matrix
products in a second, as a share of what one large float32 matrix product reaches in the same
rounds, by MKL or oneDNN, whichever is faster."""


def ratios(of: Sequence[float], to: Sequence[float]) -> tuple[float, float, float]:
    """Return lower quartile, median and upper quartile of ``of / to`` within each round.

    The speed of a shared machine changes by the minute, so that seconds of different rounds are not
    comparable.
    """
    found = [one / other for one, other in zip(of, to, strict=True)]
    found *= 2 if len(found) == 1 else 1  # one round has no spread
    low, median, high = statistics.quantiles(found, n=4, method="inclusive")
    return low, median, high


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown: names in the first column, numbers in the others."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def text_of(result: dict[str, Any]) -> str:
    """Return the table of a result, and the parameters of its networks."""
    rows = [cells for row in result["rows"] for cells in _cells(row)]
    parameters = {
        f"- {side['label']}: {side['facts']['parameters']:,} parameters."
        for row in result["rows"]
        for side in row["sides"]
        if "parameters" in side["facts"]
    }
    return "\n".join([table(HEADER, rows), "", *sorted(parameters)])


def document(results: list[dict[str, Any]]) -> str:
    """Return what of ``docs/experiments/performance.md`` is made from results: a table for each."""
    parts = [
        "# Performance",
        "What the rows are and how to run them: [benchmarks](../../benchmarks/README.md). "
        "The tables of this page were written by `python -m benchmarks.report`.",
        LEGEND,
    ]
    for result in results:
        machine = result["machine"]
        parts += [
            f"`{result['command']}`, {machine['date']}: {machine['processor']}, "
            f"{machine['cores']} cores, kernels for {machine['kernels']}; {machine['system']}; "
            f"{machine['packages']}. Molecules of {result['molecules']}.",
            text_of(result),
        ]
    return "\n\n".join([*parts, ""])


def _cells(row: dict[str, Any]) -> list[list[str]]:
    sides = {side["label"]: side for side in row["sides"]}
    ours, peak = sides.pop("ours", None), sides.pop(MATRIX_PRODUCT, None)
    if ours is None:
        return []
    return [
        [
            *(row["title"], str(row["threads"])),
            *((other["label"], _ratio(other, ours)) if other else ("", "")),
            *(f"{statistics.median(one['seconds']):.3g}" if one else "" for one in (ours, other)),
            *(_memory(one) for one in (ours, other)),
            *(_share(one, peak) for one in (ours, other)),
        ]
        for other in [*sides.values()] or [None]
    ]


def _ratio(other: dict[str, Any], ours: dict[str, Any]) -> str:
    low, median, high = ratios(other["seconds"], ours["seconds"])
    return f"{median:.2f} [{low:.2f}, {high:.2f}]"


def _memory(side: dict[str, Any] | None) -> str:
    return f"{(side['peak'] - side.get('memory_before', 0)) / 1e6:,.0f}" if side else ""


def _share(side: dict[str, Any] | None, peak: dict[str, Any] | None) -> str:
    if side is None or peak is None or "flops" not in side["facts"]:
        return ""
    # Rates: operations of a round by its seconds, against those of the matrix product.
    _, per_second, _ = ratios(peak["seconds"], side["seconds"])
    return f"{per_second * side['facts']['flops'] / peak['facts']['flops']:.1%}"


def main(*arguments: str) -> None:
    """Write the document of results."""
    *sources, destination = map(Path, arguments)
    results = [json.loads(source.read_text(encoding="utf-8")) for source in sources]
    before = destination.read_text(encoding="utf-8") if destination.exists() else ""
    _, _, by_hand = before.partition(BY_HAND)
    destination.write_text(document(results) + BY_HAND + (by_hand or "\n"), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
