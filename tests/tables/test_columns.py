"""Columns found by name, numbers read from cells."""

import math

import pytest
from tables_io import refused

from graphormer_sepnorm.tables.columns import (
    find_column,
    find_smiles_column,
    names_rows,
    parse_class,
    parse_class_name,
    parse_number,
    parse_or_missing,
    with_decimal_comma,
)


@pytest.mark.parametrize(
    ("columns", "position"),
    [
        (["id", "SMILES"], 1),
        (["Canonical_Smiles", "id"], 0),
        (["Drug_ID", "Drug", "Y"], 1),
        (["mol", "smiles"], 1),  # the surer name
        (["Drug", "Drug_SMILES", "logS"], 1),
        (["id", "rdkit smiles (washed)"], 1),
        (["anything at all"], 0),
        (["InChIKey", "InChI", "drug"], 1),
        (["id", "Standard InChI Key", "standard_inchi"], 2),
        (["InChI", "structure SMILES"], 1),
    ],
)
def test_the_column_of_smiles_is_recognized(columns: list[str], position: int) -> None:
    assert find_smiles_column(columns, None, "a.csv") == position


def test_a_column_of_smiles_that_cannot_be_told_is_refused() -> None:
    assert find_smiles_column(["smiles", "product"], "product", "a.csv") == 1
    with refused("a.csv", "id, y", "--smiles"):
        find_smiles_column(["id", "y"], None, "a.csv", option="--smiles")
    for several in (["smiles", "SMILES"], ["canonical_smiles", "isomeric_smiles"]):
        with refused(", ".join(map(repr, several)), "--data.smiles_column"):
            find_smiles_column(several, None, "a.csv")


def test_ids_are_known_by_their_names() -> None:
    ids = ("compound_id", "Compound ID", "moleculeId", "Unnamed: 0", "Nr.", "Substance nr")
    assert all(map(names_rows, ids))
    assert not any(map(names_rows, ("NR-AR-LBD", "ID50", "NR-AR count", "value")))


@pytest.mark.parametrize("columns", [["CCO"], ["7", "CCO"], ["CCO", "-0.77"]])
def test_a_table_without_a_header_is_recognized(columns: list[str]) -> None:
    molecules = {"CCO", "C"}
    with refused("its first line has 'CCO', which is a molecule and not the name", "--the_smiles"):
        find_smiles_column(columns, None, "a.csv", "--the_smiles", molecules.__contains__)
    assert find_smiles_column(columns, "CCO", "a.csv", is_molecule=molecules.__contains__) >= 0
    # A column may be called C where another one is called smiles.
    assert find_smiles_column(["C", "SMILES"], None, "a", is_molecule=molecules.__contains__) == 1


def test_capitals_of_a_column_matter_only_if_they_have_to() -> None:
    assert find_column(["GAP", "homo"], "gap", "a.csv") == 0
    assert find_column(["GAP", "gap"], "gap", "a.csv") == 1
    with refused("a.csv", "2 columns are called 'Gap'"):
        find_column(["GAP", "gap"], "Gap", "a.csv")
    with refused("a.csv", "no column 'gab'", "did you mean 'gap'", "homo, gap"):
        find_column(["homo", "gap"], "gab", "a.csv")


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        *(("True", 1.0), ("false", 0.0), (True, 1.0), (" 1e-3 ", 0.001), (7, 7.0), ("-.5", -0.5)),
        *(("\N{MINUS SIGN}1.5", -1.5), (repr(0.1 + 0.2), 0.1 + 0.2)),
    ],
)
def test_numbers_are_read(cell: object, number: float) -> None:
    assert parse_number(cell) == number


@pytest.mark.parametrize("cell", ["active", "1,5", "1_000", ">10", "29%", "\udc80"])
def test_what_is_no_number_is_refused(cell: object) -> None:
    with pytest.raises(ValueError, match="not a number"):
        parse_number(cell)


def test_what_32_bits_do_not_hold_is_a_missing_extra_input() -> None:
    cells = ("1e39", "-1e39", "inf", "-inf", "", "-2")
    *missing, last = parse_or_missing(cells, "abcdef")
    assert all(map(math.isnan, missing))
    assert last == -2
    with pytest.raises(ValueError, match="b is 'x': not a number"):
        parse_or_missing(("1", "x"), "ab")


@pytest.mark.parametrize(
    "word",
    [
        *(None, "", " ", "NA", "n/a", "NaN", "NULL", "none", "-", math.nan),
        *("#N/A", "n.d.", " N.D. ", "nt", "Not tested", "#NV", "#DIV/0!", "?", "<NA>", "N. A."),
        *("#N/A N/A", "1.#QNAN", "-NaN", "\\N", ".", "\u2013", "(null)", "missing", "NaT"),
    ],
)
def test_words_for_no_value_are_missing_everywhere(word: object) -> None:
    for parse in (parse_class, parse_number):  # weights and descriptors are numbers
        assert math.isnan(parse(word))
    assert math.isnan(*parse_or_missing([word], ["temperature"]))
    # Of classes these may be one.
    assert parse_class_name(word) == (word if word in ("nt", "none", "-") else "")


@pytest.mark.parametrize("cell", ["1,2,3", "1.234,5", "a,5", ",5", "5,", "1,5 nM", "~1,5", ">", ""])
def test_other_cells_with_commas_stay_what_they_are(cell: str) -> None:
    assert type(with_decimal_comma(cell)) is str
