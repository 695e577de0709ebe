"""A report as a list of blocks, and the same blocks as Markdown and as one HTML file."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~])")


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
    """A figure.

    Attributes:
        path: The PNG file, relative to the directory of the report.
        title: What it shows.
        reading: One line that says how to read it.
    """

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
    title = next(block.text for block in blocks if isinstance(block, Heading))
    parts, tables, pictures = [], 0, 0
    for block in blocks:
        match block:
            case Heading(text, level):
                parts.append(f"<h{level}>{escape(text)}</h{level}>")
            case Paragraph(text, "code"):
                parts.append(f"<pre><code>{escape(text)}</code></pre>")
            case Paragraph(text, "text"):
                parts.append(f"<p>{escape(text)}</p>")
            case Paragraph(text, kind):
                parts.append(f'<p class="{kind}">{escape(text)}</p>')
            case Table():
                tables += 1
                parts.append(_html_table(block, tables))
            case Picture(path, name, reading):
                pictures += 1
                data = base64.b64encode((directory / path).read_bytes()).decode("ascii")
                parts.append(
                    f'<figure>\n<img src="data:image/png;base64,{data}" alt="{escape(name)}">\n'
                    f"<figcaption><b>Figure {pictures}. {escape(name)}.</b> {escape(reading)}"
                    "</figcaption>\n</figure>"
                )
    return _PAGE.format(title=escape(title), style=_STYLE, body="\n".join(parts))


def _html_table(table: Table, number: int) -> str:
    word = [' class="word"' if place < table.labels else "" for place in range(len(table.header))]
    head = "".join(
        f'<th scope="col"{kind}>{escape(cell)}</th>'
        for kind, cell in zip(word, table.header, strict=True)
    )
    lines = [
        f"<caption><b>Table {number}.</b> {escape(table.caption)}</caption>",
        f"<thead><tr>{head}</tr></thead>",
        "<tbody>",
    ]
    for label, *cells in table.rows:
        body = "".join(
            f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(word[1:], cells, strict=True)
        )
        lines.append(f'<tr><th scope="row" class="word">{escape(label)}</th>{body}</tr>')
    inner = "\n".join([*lines, "</tbody>"])
    return f'<div class="table"><table>\n{inner}\n</table></div>'


def _plain(text: str) -> str:
    """Text in which Markdown sees nothing but text; a table's row stays on its line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

_STYLE = """\
body { margin: 0; background: #fff; color: #1a1a1a;
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem 1.5rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; }
h2 { font-size: 1.3rem; margin-top: 2.2rem; border-bottom: 1px solid #ccc; }
.answer { font-size: 1.15rem; font-weight: 600; margin: 0.7rem 0; padding: 0.6rem 0.9rem;
  border-left: 5px solid #0072b2; background: #eef5fa; }
.warning { padding: 0.5rem 0.9rem; border-left: 5px solid #d55e00; background: #fdf1e8; }
pre { padding: 0.6rem 0.9rem; background: #f4f4f4; font-size: 0.85rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.table { overflow-x: auto; margin: 1.2rem 0; }
table { border-collapse: collapse; font-size: 0.88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.4rem; }
thead th { border-top: 2px solid #333; border-bottom: 1px solid #333; vertical-align: bottom; }
tbody tr:last-child > * { border-bottom: 2px solid #333; }
th, td { padding: 0.25rem 0.6rem; text-align: right; }
td, tbody th { white-space: nowrap; }
th.word, td.word { text-align: left; }
td.word { white-space: normal; overflow-wrap: anywhere; min-width: 12rem; }
th:first-child { padding-left: 0; }
tbody th { font-weight: 500; }
figure { margin: 1.6rem 0; }
img { max-width: 100%; height: auto; }
figcaption { font-size: 0.9rem; color: #333; }
@media print {
  html { font-size: 9.5pt; }
  body { font-size: 1rem; }
  main { max-width: none; padding: 0; }
  figure, tr, .answer, .warning { break-inside: avoid; }
  h2 { break-after: avoid; }
  .table { overflow: visible; }
  table { font-size: 7.5pt; }
  th, td { padding: 0.15rem 0.35rem; }
  tbody th { white-space: normal; }
}
"""
