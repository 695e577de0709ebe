"""Made-up results of a comparison, in the form that a report is made from."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from graphormer_sepnorm.compare.geometry import LayerGeometry, uniformity_floor
from graphormer_sepnorm.compare.results import ArmResult, CurvePoint, Results, RunResult
from graphormer_sepnorm.graphs.task import Task

LAYERS = [*(f"layer {number}" for number in range(1, 13)), "output"]
NORMS = {"sharenorm": "shared-ln", "sepnorm": "bn+ln", "bn+bn": "bn+bn"}
ENVIRONMENT = {
    "packages": {"torch": "2.11.0", "rdkit": "2026.9.1"},
    "commit": "38fcbff0c0ffee",
    "machine": {"system": "Linux", "processor": "A made-up CPU", "cores": 2, "device": "cpu"},
    "python": "3.11.9",
}
# Runs that are not finished, by arm and seed.
Lacking = Mapping[tuple[str, int], RunResult]


def regression(*, seeds: int = 3, arms: int = 3, lacking: Lacking | None = None) -> Results:
    """Arms on a regression; the second is better than the first by about 0.02."""
    tests = dict(list({"sharenorm": 0.475, "sepnorm": 0.455, "bn+bn": 0.4725}.items())[:arms])
    task = Task("regression", ("penalized_logp",), ("",), "mae")
    return _results("zinc-subset", task, tests, seeds, lacking or {})


def binary(*, seeds: int = 4) -> Results:
    """Two arms on a classification; more is better."""
    task = Task("binary", ("HIV_active",), ("",), "auroc")
    return _results("ogbg-molhiv", task, {"sharenorm": 0.733, "sepnorm": 0.754}, seeds, {})


def incomplete() -> Results:
    """The regression with a run missing, one failed, and one arm with a single seed."""
    error = "ValueError: loss is nan | at <step> 12"
    lacking = {
        ("sepnorm", 2): RunResult(2, "failed", error=error),
        ("bn+bn", 1): RunResult(1, "missing"),
        ("bn+bn", 2): RunResult(2, "running"),
    }
    return regression(lacking=lacking)


def written(results: Results, directory: Path) -> Path:
    """Write results to a directory that may not be there yet."""
    directory.mkdir(exist_ok=True)
    results.write(directory)
    return directory


def _results(
    dataset: str, task: Task, tests: dict[str, float], seeds: int, lacking: Lacking
) -> Results:
    random = np.random.default_rng(0)
    effects = random.normal(0, 0.004, seeds)  # what a seed does to all arms alike
    runs = {
        (name, seed): _run(name, seed, test + effects[seed], task.main.better, random)
        for name, test in tests.items()
        for seed in range(seeds)
    }
    for place, run in lacking.items():
        runs[place] = replace(run, curve=runs[place].curve)
    return Results(
        dataset=dataset,
        dataset_fingerprint="5f3c1e8a90",
        molecules={"train": 10_000, "validation": 1000, "test": 1000},
        task=task,
        configuration={"data": {"batch_size": 64, "table": None}, "model": {"layers": 12}},
        seeds=tuple(range(seeds)),
        baseline="sharenorm",
        complete=not lacking,
        arms=tuple(
            ArmResult(
                name,
                {"model.norm": NORMS[name]},
                489_481 + 4000 * number,
                tuple(runs[name, seed] for seed in range(seeds)),
                f"validation_{task.metric}",
            )
            for number, name in enumerate(tests)
        ),
        environment=ENVIRONMENT,
    )


def _run(name: str, seed: int, level: float, better: str, random: np.random.Generator) -> RunResult:
    test = level + random.normal(0, 0.003)
    epochs = np.arange(1, 25)
    way = np.exp(-epochs / 6) * (1 + 0.1 * random.normal(size=24))
    validation = test + (0.9 if better == "lower" else -0.2) * way
    seconds = 5498.0 + 30 * random.normal()
    curve = zip(epochs.tolist(), (0.4 + way).tolist(), validation.tolist(), strict=True)
    return RunResult(
        seed,
        "finished",
        directory=f"{name}/seed{seed}",
        steps=24 * 157,
        epochs=24,
        validation=float(validation.min() if better == "lower" else validation.max()),
        test=test,
        seconds=seconds,
        ms_per_step=950 + (name != "sharenorm") * 35 + 4 * random.normal(),
        curve=tuple(CurvePoint(epoch, loss, value) for epoch, loss, value in curve),
        geometry=tuple(_geometry(layer, name != "sharenorm", random) for layer in LAYERS),
    )


def _geometry(layer: str, batch_norm: bool, random: np.random.Generator) -> LayerGeometry:
    depth = LAYERS.index(layer)
    return LayerGeometry(
        layer,
        uniformity=-(2.6 if batch_norm else 0.8) - 0.04 * depth - random.normal() / 9,
        uniformity_floor=uniformity_floor(80),
        effective_rank=14 + depth + random.normal(),
        cosine_to_atoms=(0.5 if batch_norm else 0.8) - depth / 40,
        probes={"atoms": (0.99 if batch_norm else 0.7) - depth / 50},
    )
