"""The report of a comparison: what it says, and that its files are whole."""

from __future__ import annotations

import copy
import errno
import filecmp
import math
import re
import shutil
import statistics
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from example_results import binary, incomplete, regression

from graphormer_sepnorm.cli.compare import make_report
from graphormer_sepnorm.compare.predictions import Predictions
from graphormer_sepnorm.compare.report import figures, tables
from graphormer_sepnorm.compare.report.document import rendered, write_report
from graphormer_sepnorm.compare.report.numbers import number, p_value, plain, signed
from graphormer_sepnorm.compare.report.text import (
    answers,
    beaten_by,
    cautions,
    seeds_needed,
    summary,
    title,
    verdict,
)
from graphormer_sepnorm.compare.results import runs_are_gone
from graphormer_sepnorm.compare.results_file import Results
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import read_json, write_json

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
made = Results.from_plain
MAKE = {"regression": regression, "binary": binary, "incomplete": incomplete}
KINDS = pytest.mark.parametrize("name", MAKE)
COARSE = 20


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Directories with a report: of a regression, a classification, and partial results."""
    directories = {name: tmp_path_factory.mktemp(name) for name in MAKE}
    for name, directory in directories.items():
        MAKE[name](directory)
        with pytest.MonkeyPatch.context() as patch:
            if name == "incomplete":
                patch.setattr(figures, "_DPI", COARSE)
            write_report(directory)
    return directories


@pytest.fixture
def coarse(monkeypatch):
    """Figures of few pixels, which are drawn quickly."""
    monkeypatch.setattr(figures, "_DPI", COARSE)


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """Results of a regression, not to be changed."""
    return regression(tmp_path_factory.mktemp("values"), molecules=50)


def with_test(
    results: dict, holm_p: float = 1 / 32, resolved: bool | None = None, **changes: object
) -> dict:
    """Results with one comparison only, as of six seeds, some of it changed.

    Where it is said whether the difference is resolved, an interval about 0.1 goes with it.
    """
    results = copy.deepcopy(results)
    results["comparisons"] = results["comparisons"][:1]
    results["comparisons"][0] |= {"holm_p": holm_p, "smallest_holm_p": 1 / 32}
    interval = {} if resolved is None else {"low": 0.05 if resolved else -0.05, "high": 0.15}
    results["comparisons"][0]["test"] |= interval | changes
    return results


def table_in(markdown: str, caption: str) -> dict[str, list[str]]:
    """The cells of the table whose caption begins so, by their label; markup taken off."""
    lines = markdown.partition(f".** {caption}")[2].splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("|"))
    rows = {}
    for line in [lines[start], *lines[start + 2 :]]:
        if not line.startswith("|"):
            break
        label, *cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        rows[label.replace("\\", "")] = [cell.replace("\\", "") for cell in cells]
    return rows


def floats(text: str) -> list[float]:
    found = re.findall(r"[-+]?\d[\d,]*\.?\d*", text.replace(MINUS, "-"))
    return [float(one.replace(",", "")) for one in found]


def test_the_answer_when_it_is_resolved(values):
    results = with_test(
        values,
        mean=-0.0213,
        low=-0.0325,
        high=-0.0101,
        baseline_mean=0.4756,
        treatment_mean=0.4543,
        seeds=3,
        relative_percent=-4.479,
    )
    for unit in ("", " eV"):
        (text,) = answers(made(results | {"unit": unit.strip()}))
        assert text == (
            f"sepnorm is better than sharenorm: the test MAE goes from 0.4756{unit} to 0.4543{unit}"
            f", a change of {MINUS}0.0213{unit} with a 95 % interval of {MINUS}0.0325 to {MINUS}"
            f"0.0101{unit} over 3 paired seeds ({MINUS}4.5 %; lower is better; p 0.031)."
        )


def test_the_answer_when_it_is_not_significant(values):
    """The interval leaves out 0, and so few seeds cannot make Holm's p small."""
    changes = {"mean": -0.0213, "low": -0.0325, "high": -0.0101, "relative_percent": -4.479}
    changes |= {"baseline_mean": 0.4756, "treatment_mean": 0.4543}
    results = with_test(values, holm_p=0.0625, **changes)
    (text,) = answers(made(results))
    assert text == (
        "Not significant: sepnorm has a lower test MAE than sharenorm in 3 of 3 seeds, 0.4756 to "
        f"0.4543, a change of {MINUS}0.0213 whose 95 % interval of {MINUS}0.0325 to {MINUS}0.0101 "
        "leaves out 0; but p 0.062 is not below 0.05 (smallest possible here 0.031; "
        f"{MINUS}4.5 %; lower is better)."
    )
    runs = results["arms"][1]["runs"]
    runs[0]["test"] = results["arms"][0]["runs"][0]["test"] + 0.1
    assert "in 2 of 3 seeds" in answers(made(results))[0]
    (text,) = answers(made({**results, "complete": False}))
    assert text.startswith("So far: not significant: sepnorm")


