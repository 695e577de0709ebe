"""The table of results: order, marks, numbers."""

from __future__ import annotations

import statistics
from dataclasses import replace

from experiments import experiment, seed_run

from graphormer_sepnorm.runs.records import Experiment
from graphormer_sepnorm.runs.results_table import render


def rows(*experiments: Experiment, files: dict | None = None) -> list[list[str]]:
    """Cells of the rows of all tables."""
    lines = render(experiments, "results", files or {}).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return [row for row in cells if row[0][:1].isdigit()]


def test_row_of_several_seeds() -> None:
    validation, test = [0.1, 0.2, 0.4], [0.3, 0.35, 0.31]
    runs = [
        seed_run(seed, validation=v, test=t, seconds=s)
        for seed, (v, t, s) in enumerate(zip(validation, test, (300, 600, 900), strict=True))
    ]
    (row,) = rows(experiment(*runs))
    assert row == [
        "1. mine",
        "0, 1, 2",
        "489,481",
        "1,000",
        "10 min",
        "A GPU",
        f"{statistics.mean(validation):.4f} ± {statistics.stdev(validation):.4f}",
        f"{statistics.mean(test):.4f} ± {statistics.stdev(test):.4f}",
    ]


def test_single_seed_is_marked_and_has_no_deviation() -> None:
    (row,) = rows(experiment(seed_run(5)))
    assert row[0] == "1. mine †"
    assert row[-2:] == ["0.3000", "0.4000"]


def test_unfinished_experiment_has_steps_and_no_test_value() -> None:
    run = seed_run(1, finished=False, steps=250, validation=0.2, test=None, interruptions=1)
    (row,) = rows(experiment(run))
    assert (row[0], row[1], row[3]) == ("1. mine †‡", "1‡", "250 of 1,000‡")
    assert row[-2:] == ["0.2000", "-"]


def test_unfinished_seed_counts_in_no_mean() -> None:
    late = seed_run(2, finished=False, steps=250, validation=9.0, test=None, parameters=1)
    (row,) = rows(experiment(seed_run(0), seed_run(1), late))
    assert row[:4] == ["1. mine ‡", "0, 1, 2‡", "489,481", "1,000, 250 of 1,000‡"]
    assert row[-2:] == ["0.3000 ± 0.0000", "0.4000 ± 0.0000"]


def test_order_is_that_of_validation_and_never_of_test() -> None:
    def of(name: str, validation: float | None, test: float | None, finished=True) -> Experiment:
        run = seed_run(validation=validation, test=test, finished=finished)
        return experiment(run, name=name, options={"name": name})

    late = seed_run(0, finished=False, validation=0.9, test=None)
    begun_again = experiment(late, seed_run(1, validation=0.25), name="between", options={})
    found = rows(
        begun_again,
        of("third", 0.5, 0.1),
        of("unfinished", 0.1, None, finished=False),
        of("first", 0.2, 0.9),
        of("unknown", None, 0.0),
        of("second", 0.3, 0.5),
    )
    assert [row[0].split()[1] for row in found] == [
        "first",
        "between",
        "second",
        "third",
        "unknown",
        "unfinished",
    ]


def test_auroc_is_in_per_cent_and_the_highest_comes_first() -> None:
    found = rows(
        *(
            experiment(
                seed_run(validation=value, test=value - 0.01), metric="auroc", name=f"{value}",
                options={"value": value},
            )
            for value in (0.7, 0.81234)
        )
    )  # fmt: skip
    assert [row[-2] for row in found] == ["81.23 %", "70.00 %"]


def test_groups_are_data_sets_and_splits_with_what_is_to_be_said_of_them() -> None:
    text = render(
        [
            experiment(data_note="Another draw."),
            experiment(seed_run(validation=0.1), data_note=None, options={}),
            experiment(
                seed_run(validation=0.1),
                dataset="mine",
                split=None,
                unit=None,
                molecules=None,
                options={},
            ),
            experiment(dataset="mine", split="at random", unit="eV", molecules=(70, 20, 10)),
            experiment(
                dataset="mine",
                dataset_fingerprint="f2",
                split="by scaffold",
                data_note=None,
                molecules=None,
            ),
        ],
        "results",
        {},
    )
    assert text.count("\n## zinc-subset\n") == 1
    assert text.count("\n## mine\n") == 2
    assert text.count("**Another draw.**") == 1
    assert "10,000 / 1,000 / 1,000 molecules" in text
    assert "MAE, eV" in text
    assert text.count("Split: at random.") == 1  # an older record of these data says none
    assert text.count("70 / 20 / 10 molecules") == 1
    assert text.count("Split: by scaffold.") == 1
    assert text.count("nothing more about their data") == 1


def test_details_of_an_experiment() -> None:
    runs = [
        seed_run(0, torch="2.11.0", interruptions=1, seconds=7200),
        seed_run(1, commit="fedcba9876543210+changes", interruptions=2, seconds=7200),
    ]
    one = experiment(*runs, options={"ema_decay": 0.999})
    text = render([one], "results", {})
    assert "2.0 h, 3 interruptions" in text
    assert f"1. `{one.commands[0]}`" in text
    assert "selected on validation MAE; moving average of the weights (0.999)" in text
    assert "torch 2.11.0; 2.13.0; commit 0123456789, fedcba9876+changes" in text
    taken = replace(one, selected_on="step")
    assert "   end of training; moving average" in render([taken], "results", {})


def test_what_is_not_known_is_a_dash() -> None:
    runs = seed_run(parameters=None, device=None, torch=None, commit=None, validation=None)
    (row,) = rows(experiment(runs))
    assert (row[2], row[5], row[6]) == ("-", "-", "-")
    assert "torch -; commit -" in render([experiment(runs)], "results", {})


def test_differing_runs_show_their_range() -> None:
    runs = [seed_run(0, steps=800, seconds=50), seed_run(1, device="B | C", seconds=50)]
    (row,) = rows(experiment(*runs))
    assert (row[3], row[4], row[5]) == ("800 to 1,000", "50 s", "A GPU; B / C")


def test_what_a_file_said_is_shown_where_it_says_so_no_longer() -> None:
    """Not what the command sets, and not what the file still says."""
    typed = {"commands": ("python train.py fit -c mine.yaml --model.width 32",)}
    experiments = [
        experiment(seed_run(validation=0.1), options={"model.layers": 4, "model.width": 64}),
        experiment(seed_run(validation=0.2), options={"model.layers": 4, "model.width": 80}),
        experiment(seed_run(validation=0.3), options={"model.layers": 4}),
        experiment(
            seed_run(validation=0.4), options={"model.layers": 4, "model.width": 32}, **typed
        ),
        experiment(seed_run(validation=0.5), options={"model.width": 80}, name="own · a"),
    ]
    files = {"mine": {"model.layers": 4, "model.width": 80}}
    marked = ["1. mine †§", "2. mine †", "3. mine †§", "4. mine †", "5. own · a †"]
    assert [row[0] for row in rows(*experiments, files=files)] == marked
    said = [
        line for line in render(experiments, "results", files).splitlines() if "commit " in line
    ]
    assert [line.partition("; § ")[2] for line in said] == [
        "model.width=64",
        "",
        "model.width=default",
        "",
        "",
    ]
