"""A data report as text: at most about 30 lines of 80 columns, what is unremarkable in one line."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphormer_sepnorm.datasets.user_table.report import DataReport, SameMolecule, TargetReport
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
    lines = [
        line
        for label, text in _entries(report)
        for line in textwrap.wrap(
            in_a_line(text),
            _WIDTH,
            initial_indent=f"{label:<{_INDENT}}",
            subsequent_indent=" " * _INDENT,
            break_on_hyphens=False,
        )
    ]
    lines += ["", *_targets(report)]
    # A column's name may hold bytes that are no text.
    return "\n".join(lines).encode("utf-8", "backslashreplace").decode()


def _entries(report: DataReport) -> Iterator[tuple[str, str]]:
    """Give what the report says above its table of labels: what it is about, and the text."""
    files = ", ".join(Path(file).name for file in report.files)
    how_many = f"{report.valid:,} of" if report.invalid else "all"
    yield "data", f"{files}: {how_many} {report.rows:,} rows can be used"
    if report.invalid:
        reasons = ", ".join(f"{count:,} {kind}" for kind, count in report.reasons.items())
        yield "left out", f"{reasons}; {_first(report, report.invalid[0])}"
    for note in report.notes:
        yield "read", note
    if report.unread:
        yield "not read", listed(report.unread)
    sizes = ", ".join(f"{len(part):,} {_SPLIT_WORDS[name]}" for name, part in report.splits.items())
    yield "split", f"{report.split}: {sizes}"
    low, mean, high = report.atoms
    yield "atoms", f"{low} to {high} in a molecule, {mean:.1f} on average"
    if report.cells:
        counts = Counter(readable(cell.column) for cell in report.cells)
        of = listed([f"{count:,} of {name!r}" for name, count in counts.most_common()], most=6)
        used = "in rows that are used for their other labels"
        yield "unusable", f"{of}, {used}; {_first(report, report.cells[0])}"
    if report.words and report.kind == "binary":
        words = sorted({word for words in report.words.values() for word in words}, key=parse_class)
        yield "classes", ", ".join(f"{word} is {parse_class(word):.0f}" for word in words)
    if report.bounds:
        bounds = [
            f"{name} {above:,} at least (>) and {below:,} at most (<)"
            for name, (above, below) in report.bounds.items()
        ]
        text = f"{'; '.join(bounds[:2])}{'; ...' if len(bounds) > 2 else ''}"
        yield "bounds", f"{text}: learned from one side, left out of all metrics, missing below"
    yield "duplicates", _duplicates(report)
    yield "leakage", _leakage(report)
    for warning in report.warnings[:_WARNINGS]:
        yield "warning", warning
    if len(report.warnings) > _WARNINGS:
        yield "", f"and {len(report.warnings) - _WARNINGS} more warnings"


def _first(report: DataReport, row: InvalidRow) -> str:
    file = f"{Path(row.file).name}, " if len(report.files) > 1 else ""
    return f"the first: {file}{row.place}: {shortened(row.reason, 160)}"


def _duplicates(report: DataReport) -> str:
    found = report.duplicates
    if not found.molecules:
        return "none"
    plural = "" if found.molecules == 1 else "s"
    text = f"{found.molecules:,} molecule{plural} in {found.rows:,} rows"
    if not found.conflicting:
        return f"{text}, their labels agree"
    shown = "; ".join(
        _same(same, files=len(report.files) > 1)
        for same in found.examples[: min(_EXAMPLES, found.conflicting)]
    )
    return f"{text}; the labels of {found.conflicting:,} differ, for example {shown}"


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


def _leakage(report: DataReport) -> str:
    pairs = {
        leak: " and ".join(_SPLIT_WORDS[split] for split in leak.splits) for leak in report.leakage
    }
    leaks = [
        f"{leak.molecules:,} in {pair} (for example {shortened(leak.examples[0])})"
        for leak, pair in pairs.items()
        if leak.molecules
    ]
    shared = [f"{leak.scaffolds:,} in {pair}" for leak, pair in pairs.items() if leak.scaffolds]
    text = "no molecule is in two splits"
    if leaks:
        what = "molecules in two splits, which makes the test look too good"
        text = f"{what}: {', '.join(leaks)}"
    if shared:
        return f"{text}; ring scaffolds in two splits: {', '.join(shared)}"
    if all(leak.scaffolds == 0 for leak in report.leakage):
        text += "; no ring scaffold is" if leaks else ", no ring scaffold either"
    return text


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
