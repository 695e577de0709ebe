"""A report as a list of blocks; the blocks as Markdown and as one HTML file, a table in LaTeX."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from graphormer_sepnorm.compare.report.numbers import MINUS, NONE

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~])")
_LATEX = str.maketrans(
    {
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
)


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the report's."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A paragraph: the answer, a warning, a command (`code`, kept as it is), or plain text."""

    text: str
    kind: Literal["text", "answer", "warning", "code"] = "text"


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        caption: What it shows.
        header: Titles of the columns.
        rows: The cells.
        labels: So many columns from the first on hold words, the others numbers.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1


@dataclass(frozen=True)
class Picture:
    """A figure: a PNG file relative to the report, what it shows, and a line on how to read it."""

    path: str
    title: str
    reading: str


Block = Heading | Paragraph | Table | Picture


def to_markdown(blocks: Sequence[Block]) -> str:
    """Return the blocks as Markdown (GitHub's), with links to the pictures."""
    parts, tables, pictures = [], 0, 0
    for block in blocks:
        match block:
            case Heading(text, level):
                parts.append(f"{'#' * level} {_plain(text)}")
            case Paragraph(text, "text"):
                parts.append(_plain(text))
            case Paragraph(text, "answer"):
                parts.append(f"**{_plain(text)}**")
            case Paragraph(text, "warning"):
                parts.append(f"> **Note:** {_plain(text)}")
            case Paragraph(text, _):
                parts.append("\n".join(f"    {line}" for line in text.splitlines()))
            case Table(caption, header, rows, labels):
                tables += 1
                parts.append(f"**Table {tables}.** {_plain(caption)}")
                aligned = [":--"] * labels + ["--:"] * (len(header) - labels)
                cells = [[_plain(cell) for cell in row] for row in (header, *rows)]
                lines = [cells[0], aligned, *cells[1:]]
                parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
            case Picture(path, title, reading):
                pictures += 1
                parts.append(f"![{_plain(title)}]({path})")
                parts.append(f"**Figure {pictures}. {_plain(title)}.** {_plain(reading)}")
    return "\n\n".join(parts) + "\n"


def to_html(blocks: Sequence[Block], directory: Path) -> str:
    """Return the blocks as an HTML page that needs nothing else, the pictures inside.

    Args:
        blocks: The report; its first heading is the title of the page.
        directory: Where the paths of the pictures begin.
    """
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    templates.filters["base64"] = lambda path: base64.b64encode(
        (directory / path).read_bytes()
    ).decode("ascii")
    named = [(type(block).__name__, block) for block in blocks]
    return templates.get_template("page.html").render(blocks=named)


def to_latex(table: Table) -> str:
    """Return a table in LaTeX, for a paper: all special characters escaped; it needs booktabs."""
    header, *rows = (
        f"    {' & '.join(cell.translate(_LATEX) for cell in row)} \\\\"
        for row in (table.header, *table.rows)
    )
    return "\n".join(
        [
            "% Needs \\usepackage{booktabs}.",
            "\\begin{table}",
            "  \\centering",
            f"  \\caption{{{table.caption.translate(_LATEX)}}}",
            f"  \\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
            "    \\toprule",
            *(header.replace("& p ", "& $p$ "), "    \\midrule", *rows, "    \\bottomrule"),
            "  \\end{tabular}",
            "\\end{table}\n",
        ]
    )


def _plain(text: str) -> str:
    """Text in which Markdown sees nothing but text; a table's row stays on its line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))
