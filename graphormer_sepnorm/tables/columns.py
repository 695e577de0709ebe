"""Finding columns by name, and what stands in their cells."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence

from graphormer_sepnorm.errors import DataError, did_you_mean
from graphormer_sepnorm.formatting import in_a_line, listed, shortened

# Words in the name of a column that names rows.
_ID_WORDS = {"id", "ids", "idx", "index", "row", "cid", "sid", "title", "name", "unnamed"}
_WORDS = re.compile(r"[A-Za-z][\w .-]*")
# Words for no value, in lower case, without spaces and points: of pandas and databases, of Excel
# (in German too), of people.
_NO_VALUE = {
    *("", "na", "n/a", "nan", "null", "none", "-"),
    *("<na>", "-nan", "+nan", "nat", "#na", "1#ind", "-1#ind", "1#qnan", "-1#qnan"),
    *("(null)", "\\n"),
    *("#n/a", "#n/an/a", "#nv", "#div/0!", "#value!", "#num!", "#ref!", "#name?", "#null!"),
    *("#wert!", "#zahl!", "#bezug!"),
    *("nd", "n/d", "nt", "n/t", "nodata", "notavailable", "notapplicable", "notdetermined"),
    *("notmeasured", "nottested", "missing", "?", "--", "---", "\u2013", "\u2014"),
}
_CLASS_NAMES = {"none", "-", "nt"}  # as no value they are words of people, who also call classes so
_BOUND = re.compile(r"\s*([<>≤≥])=?\s*(?=\S)")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # how tables are read: a byte each
_SHOWN = 40  # characters of a cell in a message
_EXACT = 1e15  # up to here Python's numbers hold all digits
LARGEST = 3.4e38  # what 32-bit numbers hold
# Pairs of words that labels of two classes are written as, class 1 first.
CLASS_WORDS = (("true", "false"), ("yes", "no"), ("active", "inactive"), ("positive", "negative"))
_CLASSES = {word: float(at == 0) for pair in CLASS_WORDS for at, word in enumerate(pair)}
_WRITTEN_COMMA = re.compile(r"\s*(?:[<>≤≥]=?)?\s*[-+\N{MINUS SIGN}]?\d+,\d+(?:[eE][-+]?\d+)?\s*")


class DecimalComma(str):
    """A cell that is known to hold a number with a decimal comma, as it is written."""

    __slots__ = ()


def with_decimal_comma(cell: str) -> str:
    """Return a cell of a table with semicolons as `DecimalComma` if it may be one.

    Elsewhere ``1,234`` may be a thousand.
    """
    return DecimalComma(cell) if _WRITTEN_COMMA.fullmatch(cell) else cell


def find_smiles_column(
    columns: Sequence[str],
    wanted: str | None,
    where: str,
    option: str = "--data.smiles_column",
    is_molecule: Callable[[str], bool] = lambda name: False,
) -> int:
    """Return the index of the column of SMILES, or else of InChI.

    Args:
        columns: Names of all columns.
        wanted: Its name, if the user gives it; None: it is recognized by its name, and the only
            column of a table is it.
        where: The file, for messages.
        option: How the user can name it, for messages.
        is_molecule: Whether a text is SMILES, by which a table without a header is known.

    Raises:
        DataError: There is none, or several columns could be it, or the table has no header.
    """
    if wanted is not None:
        return find_column(columns, wanted, where)
    alone = len(columns) == 1
    ranks = [_rank(name) for name in columns if not alone or is_smiles_name(name)]
    found = [at for at, rank in enumerate(ranks) if rank == min(ranks) < _NO_RANK]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(repr(columns[at]) for at in found)
        same = len({columns[at] for at in found}) == 1
        how = "rename all but one" if same else f"name it with {option}"
        raise DataError(f"{where}: several columns could hold the SMILES ({names}): {how}")
    for name in filter(is_molecule, columns):
        raise DataError(
            f"{where}: its first line has {shortened(name, _SHOWN)!r}, which is a molecule and not "
            "the name of a column: put a line of names above it, such as smiles,value, or if it is "
            f"a name, name the column of SMILES with {option}"
        )
    if alone:
        return 0
    raise DataError(
        f"{where}: no column is called smiles or inchi; the columns are {listed(columns)}: name it "
        f"with {option}, or their row with {option.replace('smiles_column', 'header_row')}"
    )


def _rank(name: str) -> int:
    """How surely a column of this name has the molecules: 0 surely, then less; `_NO_RANK`: not."""
    key = "".join(filter(str.isalnum, name.lower()))
    ranks = (
        key == "smiles",
        "smiles" in key or key in ("smi", "smile"),
        "inchi" in key and "key" not in key,
        key in ("mol", "molecule", "structure", "drug"),
        True,
    )
    return ranks.index(True)


_NO_RANK = _rank("")


def is_smiles_name(name: str) -> bool:
    """Whether a header of this name announces SMILES or InChI (and is no SMILES itself)."""
    # Words only: without its brackets [Sm]I would be a known name.
    return bool(_WORDS.fullmatch(name)) and _rank(name) < _NO_RANK


def names_rows(name: str) -> bool:
    """Whether a column of this name names the rows, as ``compound_id``, and is no property."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    return bool({*words} & _ID_WORDS) or words[-1:] == ["nr"]  # NR-AR is a nuclear receptor


