"""The report of a comparison: what it says, and that its files are whole."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from example_results import binary, incomplete, regression, written
from reference.pages import Page

from graphormer_sepnorm.cli.compare import make_report
from graphormer_sepnorm.compare import figures
from graphormer_sepnorm.compare.report import (
    markdown,
    notes,
    page,
    summary,
    title,
    variants,
    write_report,
)
from graphormer_sepnorm.compare.results import Results
from graphormer_sepnorm.compare.statistics import chances, verdict
from graphormer_sepnorm.errors import ConfigError

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
MAKE = {"regression": regression, "binary": binary, "incomplete": incomplete}
KINDS = pytest.mark.parametrize("name", MAKE)


@pytest.fixture(autouse=True)
def drawn_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn in one test alone, of few pixels."""
    monkeypatch.setattr(figures, "_DPI", 20)
    if request.node.name != "test_the_page_is_whole_and_needs_no_other_file[incomplete]":
        monkeypatch.setattr(figures, "png", lambda figure: b"drawn")


def floats(text: str) -> list[float]:
    found = re.findall(r"[-+]?\d[\d,]*\.?\d*", text.replace(MINUS, "-"))
    return [float(one.replace(",", "")) for one in found]


@KINDS
def test_numbers_in_tables_are_those_of_the_results(name: str) -> None:
    results = MAKE[name]()
    header, *rows = variants(results)
    settings = Page(page(results)).cells
    for arm, row in zip(results.arms, rows, strict=True):
        tests = arm.values("test")
        cells = dict(zip(header, row, strict=True))
        assert cells["arm"] == arm.name
        assert floats(cells["seeds"])[0] == len(tests)
        assert floats(row[2])[0] == pytest.approx(tests.mean(), abs=5.01e-5)
        assert {f"model.norm={arm.options['model.norm']}", f"{arm.parameters:,}"} <= {*settings}
        one = results.comparisons.get(arm.name)
        if one is None:
            assert set(row[3:]) == {DASH}
            continue
        change, *ends = one.percent
        assert floats(cells["change, %"]) == pytest.approx([change], abs=0.0501)
        known = [end for end in ends if not math.isnan(end)]
        assert floats(cells["95 % interval"]) == pytest.approx(known, abs=0.0501)
        assert floats(cells["p"]) == pytest.approx([one.p_value], abs=5e-4)
        signs = [one.signs_p, one.smallest_signs_p]
        assert floats(cells["sign-flip p"]) == pytest.approx(signs, abs=5e-4)
        assert cells["verdict"] == verdict(one, "lower")


@KINDS
def test_the_page_is_whole_and_needs_no_other_file(name: str, tmp_path: Path) -> None:
    results = MAKE[name]()
    write_report(results, tmp_path)
    found = Page((tmp_path / "report.html").read_text())
    assert found.open == []
    addresses = [value or "" for name, value in found.attributes if name in ("src", "href")]
    assert len(addresses) == 3
    assert all(address.startswith("data:image/png;base64,") for address in addresses)
    for row in variants(results):
        assert {*row} <= {*found.cells}
    assert (tmp_path / "summary.md").read_text() == f"{summary(results)}\n"


def test_what_is_missing_or_has_failed_comes_first() -> None:
    results = incomplete()
    first, failed, *_ = notes(results)
    assert "6 of 9 runs" in first
    for state in ("sepnorm seed 2 (failed)", "bn+bn seed 1 (missing)", "bn+bn seed 2 (running)"):
        assert state in first
    assert "ValueError: loss is nan | at <step> 12" in failed
    rows = {row[0]: row for row in variants(results)}
    assert (rows["sepnorm"][1], rows["bn+bn"][1]) == ("2 of 3", "1 of 3")
    assert "±" not in rows["bn+bn"][2]
    assert "at &lt;step&gt; 12" in page(results)
    assert not any("artial" in note for note in notes(regression()))


@pytest.mark.parametrize(("arms", "seeds"), [(1, 3), (3, 1)])
def test_one_arm_or_one_seed_is_enough(arms: int, seeds: int) -> None:
    results = regression(arms=arms, seeds=seeds)
    for text in (summary(results), Page(page(results)).cells):
        assert "nan" not in str(text).lower().replace("penalized", "")
        assert "None" not in text


def test_what_has_to_be_known_is_noted() -> None:
    def noted(results: Results) -> str:
        return " ".join(notes(results))

    said = noted(regression(seeds=6))
    assert chances(regression(seeds=6).comparisons["sepnorm"].sd, 6, 2) in said
    assert "One seed cannot tell" in noted(regression(seeds=1))
    assert "seed cannot" not in noted(incomplete())  # others have several, and a verdict
    arms = tuple(
        replace(arm, runs=tuple(replace(run, test=math.nan) for run in arm.runs))
        for arm in binary().arms
    )
    results = replace(binary(), arms=arms)
    assert "Not compared: sharenorm, sepnorm," in noted(results)
    assert "see the sign-flip p" not in said
    even = regression(seeds=6)
    first, *others = even.arms
    wide = tuple(replace(run, test=run.test * (1 + 0.1 * (run.seed % 3))) for run in first.runs)
    unequal = replace(even, arms=(replace(first, runs=wide), *others))
    assert "see the sign-flip p" in noted(unequal)
    assert {cell for row in variants(results)[1:] for cell in row[2:]} == {DASH}


def test_report_without_its_runs(tmp_path: Path) -> None:
    written(regression(arms=2, seeds=1), tmp_path)
    before = (tmp_path / "results.json").read_bytes()
    with pytest.raises(ConfigError, match="--baseline sepnrom"):
        make_report(tmp_path, "sepnrom")
    make_report(tmp_path)
    assert (tmp_path / "results.json").read_bytes() == before
    make_report(tmp_path, "sepnorm")
    assert (tmp_path / "summary.md").read_text().startswith("# sharenorm against sepnorm")


def test_markup_in_names_stays_text() -> None:
    results = replace(regression(), dataset="a < b & *c*")
    first, second, third = results.arms
    second = replace(second, options={"model.norm": "x_y | <b>"})
    results = replace(results, arms=(first, second, replace(third, name="a\n| b")))
    assert title(results) == "sepnorm and a\n| b against sharenorm on a < b & *c*"
    found = page(results)
    assert "on a &lt; b &amp; *c*</title>" in found
    assert "<td>model.norm=x_y | &lt;b&gt;</td>" in found
    assert Page(found).open == []
    table = markdown(variants(results)).splitlines()
    assert len(table) == 5
    assert len({line.count("|") for line in table}) == 1