@pytest.mark.parametrize(
    ("resolved", "holm_p", "mean", "better", "said"),
    [
        (True, 0.049, -0.1, "lower", "better"),
        (True, 0.049, 0.1, "lower", "worse"),
        (True, 0.049, 0.1, "higher", "better"),
        (True, 0.049, -0.1, "higher", "worse"),
        (True, 0.05, -0.1, "lower", "not significant"),
        (True, 0.9, 0.1, "lower", "not significant"),
        (True, None, -0.1, "lower", "not significant"),
        (False, 0.001, -0.1, "lower", "not resolved"),
        (False, 0.9, -0.1, "lower", "not resolved"),
    ],
)
def test_one_rule_decides_what_is_said(values, resolved, holm_p, mean, better, said):
    results = made(with_test(values, holm_p, mean=mean, resolved=resolved) | {"better": better})
    assert verdict(results, results.made[0]) == said
    (text,) = answers(results)
    assert (f"sepnorm is {said} than sharenorm" in text) is (said in ("better", "worse"))
    assert text.startswith("Not significant: ") is (said == "not significant")
    assert text.startswith("Not resolved: ") is (said == "not resolved")
    assert f"{better} is better" in text
    cells = next(row for row in tables.differences(results).rows if row[0] == "sepnorm, test")
    assert cells[-1] == said


SIMPLE = [
    {"name": "mean of the training labels", "validation": 1.5, "test": 1.25, "comparable": True},
    {"name": "ridge on Morgan fingerprints", "validation": 0.3, "test": 0.46, "comparable": True},
]


def test_simple_models_stand_beside_the_arms(values):
    results = values | {
        "baselines": SIMPLE,
        "baselines_left_out": "The baselines are of the first 2 of 3 targets.",
    }
    markdown = rendered("markdown", made(results))
    arms = table_in(markdown, "The arms.")
    assert list(arms)[4:] == [one["name"] for one in SIMPLE]
    assert arms["ridge on Morgan fingerprints"] == [DASH, DASH, "0.3000", "0.4600"]
    assert "simple models on the same split. The baselines are of the first 2 of 3" in markdown
    said = "are not better than ridge on Morgan fingerprints, whose test MAE is 0.4600 on the same"
    assert f"sharenorm and bn+bn {said}" in markdown
    on_terminal = summary(made(results))
    assert on_terminal.splitlines()[2].split() == [*SIMPLE[1]["name"].split(), "0.4600"]
    assert answers(made(results))[0] in on_terminal
    assert said in on_terminal
    assert "first 2 of 3 targets" in on_terminal
    assert plain(f"{MINUS}1 ± 2 {DASH} \N{GREEK SMALL LETTER MU}") == "-1 +/- 2 - ?"


def test_arms_that_do_not_read_the_graph_token_are_named_beside_its_geometry(values):
    said = "are read from the atoms alone"
    assert said not in rendered("markdown", made(values))
    pooled = copy.deepcopy(values)
    pooled["configuration"]["model"]["readout"] = "mean"
    pooled["arms"][1]["options"]["model.readout"] = "graph_token+mean"
    assert f"Predictions of sharenorm and bn+bn {said}" in rendered("markdown", made(pooled))
    pooled["configuration"]["model"]["readout"] = "both"
    pooled["arms"][1]["options"]["model.readout"] = "sum"
    assert f"Predictions of sepnorm {said}" in " ".join(rendered("html", made(pooled)).split())


