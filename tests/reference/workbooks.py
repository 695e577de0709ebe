"""Workbooks of Excel, made by openpyxl."""

from pathlib import Path
from typing import Any

import openpyxl


def workbook(path: Path, hidden: str = "", **sheets: list[list[Any]]) -> Path:
    """Write sheets by their titles; one called Hidden has the state `hidden`."""
    made = openpyxl.Workbook()
    made.remove(made.worksheets[0])
    for title, rows in sheets.items():
        sheet = made.create_sheet(title)
        sheet.sheet_state = hidden if title == "Hidden" else "visible"
        for row in rows:
            sheet.append(row)
    made.save(path)
    return path
