"""The factors of the norms: by hand, and by a regression with an effect of each seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from graphormer_sepnorm.compare.factors import factor_effects
from graphormer_sepnorm.compare.report.document import factors, page, summary
from graphormer_sepnorm.compare.results import Results
from graphormer_sepnorm.compare.statistics import holm
from graphormer_sepnorm.files import typed

SEPARATE = ("ln+ln", "ln+bn", "bn+ln", "bn+bn")
SIX = ("shared-ln", "shared-bn", *SEPARATE)
ALL_SIX = "separation, all six arms"
SEPARATION = [
    "separation of LayerNorm",
    "separation of BatchNorm",
    "separation, the same kind on both",
]
SEEDS = 5


def plain_results(
    arms: dict[str, tuple[dict[str, str], np.ndarray]], norm: str = ""
) -> dict[str, Any]:
    """Arms with their options and the test metric of each seed, nan if that is not finished."""
    plain = dict.fromkeys(("dataset", "dataset_fingerprint", "unit"), "")
    task = {"kind": "regression", "targets": ["y"], "units": [""], "metric": "mae"}
    entries = [
        {
            "name": name,
            "options": options,
            "parameters": 1,
            "runs": [
                {"seed": seed, "status": "missing" if np.isnan(test) else "finished", "test": test}
                for seed, test in enumerate(tests)
            ],
        }
        for name, (options, tests) in arms.items()
    ]
    return (
        plain
        | {"molecules": {}, "task": task, "metric": "mae", "better": "lower", "command": []}
        | {"seeds": list(range(SEEDS)), "baseline": next(iter(arms)), "complete": True}
        | {"arms": entries, "configuration": {"model": {"norm": norm}}}
    )


def of_norms(norms: tuple[str, ...], seed: int = 0) -> dict[str, np.ndarray]:
    """Test metrics in which seeds differ by more than norms do."""
    random = np.random.default_rng(seed)
    shared = random.normal(1, 0.3, SEEDS)
    return {norm: shared + random.normal(0, 0.1, SEEDS) for norm in norms}


def with_norms(tests: dict[str, np.ndarray]) -> Results:
    arms = {norm: ({"model.norm": norm}, column) for norm, column in tests.items()}
    return typed(Results, plain_results(arms))


def test_effects_by_hand() -> None:
    y = of_norms(SIX)
    expected = {
        "BatchNorm on the atoms": ((y["ln+bn"] - y["ln+ln"]) + (y["bn+bn"] - y["bn+ln"])) / 2,
        "BatchNorm on [CLS]": ((y["bn+ln"] - y["ln+ln"]) + (y["bn+bn"] - y["ln+bn"])) / 2,
        "interaction of the two": (y["bn+bn"] - y["bn+ln"]) - (y["ln+bn"] - y["ln+ln"]),
        "separation of LayerNorm": y["ln+ln"] - y["shared-ln"],
        "separation of BatchNorm": y["bn+bn"] - y["shared-bn"],
        "separation, the same kind on both": (
            (y["ln+ln"] - y["shared-ln"]) + (y["bn+bn"] - y["shared-bn"])
        )
        / 2,
        ALL_SIX: (y["ln+ln"] + y["ln+bn"] + y["bn+ln"] + y["bn+bn"]) / 4
        - (y["shared-ln"] + y["shared-bn"]) / 2,
    }
    found = factor_effects(with_norms(y))
    assert [one.name for one in found] == list(expected)
    for one, by_seed in zip(found, expected.values(), strict=True):
        test = stats.ttest_1samp(by_seed, 0)
        interval = test.confidence_interval(0.95)
        flipped = stats.permutation_test(
            (by_seed,), np.mean, permutation_type="samples", n_resamples=np.inf
        )
        assert one.difference.seeds == SEEDS
        assert one.difference.mean == pytest.approx(by_seed.mean())
        assert (one.difference.low, one.difference.high) == pytest.approx(tuple(interval))
        assert one.difference.p_value == pytest.approx(flipped.pvalue)
    adjusted = holm([one.difference.p_value for one in found])
    assert [one.holm_p for one in found] == adjusted.tolist()


def test_effects_by_least_squares() -> None:
    """With an effect of each seed, the factors coded -1/2 and 1/2, and their product."""
    y = of_norms(SEPARATE, seed=1)
    rows, observed = [], []
    for norm, column in y.items():
        token, atoms = (0.5 if part == "bn" else -0.5 for part in norm.split("+"))
        for seed, value in enumerate(column):
            rows.append([*np.eye(SEEDS)[seed], atoms, token, atoms * token])
            observed.append(value)
    fitted = np.linalg.lstsq(np.array(rows), np.array(observed), rcond=None)[0]
    found = factor_effects(with_norms(y))
    assert [one.difference.mean for one in found] == pytest.approx(fitted[SEEDS:].tolist())


def test_separation_over_all_six_arms_by_least_squares() -> None:
    """Beside an effect of each seed, of BatchNorm on the atoms and of BatchNorm on [CLS]."""
    y = of_norms(SIX, seed=2)
    rows, observed = [], []
    for norm, column in y.items():
        separate = "+" in norm
        token, atoms = norm.split("+") if separate else [norm.removeprefix("shared-")] * 2
        kinds = [0.5 if part == "bn" else -0.5 for part in (token, atoms)]
        for seed, value in enumerate(column):
            rows.append([*np.eye(SEEDS)[seed], *kinds, separate])
            observed.append(value)
    fitted = np.linalg.lstsq(np.array(rows), np.array(observed), rcond=None)[0]
    found = {one.name: one.difference.mean for one in factor_effects(with_norms(y))}
    assert found[ALL_SIX] == pytest.approx(fitted[-1])


def test_shared_or_separate_times_the_kind() -> None:
    found = factor_effects(with_norms(of_norms(("shared-ln", "shared-bn", "ln+ln", "bn+bn"))))
    assert [one.name for one in found] == SEPARATION


@pytest.mark.parametrize("norms", [("shared-ln", "bn+ln", "bn+bn"), SEPARATE[:3], SIX[:3]])
def test_other_arms_are_no_factorial(norms: tuple[str, ...]) -> None:
    results = with_norms(of_norms(norms))
    assert factor_effects(results) == []
    assert len(factors(results)) == 1


def test_only_seeds_that_all_arms_of_an_effect_have_count() -> None:
    y = of_norms(SIX)
    y["shared-ln"][1:4] = np.nan
    y["ln+bn"][:] = np.nan
    found = {one.name: one.difference for one in factor_effects(with_norms(y))}
    assert list(found) == SEPARATION
    by_seed = (y["ln+ln"] - y["shared-ln"])[[0, 4]]
    assert found["separation of LayerNorm"].mean == pytest.approx(by_seed.mean())
    assert [one.seeds for one in found.values()] == [2, SEEDS, 2]


def test_arms_are_told_apart_by_their_options_and_not_by_their_names() -> None:
    y = of_norms(SEPARATE)
    names = dict(zip(SEPARATE, ("LN+LN", "ln+bn", "sepnorm", ""), strict=True))
    arms = {}
    for readout in ("both", "graph_token"):
        for place, norm in enumerate(SEPARATE):
            # The last norm is that of the configuration.
            options = {"model.norm": names[norm]} if names[norm] else {}
            tests = y[norm] + (readout == "both") * place
            arms[f"{readout} {place}"] = (options | {"model.readout": readout}, tests)
    arms["lonely"] = ({"model.norm": "bn+bn", "model.layers": "3"}, y["bn+bn"])
    found = factor_effects(typed(Results, plain_results(arms, "bn+bn")))
    assert [one.name for one in found] == [
        f"{name}, model.readout={readout}"
        for readout in ("both", "graph_token")
        for name in ("BatchNorm on the atoms", "BatchNorm on [CLS]", "interaction of the two")
    ]
    plain = [one.difference.mean for one in factor_effects(with_norms(y))]
    assert [one.difference.mean for one in found[3:]] == pytest.approx(plain)
    assert found[0].difference.mean == pytest.approx(plain[0] + 1)


def test_effects_stand_in_the_page_and_in_the_summary() -> None:
    results = with_norms(of_norms(SIX))
    html, markdown = page(results), summary(results)
    for row, one in zip(factors(results)[1:], factor_effects(results), strict=True):
        value = f"{one.difference.mean:+.3f}".replace("-", "\N{MINUS SIGN}")
        assert row[:3] == [one.name, "5", value]
        assert f"<td>{row[3]}</td>" in html
        assert row[3] in markdown
