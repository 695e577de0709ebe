"""A data report as text: at most about 30 lines of 80 columns, what is unremarkable in one line."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphormer_sepnorm.datasets.user_table.checks import SameMolecule, TargetReport
from graphormer_sepnorm.datasets.user_table.report import DataReport
from graphormer_sepnorm.datasets.user_table.rows import InvalidRow
from graphormer_sepnorm.formatting import in_a_line, listed, shortened
from graphormer_sepnorm.tables.columns import parse_class, readable

_WIDTH = 80
_INDENT = 12
_TARGETS = 12
_WARNINGS = 4
_EXAMPLES = 2
_SPLIT_WORDS = {"train": "training", "validation": "validation", "test": "test"}


def report_text(report: DataReport) -> str:
    """Return the report for people."""
    lines = [*_data(report)]
    for note in report.notes:
        lines += _entry("read", note)
    if report.unread:
        lines += _entry("not read", listed(report.unread))
    sizes = ", ".join(f"{len(part):,} {_SPLIT_WORDS[name]}" for name, part in report.splits.items())
    lines += _entry("split", f"{report.split}: {sizes}")
    low, mean, high = report.atoms
    lines += _entry("atoms", f"{low} to {high} in a molecule, {mean:.1f} on average")
    lines += _label_cells(report)
    lines += _classes(report)
    lines += _bounds(report)
    lines += _duplicates(report)
    lines += _leakage(report)
    shown = report.warnings[:_WARNINGS]
    for warning in shown:
        lines += _entry("warning", warning)
    if len(report.warnings) > len(shown):
        lines += _entry("", f"and {len(report.warnings) - len(shown)} more warnings")
    lines.append("")
    lines += _targets(report)
    # A column's name may hold bytes that are no text.
    return "\n".join(lines).encode("utf-8", "backslashreplace").decode()


def _entry(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        in_a_line(text),
        _WIDTH,
        initial_indent=f"{label:<{_INDENT}}",
        subsequent_indent=" " * _INDENT,
        break_on_hyphens=False,
    )


def _data(report: DataReport) -> Iterator[str]:
    files = ", ".join(Path(file).name for file in report.files)
    unusable = len(report.invalid)
    how_many = f"{report.valid:,} of {report.rows:,}" if unusable else f"all {report.rows:,}"
    yield from _entry("data", f"{files}: {how_many} rows can be used")
    if not unusable:
        return
    reasons = ", ".join(f"{count:,} {kind}" for kind, count in report.reasons.items())
    yield from _entry("left out", f"{reasons}; {_first(report, report.invalid[0])}")


def _first(report: DataReport, row: InvalidRow) -> str:
    file = f"{Path(row.file).name}, " if len(report.files) > 1 else ""
    return f"the first: {file}{row.place}: {shortened(row.reason, 160)}"


def _label_cells(report: DataReport) -> Iterator[str]:
    """Labels that cannot be used, of rows that can."""
    if not report.cells:
        return
    counts = Counter(readable(cell.column) for cell in report.cells)
    of = listed([f"{count:,} of {name!r}" for name, count in counts.most_common()], most=6)
    used = "in rows that are used for their other labels"
    yield from _entry("unusable", f"{of}, {used}; {_first(report, report.cells[0])}")


def _classes(report: DataReport) -> Iterator[str]:
    if report.words and report.kind == "binary":
        words = sorted({word for words in report.words.values() for word in words}, key=parse_class)
        said = ", ".join(f"{word} is {parse_class(word):.0f}" for word in words)
        yield from _entry("classes", said)


def _bounds(report: DataReport) -> Iterator[str]:
    shown = [
        f"{name} {above:,} at least (>) and {below:,} at most (<)"
        for name, (above, below) in report.bounds.items()
    ]
    if shown:
        text = f"{'; '.join(shown[:2])}{'; ...' if len(shown) > 2 else ''}"
        yield from _entry(
            "bounds", f"{text}: learned from one side, left out of all metrics, missing below"
        )


def _duplicates(report: DataReport) -> Iterator[str]:
    found = report.duplicates
    if not found.molecules:
        yield from _entry("duplicates", "none")
        return
    plural = "" if found.molecules == 1 else "s"
    text = f"{found.molecules:,} molecule{plural} in {found.rows:,} rows"
    if not found.conflicting:
        yield from _entry("duplicates", f"{text}, their labels agree")
        return
    shown = "; ".join(
        _same(same, files=len(report.files) > 1)
        for same in found.examples[: min(_EXAMPLES, found.conflicting)]
    )
    yield from _entry(
        "duplicates", f"{text}; the labels of {found.conflicting:,} differ, for example {shown}"
    )


def _same(same: SameMolecule, files: bool) -> str:
    """Where a molecule stands and how it is labelled there."""
    pairs = list(zip(same.rows, same.labels, strict=True))
    shown = [
        f"{f'{_SPLIT_WORDS[split]} ' if files else ''}row {row}: "
        + "/".join("-" if label is None else f"{label:.4g}" for label in labels[:3])
        for (split, row), labels in pairs[:3]
    ]
    rest = f", and {len(pairs) - 3} more" if len(pairs) > 3 else ""
    return f"{shortened(same.smiles)} ({', '.join(shown)}{rest})"


def _leakage(report: DataReport) -> Iterator[str]:
    leaks = [leak for leak in report.leakage if leak.molecules]
    if leaks:
        pairs = ", ".join(
            f"{leak.molecules:,} in {_pair(leak.splits)} "
            f"(for example {shortened(leak.examples[0])})"
            for leak in leaks
        )
        text = f"molecules in two splits, which makes the test look too good: {pairs}"
    else:
        text = "no molecule is in two splits"
    shared = [leak for leak in report.leakage if leak.scaffolds]
    if shared:
        pairs = ", ".join(f"{leak.scaffolds:,} in {_pair(leak.splits)}" for leak in shared)
        text += f"; ring scaffolds in two splits: {pairs}"
    elif all(leak.scaffolds == 0 for leak in report.leakage):
        text += ", no ring scaffold either" if not leaks else "; no ring scaffold is"
    yield from _entry("leakage", text)


def _pair(splits: tuple[str, str]) -> str:
    return " and ".join(_SPLIT_WORDS[split] for split in splits)


def _targets(report: DataReport) -> Iterator[str]:
    """One line for each split of the only target; of several, for the training labels of each."""
    shown = report.targets[:_TARGETS]
    binary, one = report.kind == "binary", len(report.targets) == 1
    rows = [(_title(target), target.splits["train"]) for target in shown]
    if one:
        each = report.targets[0].splits.items()
        rows = [(f"  {_SPLIT_WORDS[split]}", summary) for split, summary in each]
    title = _title(shown[0]) if one else "training"
    width = max(_INDENT, min(24 if one else 20, max(len(text) for text in (title, *dict(rows)))))
    statistics = () if binary else ("mean", "std", "min", "max") if one else ("mean", "min", "max")
    yield _line(title, ("labels", "missing", *(statistics or ("class 1",))), width)
    for name, summary in rows:
        share = "" if summary.mean is None else f" ({summary.mean:.1%})"
        numbers = [_number(getattr(summary, which)) for which in statistics]
        cells = numbers or [f"{summary.positives:,}{share}"]
        yield _line(name, [f"{summary.labels:,}", f"{summary.missing:,}", *cells], width)
    if len(report.targets) > len(shown):
        yield f"and {len(report.targets) - len(shown)} more targets"


def _title(target: TargetReport) -> str:
    name = in_a_line(target.name)
    return f"{name} [{target.unit}]" if target.unit else name


def _line(title: str, cells: Sequence[str], width: int) -> str:
    widths = (8, 8, 16) if len(cells) == 3 else (8,) * len(cells)
    aligned = (f" {cell:>{wide}}" for cell, wide in zip(cells, widths, strict=True))
    return f"{_cut_middle(title, width):<{width}}" + "".join(aligned)


def _number(value: float | None) -> str:
    """A number in 8 columns."""
    if value is None:
        return "-"
    texts = [f"{value:.{digits}g}" for digits in (4, 3, 2)]
    return next((text for text in texts if len(text) <= 8), texts[-1])


def _cut_middle(text: str, length: int) -> str:
    """Cut so that names stay apart that differ at the end only."""
    if len(text) <= length:
        return text
    tail = (length - 3) // 2
    return f"{text[: length - 3 - tail]}...{text[-tail:]}"