def test_which_arms_do_not_reach_a_simple_model(values):
    def said(better: str, test: float, comparable: bool = True) -> list[str]:
        simple = [SIMPLE[1] | {"test": test, "comparable": comparable}]
        return list(beaten_by(made({**values, "better": better, "baselines": simple})))

    assert said("lower", 0.1)[0].startswith("No arm is better than ridge on Morgan fingerprints")
    assert said("lower", 0.9) == []
    assert said("higher", 0.9)[0].startswith("No arm is better than ")
    assert said("higher", 0.1) == []
    assert said("lower", 0.1, comparable=False) == []  # of other targets
    (text,) = said("lower", 0.46)
    assert text.startswith("sharenorm and bn+bn are not better than ridge")
    assert text.count("sepnorm") == 0
    # Results of before there were any.
    assert list(beaten_by(made(values))) == []
    assert "ridge" not in summary(made(values))


def test_results_that_cannot_be_read_are_an_error_of_one_line(tmp_path):
    with pytest.raises(DataError, match=r"has no results\.json"):
        write_report(tmp_path)
    results = regression(tmp_path, molecules=50)
    write_json(tmp_path / "results.json", results | {"format_version": 2})
    with pytest.raises(
        DataError, match=r"results\.json is of format 2, .* knows format 1"
    ) as error:
        write_report(tmp_path)
    assert "\n" not in str(error.value)
    with pytest.raises(DataError, match="is of format 2"):
        runs_are_gone(tmp_path)


def test_a_run_that_was_begun_again_is_not_gone(tmp_path):
    regression(tmp_path, molecules=50, arms=3, seeds=1)
    assert runs_are_gone(tmp_path)
    for arm in ("sharenorm", "sepnorm", "bn+bn"):
        (tmp_path / arm / "seed0").mkdir(parents=True)
    assert runs_are_gone(tmp_path)
    (tmp_path / "sepnorm" / "seed0" / "run.json").write_text("{}")  # and was interrupted
    (tmp_path / "sharenorm" / "seed0" / "run.json").write_text("{}")
    with pytest.raises(DataError, match=r"some of the runs in results\.json are gone, others are"):
        runs_are_gone(tmp_path)
    (tmp_path / "bn+bn" / "seed0.failed").write_text("it cannot be done")
    assert not runs_are_gone(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"low": -0.015, "high": 0.0068},
            f"the 95 % interval of {MINUS}0.0150 to +0.0068 includes 0",
        ),
        ({"seeds": 1, "low": None, "high": None, "sd": None}, "no 95 % interval with one seed"),
        ({"sd": 0.0, "low": -0.0041, "high": -0.0041}, "spread has not been measured"),
    ],
)
def test_the_answer_when_it_is_not_resolved(changes, said, values):
    results = with_test(values, **({"mean": -0.0041, "relative_percent": -0.9} | changes))
    (text,) = answers(made(results))
    assert text.startswith("Not resolved: sepnorm changes the test MAE of sharenorm by ")
    assert f"{MINUS}0.0041 over {changes.get('seeds', 3)} paired seed" in text
    assert said in text
    assert f"{MINUS}0.9 %" in text


def test_an_area_is_also_given_in_points(values):
    results = with_test(values, mean=0.0228, resolved=True)
    results |= {"metric": "auroc", "better": "higher"}
    assert "+0.0228 (+2.28 points)" in answers(made(results))[0]


def with_many_arms(values: dict, resolved: int) -> dict:
    """Results with five arms beside the baseline, the first of them resolved."""
    results = with_test(values)
    (first,) = results["comparisons"]
    results["comparisons"] = [copy.deepcopy(first) | {"arm": f"arm {place}"} for place in range(5)]
    for place, one in enumerate(results["comparisons"]):
        one["test"] |= {"low": 0.05 if place < resolved else -0.05, "high": 0.15}
    results["arms"] = [results["arms"][0]] + [
        results["arms"][1] | {"name": f"arm {place}"} for place in range(5)
    ]
    return results


