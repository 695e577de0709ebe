"""The table of a comparison in LaTeX, for a paper; needs the package booktabs."""

from __future__ import annotations

from graphormer_sepnorm.compare.report.blocks import Table
from graphormer_sepnorm.compare.report.numbers import MINUS, NONE

_ESCAPED = str.maketrans(
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


def to_latex(table: Table) -> str:
    """Return a table in LaTeX, all special characters escaped."""
    header, *rows = (
        f"    {' & '.join(cell.translate(_ESCAPED) for cell in row)} \\\\"
        for row in (table.header, *table.rows)
    )
    return "\n".join(
        [
            "% Needs \\usepackage{booktabs}.",
            "\\begin{table}",
            "  \\centering",
            f"  \\caption{{{table.caption.translate(_ESCAPED)}}}",
            f"  \\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
            "    \\toprule",
            *(header.replace("& p ", "& $p$ "), "    \\midrule", *rows, "    \\bottomrule"),
            "  \\end{tabular}",
            "\\end{table}\n",
        ]
    )
