"""The table of a benchmark, for the terminal and for ``docs/experiments/performance.md``.

python -m benchmarks.report FILE.json [FILE.json ...] docs/experiments/performance.md

What stands in the document behind the line `BY_HAND` is kept: what the numbers mean.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.rounds import ratios
from benchmarks.rows import MATRIX_PRODUCT

HEADER = (
    "work",
    "threads",
    "beside",
    "times as fast",
    "seconds",
    "its seconds",
    "memory",
    "its memory",
    "of peak",
    "its share",
)
BY_HAND = "## What the numbers say"
LEGEND = """\
*Times as fast*: seconds of the other side divided by ours within the same round; median and
quartiles. *Seconds*: median of a round, ours and the other's; they change with the machine's load,
the ratios hardly. *Memory*: peak in MB; for work inside a process what the work took beyond the
loaded libraries, for whole commands all of it. *Of peak*: floating-point operations of the matrix
products in a second, as a share of what one large float32 matrix product reaches in the same
rounds, by MKL or oneDNN, whichever is faster."""


def lines_of(result: dict[str, Any]) -> list[str]:
    """Return the table in Markdown."""
    table = [list(HEADER)]
    notes = []
    for row in result["rows"]:
        table += _cells(row)
        notes += _notes(row)
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADER))]
    lines = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in table
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return [*lines, "", *dict.fromkeys(notes)]


def document(results: list[dict[str, Any]]) -> str:
    """Return what of ``docs/experiments/performance.md`` is made from results: a table for each."""
    parts = [
        "# Performance",
        "",
        "What the rows are, and how to run them: [benchmarks/README.md](../benchmarks/README.md). "
        "The tables of this page were written by `python -m benchmarks.report`.",
        "",
        LEGEND,
        "",
    ]
    for result in results:
        machine = result["machine"]
        parts += [
            f"`{result['command']}`, {machine['date']}: {machine['processor']}, "
            f"{machine['cores']} cores; {machine['system']}; {machine['packages']}. Molecules of "
            f"{result['molecules']}.",
            "",
            *lines_of(result),
            "",
        ]
    return "\n".join([*parts, ""])


def _cells(row: dict[str, Any]) -> list[list[str]]:
    ours = next((side for side in row["sides"] if side["label"] == "ours"), None)
    if ours is None:
        return []
    peak = next((side for side in row["sides"] if side["label"] == MATRIX_PRODUCT), None)
    others = [side for side in row["sides"] if side is not ours and side is not peak]
    lines = []
    for other in others or [None]:
        faster = "" if other is None else _ratio(other, ours)
        columns = [
            row["title"],
            str(row["threads"]),
            other["label"] if other else "",
            faster,
            *(_seconds(side) for side in (ours, other)),
            *(_memory(side) for side in (ours, other)),
            *(_share(side, peak) for side in (ours, other)),
        ]
        lines.append(columns)
    return lines


def _ratio(other: dict[str, Any], ours: dict[str, Any]) -> str:
    low, median, high = ratios(other["seconds"], ours["seconds"])
    return f"{median:.2f} [{low:.2f}, {high:.2f}]"


def _seconds(side: dict[str, Any] | None) -> str:
    return f"{statistics.median(side['seconds']):.3g}" if side else ""


def _memory(side: dict[str, Any] | None) -> str:
    return f"{(side['peak'] - side.get('memory_before', 0)) / 1e6:,.0f}" if side else ""


def _share(side: dict[str, Any] | None, peak: dict[str, Any] | None) -> str:
    if side is None or peak is None or "flops" not in side["facts"]:
        return ""
    # Rates: operations of a round by its seconds, against those of the matrix product.
    per_second = ratios(peak["seconds"], side["seconds"]).median
    return f"{per_second * side['facts']['flops'] / peak['facts']['flops']:.1%}"


def _notes(row: dict[str, Any]) -> list[str]:
    notes = []
    for side in row["sides"]:
        if "parameters" in side["facts"]:
            notes.append(f"- {side['label']}: {side['facts']['parameters']:,} parameters.")
        if marks := side.get("marks"):
            ends = [0.0, *(seconds for seconds, _ in marks)]
            tenths = ", ".join(f"{end - start:.1f}" for start, end in itertools.pairwise(ends))
            memory = ", ".join(f"{resident / 1e6:,.0f}" for _, resident in marks)
            notes.append(
                f"- {row['title']}: seconds for each tenth of the rows {tenths}; memory after each "
                f"{memory} MB."
            )
    return notes


def main(*arguments: str) -> None:
    """Write the document of results."""
    *sources, destination = map(Path, arguments)
    results = [json.loads(source.read_text(encoding="utf-8")) for source in sources]
    before = destination.read_text(encoding="utf-8") if destination.exists() else ""
    _, _, by_hand = before.partition(BY_HAND)
    destination.write_text(document(results) + BY_HAND + (by_hand or "\n"), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