def test_many_arms_that_are_not_resolved_share_a_sentence(values):
    results = with_many_arms(values, resolved=2)
    assert title(made(results)) == "5 arms against sharenorm on zinc-subset"
    *resolved, rest = answers(made(results))
    assert [text.split(" is ")[0] for text in resolved] == ["arm 0", "arm 1"]
    assert rest.startswith("Not resolved for 3 of 5 arms against sharenorm: arm 2, arm 3, arm 4. ")
    results["complete"] = False
    assert answers(made(results))[-1].startswith("So far: not resolved for 3 of 5 arms")
    for resolved in (4, 5):  # at most one is not
        assert len(answers(made(with_many_arms(values, resolved)))) == 5


@pytest.mark.parametrize(
    ("selected", "checkpoint"),
    [
        ("validation_mae", "the checkpoint of each run whose validation MAE is best"),
        ("validation_rmse", "the checkpoint of each run whose validation RMSE is best"),
        ("validation_loss", "the checkpoint of each run whose validation loss is best"),
        ("step", "the last checkpoint of each run"),
        (None, "the checkpoint of each run whose validation MAE is best"),
    ],
)
def test_the_method_is_said(selected, checkpoint, values):
    task = {**values["task"], "targets": ["a", "b"], "units": ["", ""]}
    arms = [{**arm, "selected_on": selected} for arm in values["arms"]]
    text = rendered("markdown", made({**values, "task": task, "arms": arms}))
    assert f"The MAE is the mean over 2 targets. Tested is {checkpoint}." in text
    said = "comparisons is below 0.05 and the t interval over the seeds leaves out 0; not signif"
    assert f"better or worse if Holm's p over the 2 {said}" in text
    assert "The MAE is the mean" not in rendered("markdown", made(values))


def test_arms_whose_checkpoints_are_chosen_otherwise_are_told_apart(values):
    results = copy.deepcopy(values)
    own = ("step", "validation_mae", "step")
    for arm, selected_on in zip(results["arms"], own, strict=True):
        arm["selected_on"] = selected_on
    assert (
        "Tested is of sharenorm, bn+bn the last checkpoint of each run; of sepnorm the checkpoint "
        "of each run whose validation MAE is best. Differences are"
    ) in rendered("markdown", made(results))
    for run in results["arms"][1]["runs"]:
        run["status"] = "failed"
    results["comparisons"] = []
    said = "Tested is the last checkpoint of each run. Differences are"
    assert said in rendered("markdown", made(results))


def test_few_seeds_are_said_aloud(values):
    # Twice 2^-5 is more than 0.05, and 2^-5 less.
    assert [seeds_needed(arms) for arms in (1, 2, 3, 4)] == [6, 7, 7, 8]
    (text,) = cautions(made(values))
    assert "Only 3 seeds, fewer than 7" in text
    assert "p cannot be below 0.25, nor Holm's for 2 arms below 0.5, so" in text
    assert "so no arm can be called better or worse" in text
    enough = with_test(values, seeds=6, smallest_p=1 / 32)
    assert list(cautions(made(enough))) == []
    # Enough for one arm, and not for two.
    two = copy.deepcopy(values)
    for one in two["comparisons"]:
        one["smallest_holm_p"] = 2 / 32
        one["test"] |= {"seeds": 6, "smallest_p": 1 / 32}
    (text,) = cautions(made(two))
    assert "Only 6 seeds, fewer than 7" in text
    assert all("Holm's p over the arms" in text for text in answers(made(two)))


def test_numbers_as_text():
    p_values = {
        51 / 1024: "0.0498",
        0.04997: "0.0499",
        0.125: "0.125",
        1 / 32: "0.031",
        0.25: "0.25",
        1.0: "1",
        0.0004: "0.0004",
    }
    assert {value: p_value(value) for value in p_values} == p_values
    assert (p_value(1e-5), p_value(math.nan)) == ("< 0.0001", DASH)
    assert number(489481, 0) == "489,481"
    assert number(-0.00001, 4) == signed(0.00001, 4) == "0.0000"
    assert (signed(-1.5, 2), signed(1.5, 2)) == (f"{MINUS}1.50", "+1.50")
    assert number(math.nan, 2) == signed(math.nan, 2) == DASH