def find_column(columns: Sequence[str], wanted: str, where: str) -> int:
    """Return the index of a column by its name; capitals only matter if they have to.

    Raises:
        DataError: There is no such column, or there are several of this name.
    """
    shown = [readable(name) for name in columns]
    exact = [at for at, name in enumerate(columns) if name == wanted]
    sought = readable(wanted).lower()
    found = exact or [at for at, name in enumerate(shown) if name.lower() == sought]
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{where}: {len(found)} columns are called {wanted!r}: rename all but one")
    hint = did_you_mean(wanted, map(in_a_line, shown))
    raise DataError(
        f"{where}: there is no column {wanted!r}{hint}; the columns are {listed(shown)}"
    )


def readable(name: str) -> str:
    """Return a name, or a text, as it can be shown; bytes that are no UTF-8 are Latin-1."""
    return _NOT_UTF8.sub(lambda byte: chr(ord(byte[0]) - 0xDC00), name)


def free_name(name: str, taken: Collection[str]) -> str:
    """Return `name`, or `name` with _2, _3, ... behind it if it is taken (in any capitals)."""
    used = {other.lower() for other in taken}
    free, number = name, 1
    while free.lower() in used:
        number += 1
        free = f"{name}_{number}"
    return free


def is_empty(cell: object) -> bool:
    """Whether nothing stands in a cell, or a word for no value, such as ``n.d.`` or ``#N/A``."""
    return cell is None or "".join(str(cell).lower().replace(".", " ").split()) in _NO_VALUE


def parse_number(cell: object) -> float:
    """Return the number in a cell: nan where it is missing, 1 and 0 for true and false.

    Raises:
        ValueError: Something else stands there; it says what.
    """
    if is_empty(cell):
        return math.nan
    text = str(cell).strip().lower().replace("\N{MINUS SIGN}", "-")
    if text in ("true", "false"):
        return float(text == "true")
    if isinstance(cell, DecimalComma):
        text = text.replace(",", ".")
    try:
        return float(text.replace("_", "x"))  # Python takes 1_000 for a number; a table does not
    except ValueError:
        shown = shortened(readable(str(cell)), _SHOWN)
        raise ValueError(f"{shown!r}: not a number, nor true or false") from None


def parse_class(cell: object) -> float:
    """Return the number in a cell as `parse_number`, 1 and 0 for all of `CLASS_WORDS`."""
    word = class_word(cell)
    return _CLASSES[word] if word else parse_number(cell)


def parse_or_missing(cells: Sequence[object], names: Sequence[str]) -> tuple[float, ...]:
    """Return the numbers in cells of a row; an infinity, also of 32-bit numbers, counts as missing.

    Raises:
        ValueError: Something else stands there; it names the column, one of `names`, and the cell.
    """
    numbers: list[float] = []
    for name, cell in zip(names, cells, strict=True):
        try:
            number = parse_number(cell)
        except ValueError as error:
            raise ValueError(f"{name} is {error}") from None
        numbers.append(number if abs(number) <= LARGEST else math.nan)
    return tuple(numbers)


def parse_class_name(cell: object) -> str:
    """Return the name of a class that stands in a cell; empty where it is missing.

    What is a number is one class however it is written: 1, 1.0 and 01.
    """
    text = "" if cell is None else str(cell).strip()
    if is_empty(text) and text.lower() not in _CLASS_NAMES:
        return ""
    if class_word(text):  # or true would be 1
        return text
    try:
        number = parse_number(text)
    except ValueError:
        return text
    if not abs(number) < _EXACT:  # nan too
        return text
    return str(int(number) if number.is_integer() else number)


def split_bound(cell: object) -> tuple[str, object]:
    """Return ``>`` or ``<`` and the rest of a cell such as ``>10``, ``<= 3`` or ``≥5``.

    Empty, and the cell, where it begins with none of them.
    """
    if not isinstance(cell, str) or not (found := _BOUND.match(cell)):
        return "", cell
    return {"≤": "<", "≥": ">"}.get(found[1], found[1]), type(cell)(cell[found.end() :])


def class_word(cell: object) -> str:
    """Return the word of a class that stands in a cell, in lower case; empty if there is none."""
    word = str(cell).strip().lower()
    return word if word in _CLASSES else ""


def class_or_nan(cell: object) -> float:
    """Return `parse_class`, or nan where neither a number nor a word for a class stands."""
    try:
        return parse_class(cell)
    except ValueError:
        return math.nan


def is_word_for(words: str, label: int) -> bool:
    """Whether a class that is so called is this label, 0 or 1, in a table; several with "or"."""
    return all(class_or_nan(word) == label for word in words.split(" or "))