@KINDS
def test_numbers_in_tables_are_those_of_the_results(written, name):
    markdown = (written[name] / "report.md").read_text()
    results = read_json(written[name] / "results.json")
    arms = table_in(markdown, "The arms.")
    for arm in results["arms"]:
        finished = [run for run in arm["runs"] if run["status"] == "finished"]
        ((options, parameters, *cells),) = [
            row for label, row in arms.items() if label.split(" (")[0] == arm["name"]
        ]
        assert options == f"model.norm={arm['options']['model.norm']}"
        assert floats(parameters) == [arm["parameters"]]
        for cell, part in zip(cells, ("validation", "test"), strict=True):
            column = [run[part] for run in finished]
            expected = [statistics.mean(column)]
            expected += [statistics.stdev(column)] if len(column) > 1 else []
            assert floats(cell) == pytest.approx(expected, abs=5.01e-5)
    seeds = table_in(markdown, "MAE of each run" if name != "binary" else "AUROC of each run")
    for arm in results["arms"]:
        for part in ("validation", "test"):
            for run, cell in zip(arm["runs"], seeds[f"{arm['name']}, {part}"], strict=True):
                if run["status"] == "finished":
                    assert float(cell) == pytest.approx(run[part], abs=5.01e-5)
                else:
                    assert cell == run["status"]
    assert "**Table 2.** Difference to sharenorm" in markdown  # `answers` names it so
    differences = table_in(markdown, "Difference to sharenorm")
    for one, typed in zip(results["comparisons"], made(results).made, strict=True):
        test = one["test"]
        cells = differences[f"{one['arm']}, test"]
        assert floats(cells[0])[0] == test["seeds"]
        assert floats(cells[1]) == pytest.approx([test["mean"]], abs=5.01e-5)
        ends = [end for end in (test["low"], test["high"]) if end is not None]
        assert floats(cells[2]) == pytest.approx(ends, abs=5.01e-5)
        assert floats(cells[3]) == pytest.approx([test["relative_percent"]], abs=0.0501)
        assert floats(cells[4]) == [one["paper_relative_percent"]]
        assert floats(cells[5]) == pytest.approx([test["p_value"], test["smallest_p"]], abs=5e-4)
        assert floats(cells[6]) == pytest.approx([one["holm_p"], one["smallest_holm_p"]], abs=5e-4)
        assert cells[7] == verdict(made(results), typed)


def test_the_tests_over_molecules_are_said_to_be_conditional(written):
    for name, caption in (("regression", "Change of the absolute"), ("binary", "ROC-AUC of the")):
        markdown = (written[name] / "report.md").read_text()
        assert "Conditional on these models" in markdown
        assert table_in(markdown, caption)
    results = read_json(written["regression"] / "results.json")
    errors = results["comparisons"][0]["per_molecule"]
    cells = table_in((written["regression"] / "report.md").read_text(), "Change of the absolute")
    assert floats(cells["sepnorm"][1]) == pytest.approx([errors["mean"]], abs=5.01e-5)
    assert floats(cells["sepnorm"][4]) == pytest.approx([100 * errors["improved"]], abs=0.0501)
    binary_text = (written["binary"] / "report.md").read_text()
    tests = read_json(written["binary"] / "results.json")["comparisons"][0]["per_molecule"]
    assert f"{tests['positives']} positives" in binary_text
    cells = table_in(binary_text, "ROC-AUC of the")["sepnorm"]
    assert floats(cells[2]) == pytest.approx([100 * tests["delong"]["difference"]], abs=5.01e-3)
    assert table_in(binary_text, "Other measures").keys() == {"arm", "sharenorm", "sepnorm"}
    assert "one area has a standard error of" in binary_text


def test_one_positive_gives_an_area_and_no_error_of_it(tmp_path):
    results = made(binary(tmp_path, molecules=60, positives=1))
    assert "whether the next training would. 1 positive.\n" in rendered("markdown", results)


def test_the_cost_of_an_arm_is_a_difference_to_the_baseline(written):
    markdown = (written["regression"] / "report.md").read_text()
    cost = table_in(markdown, "Cost per run")
    first, second = read_json(written["regression"] / "results.json")["arms"][:2]
    steps = [statistics.mean(run["ms_per_step"] for run in arm["runs"]) for arm in (first, second)]
    assert floats(cost["sepnorm"][0]) == [second["parameters"] - first["parameters"]]
    assert floats(cost["sepnorm"][2]) == pytest.approx([steps[1] - steps[0]], abs=0.0501)
    assert cost["sharenorm"][2] == DASH
    minutes = [
        statistics.mean(run[name] for run in second["runs"]) / 60
        for name in ("training_seconds", "seconds")
    ]
    shown = [floats(cell)[0] for cell in cost["sepnorm"][4:6]]
    assert shown == pytest.approx(minutes, abs=0.0501)


class Page(HTMLParser):
    """Checks that the elements of a page are closed in order, and keeps what it refers to."""

    VOID = ("meta", "img", "br", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href", "srcset")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@KINDS
def test_the_page_needs_nothing_but_itself(written, name):
    text = (written[name] / "report.html").read_text()
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert page.open == []
    assert page.sources
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert not page.tags & {"script", "link", "iframe"}
    assert "http" not in re.sub(r"data:[^\"]*", "", text)
    assert "url(" not in text
    assert "@import" not in text


@KINDS
def test_every_figure_is_there_and_referred_to(written, name):
    directory = written[name]
    linked = re.findall(r"!\[.*\]\((.*)\)", (directory / "report.md").read_text())
    drawn = {path.relative_to(directory).as_posix() for path in directory.glob("figures/*")}
    assert set(linked) == drawn
    assert len(linked) == len(drawn) == len(Page((directory / "report.html").read_text()).sources)
    assert len(drawn) >= (12 if name == "binary" else 13)
    # Each figure is followed by its title and by how to read it.
    read = re.findall(r"\*\*Figure \d+\. [^*]+\.\*\* .{40,}", (directory / "report.md").read_text())
    assert len(read) == len(linked)
    reports = [*directory.glob("report.*"), *directory.glob("figures/*")]
    assert sum(path.stat().st_size for path in reports) < 2_000_000


def test_partial_results_are_marked(written):
    markdown = (written["incomplete"] / "report.md").read_text()
    top = markdown.partition("## Results")[0]
    assert "Partial results: 6 of 9 runs are finished." in top
    for state in ("sepnorm seed 2 (failed)", "bn+bn seed 1 (missing)", "bn+bn seed 2 (running)"):
        assert state in top
    assert "loss is nan" in top
    assert top.index("Partial results") < top.index("**So far: ")
    arms = table_in(markdown, "The arms.")
    assert "sepnorm (partial: 2 of 3 seeds)" in arms
    assert f"± {DASH}" in arms["bn+bn (partial: 1 of 3 seeds)"][-1]
    assert table_in(markdown, "Difference to")["bn+bn, test"][:3:2] == ["1 (partial)", DASH]
    page = (written["incomplete"] / "report.html").read_text()
    assert "ValueError: loss is nan | at &lt;step&gt; 12" in page
    for name in ("report.md", "report.html"):
        assert "partial" not in (written["regression"] / name).read_text().lower()


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize(("arms", "seeds"), [(1, 3), (3, 1)])
def test_one_arm_or_one_seed_is_enough(tmp_path, arms, seeds):
    regression(tmp_path, molecules=60, arms=arms, seeds=seeds)
    write_report(tmp_path)
    markdown = (tmp_path / "report.md").read_text()
    assert ("Nothing to compare: sharenorm is the only arm." in markdown) == (arms == 1)
    if seeds == 1:
        assert f"± {DASH}" in markdown
    assert "nan" not in markdown.lower().replace("penalised", "")
    assert "None" not in markdown


def test_before_anything_is_finished(values):
    results = copy.deepcopy(values)
    emptied = dict.fromkeys(["validation", "test", "ms_per_step", "seconds", "steps", "epochs"])
    for arm in results["arms"]:
        arm["parameters"] = None
        for run in arm["runs"]:
            run |= emptied | {"status": "running", "geometry": [], "curve": run["curve"][:1]}
    results |= {"complete": False, "comparisons": [], "environment": {}}
    markdown = rendered("markdown", made(results))
    assert "No answer yet" in markdown
    assert "0 of 9 runs are finished" in markdown
    assert "predictions.csv is missing" in markdown
    assert "have been analysed" in markdown


@pytest.mark.usefixtures("coarse")
def test_a_metric_that_is_undefined_is_no_run_that_is_not_finished(tmp_path):
    """As the area under the ROC is where no molecule of the test split is positive."""
    results = binary(tmp_path, molecules=60, positives=0)
    for arm in results["arms"]:
        for run in arm["runs"]:
            run["test"] = None
    for one in results["comparisons"]:
        one |= {"test": None, "per_molecule": None, "holm_p": None, "smallest_holm_p": None}
    write_json(tmp_path / "results.json", results)
    said = (
        "No answer: seeds are finished under both sharenorm and another arm, but for some of them "
        "the test AUROC is undefined (it needs both classes among its labels)."
    )
    assert answers(write_report(tmp_path)) == [said]
    markdown = (tmp_path / "report.md").read_text()
    assert f"**{said}**" in markdown
    assert "sepnorm is not compared: its AUROC, or the baseline's, is undefined" in markdown
    assert "not finished" not in summary(made(results)).lower()
    results["arms"] = results["arms"][:1]
    (text,) = answers(made({**results, "comparisons": []}))
    assert text == "Nothing to compare: sharenorm is the only arm. Its test AUROC is undefined."


def test_without_smiles_it_says_why_no_molecule_is_drawn(values):
    column = np.arange(50.0)
    arms = dict.fromkeys(("sharenorm", "sepnorm"), column)
    predictions = Predictions("", column, column, ("0",) * 50, ("",) * 50, arms)
    assert "holds graphs without SMILES" in rendered("markdown", made(values), predictions)


@pytest.mark.usefixtures("coarse")
def test_report_that_cannot_be_written_is_an_error_of_one_line(tmp_path, monkeypatch):
    regression(tmp_path, molecules=60, arms=1, seeds=1)
    (tmp_path / "report.md").write_text("the one before")

    def full(path, text, **options):
        path.write_bytes(text[:100].encode())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(DataError, match=f"report on {tmp_path} cannot be made: .*No space left"):
        make_report(tmp_path)
    # What was there stays as it was, and no half of a file beside it.
    assert (tmp_path / "report.md").read_bytes() == b"the one before"
    assert not list(tmp_path.rglob("*partial*"))


def test_report_without_its_runs_keeps_the_arm_that_the_others_are_compared_with(tmp_path):
    regression(tmp_path, molecules=60, arms=1, seeds=1)
    before = (tmp_path / "results.json").read_bytes()
    with pytest.raises(DataError, match="its runs are gone, so --baseline cannot be changed"):
        make_report(tmp_path, "sepnorm")
    assert (tmp_path / "results.json").read_bytes() == before
    assert not (tmp_path / "report.md").exists()


def test_markup_in_names_stays_text(values):
    results = copy.deepcopy(values) | {"dataset": "a < b & *c*", "command": ["x", "<y_z>"]}
    results["comparisons"] = []
    results["arms"][1]["options"] = {"model.norm": "x_y | <b>"}
    results["arms"][2]["options"] = {"table": "a\nb"}
    markdown = rendered("markdown", made(results))
    assert markdown.startswith("# sepnorm and bn+bn against sharenorm on a \\< b & \\*c\\*\n\n")
    assert "| sepnorm | model.norm=x\\_y \\| \\<b\\> | " in markdown
    assert "| bn+bn | table=a b | " in markdown
    assert "\n    x '<y_z>'\n" in markdown
    page = rendered("html", made(results))
    assert "<title>sepnorm and bn+bn against sharenorm on a &lt; b &amp; *c*</title>" in page
    assert '<td class="word">model.norm=x_y | &lt;b&gt;</td>' in page
    assert "<code>x &#39;&lt;y_z&gt;&#39;</code>" in page
    assert Page(page).open == []


@pytest.mark.usefixtures("coarse")
def test_the_same_results_give_the_same_report(written, tmp_path):
    first = written["incomplete"]
    for name in ("results.json", "predictions.csv"):
        shutil.copy(first / name, tmp_path)
    write_report(tmp_path)
    names = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")]
    assert len(names) > 15
    assert filecmp.cmpfiles(first, tmp_path, names, shallow=False) == (names, [], [])
