"""Made-up results of a comparison, in the form that a report is made from."""

from __future__ import annotations

import csv
import gzip
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rdkit import Chem

from graphormer_sepnorm.compare.geometry import uniformity_floor
from graphormer_sepnorm.compare.predictions import write_predictions
from graphormer_sepnorm.compare.roc_statistics import (
    auc_standard_error,
    delong,
    paired_bootstrap_auc,
)
from graphormer_sepnorm.compare.statistics import holm, paired_difference, paired_errors
from graphormer_sepnorm.files import write_json

SAMPLE = Path(__file__).parents[3] / "data" / "sample.csv.gz"
LAYERS = [*(f"layer {number}" for number in range(1, 13)), "output"]
NORMS = {"sharenorm": "shared-ln", "sepnorm": "bn+ln", "bn+bn": "bn+bn", "shared-bn": "shared-bn"}
ENVIRONMENT = {
    "packages": {"torch": "2.11.0", "rdkit": "2026.9.1"},
    "commit": "38fcbff0c0ffee",
    "machine": {"system": "Linux", "processor": "A made-up CPU", "cores": 2, "device": "cpu"},
    "python": "3.11.9",
}


def regression(
    directory: Path, *, seeds: int = 3, shift: float = -0.02, molecules: int = 1000
) -> dict[str, Any]:
    """Write three arms on a regression; the second differs from the first by about `shift`."""
    random = np.random.default_rng(0)
    tests = {"sharenorm": 0.475, "sepnorm": 0.475 + shift, "bn+bn": 0.475 + shift / 8}
    results = _results("mae", "", seeds, tests, random)
    results |= {"dataset": "zinc-subset"}
    results["molecules"] |= {"train": 10_000, "validation": 1000}
    texts = _sample_smiles(molecules)
    atoms = np.array([Chem.MolFromSmiles(text).GetNumAtoms() for text in texts])
    target = 2.5 - 0.12 * np.abs(atoms - 24) + random.standard_t(4, molecules)
    noise = random.standard_t(3, molecules) * 0.3
    arms = {
        name: target + noise + random.standard_t(3, molecules) * test * (0.5 + atoms / 50)
        for name, test in tests.items()
    }
    _write(directory, results, texts, atoms, target, arms)
    return results


def binary(
    directory: Path, *, seeds: int = 4, molecules: int = 1500, positives: int | None = None
) -> dict[str, Any]:
    """Write two arms on a classification with few positives; more is better."""
    random = np.random.default_rng(1)
    results = _results("auroc", "", seeds, {"sharenorm": 0.733, "sepnorm": 0.754}, random)
    results |= {"dataset": "ogbg-molhiv"}
    texts = _sample_smiles(molecules)
    atoms = np.array([Chem.MolFromSmiles(text).GetNumAtoms() for text in texts])
    target = (random.random(molecules) < 0.05).astype(float)
    if positives is not None:
        target = (np.arange(molecules) < positives).astype(float)
    arms = {
        name: 1 / (1 + np.exp(3.4 - 1.6 * gain * target - random.normal(0, 1.2, molecules)))
        for name, gain in {"sharenorm": 0.8, "sepnorm": 1.1}.items()
    }
    _write(directory, results, texts, atoms, target, arms)
    return results


def incomplete(directory: Path) -> dict[str, Any]:
    """Write the regression with a run missing, one failed, and one arm with a single seed."""
    results = regression(directory)
    failed = {"status": "failed", "error": "ValueError: loss is nan | at <step> 12"}
    for arm, seed, change in (
        ("sepnorm", 2, failed),
        ("bn+bn", 1, {"status": "missing"}),
        ("bn+bn", 2, {"status": "running"}),
    ):
        run = next(one for one in results["arms"] if one["name"] == arm)["runs"][seed]
        emptied = dict.fromkeys(run.keys() - {"seed", "directory", "curve", "geometry"})
        run |= emptied | {"geometry": [], "error": None} | change
    results["complete"] = False
    _compare(results)
    write_json(directory / "results.json", results)
    return results


def only(results: dict[str, Any], directory: Path, arms: int, seeds: int) -> dict[str, Any]:
    """Leave the first arms and seeds, and write that."""
    results["arms"] = results["arms"][:arms]
    results["seeds"] = results["seeds"][:seeds]
    for arm in results["arms"]:
        arm["runs"] = arm["runs"][:seeds]
    _compare(results)
    write_json(directory / "results.json", results)
    return results


def _sample_smiles(molecules: int) -> list[str]:
    with gzip.open(SAMPLE, "rt") as file:
        texts = [row["smiles"] for row in csv.DictReader(file)]
    return [texts[number % len(texts)] for number in range(molecules)]


def _results(
    metric: str, unit: str, seeds: int, tests: dict[str, float], random: np.random.Generator
) -> dict[str, Any]:
    better = "lower" if metric == "mae" else "higher"
    results: dict[str, Any] = {
        "format_version": 1,
        "dataset": "",
        "dataset_fingerprint": "5f3c1e8a90",
        "molecules": {"train": 1000, "validation": 100, "test": 0},
        "task": {
            "kind": "regression" if metric == "mae" else "binary",
            "targets": ["penalised_logp" if metric == "mae" else "HIV_active"],
            "units": [unit],
            "metric": metric,
        },
        "metric": metric,
        "better": better,
        "unit": unit,
        "command": ["python", "train.py", "compare", "-c", "configs/zinc_subset.yaml"],
        "configuration": {"data": {"batch_size": 64}, "model": {"layers": 12}},
        "base_options": ["-c", "configs/zinc_subset.yaml", "--data.batch_size", "64"],
        "seeds": list(range(seeds)),
        "baseline": "sharenorm",
        "complete": True,
        "environment": ENVIRONMENT,
        "environments_differ": {},
    }
    effects = random.normal(0, 0.004, seeds)  # what a seed does to all arms alike
    results["arms"] = [
        {
            "name": name,
            "options": {"model.norm": NORMS[name]},
            "parameters": 489_481 + 4000 * number,
            "runs": [
                _run(name, seed, test + effects[seed], better, random) for seed in range(seeds)
            ],
        }
        for number, (name, test) in enumerate(tests.items())
    ]
    return results


def _run(
    name: str, seed: int, level: float, better: str, random: np.random.Generator
) -> dict[str, Any]:
    test = level + random.normal(0, 0.003)
    epochs = np.arange(1, 25)
    way = np.exp(-epochs / 6) * (1 + 0.1 * random.normal(size=24))
    validation = test + (0.9 if better == "lower" else -0.2) * way
    seconds = 5498.0 + 30 * random.normal()
    return {
        "seed": seed,
        "status": "finished",
        "directory": f"{name}/seed{seed}",
        "steps": 24 * 157,
        "epochs": 24,
        "validation": float(validation.min() if better == "lower" else validation.max()),
        "test": test,
        "seconds": seconds,
        "training_seconds": seconds - 200,
        "graphs_per_second": 67 - (name != "sharenorm") * 2.5,
        "ms_per_step": 950 + (name != "sharenorm") * 35 + 4 * random.normal(),
        "curve": [
            {
                "epoch": int(epoch),
                "step": int(epoch) * 157,
                "train_loss": float(0.4 + w),
                "validation": float(v),
            }
            for epoch, w, v in zip(epochs, way, validation, strict=True)
        ],
        "geometry": _geometry(name, seed, random),
        "error": None,
    }


def _geometry(name: str, seed: int, random: np.random.Generator) -> list[dict[str, Any]]:
    entries = []
    batch_norm = name != "sharenorm"
    for depth, layer in enumerate(LAYERS):
        for what in ("graph token", "atoms"):
            token = what == "graph token"
            spread = (0.8 if token and not batch_norm else 2.6) + 0.04 * depth + random.normal() / 9
            slope = 25 if batch_norm or not token else 12
            entry = {
                "layer": layer,
                "what": what,
                "uniformity": -spread,
                "uniformity_floor": uniformity_floor(80),
                "effective_rank": slope + depth + random.normal(),
                "effective_rank_centred": slope * 1.2 + depth + random.normal(),
                "log_singular_values": list(6 - np.arange(80) / slope - random.random() / 5),
                "cosine_to_atoms": (0.5 if batch_norm else 0.8) - depth / 40 if token else None,
                "probes": {
                    "atoms": (0.99 if batch_norm else 0.7) - depth / 50,
                    "rings": 0.8 - random.random() / 20,
                    "target": 0.5 + depth / 30,
                }
                if token
                else None,
            }
            if seed == 0 and layer in LAYERS[-2:]:
                width = 0.3 if token and not batch_norm else 1.0
                cloud = random.normal(random.normal(0, 1 - width / 2, 50), width, (2000, 50))
                edges = np.linspace(cloud.min(), cloud.max(), 61)
                counts = [np.histogram(column, edges)[0].tolist() for column in cloud.T]
                entry["histogram"] = {"edges": edges.tolist(), "counts": counts}
            entries.append(entry)
    return entries


def _write(
    directory: Path,
    results: dict[str, Any],
    smiles: list[str],
    atoms: np.ndarray,
    target: np.ndarray,
    arms: dict[str, np.ndarray],
) -> None:
    results["molecules"]["test"] = len(target)
    baseline = arms[results["baseline"]]
    for name, predicted in arms.items():
        if name == results["baseline"]:
            continue
        if results["metric"] == "mae":
            errors = (np.abs(column - target) for column in (baseline, predicted))
            results.setdefault("per_molecule", {})[name] = asdict(paired_errors(*errors))
        else:
            results.setdefault("per_molecule", {})[name] = {
                "delong": asdict(delong(target, baseline, predicted)),
                "bootstrap": asdict(paired_bootstrap_auc(target, baseline, predicted, 200)),
                "positives": int(target.sum()),
                "standard_error": auc_standard_error(target, baseline),
            }
    _compare(results)
    write_json(directory / "results.json", results)
    columns = {name: predicted[:, None] for name, predicted in arms.items()}
    path = directory / "predictions.csv"
    write_predictions(path, smiles, atoms.tolist(), ("y",), target[:, None], columns)


def _compare(results: dict[str, Any]) -> None:
    """Fill in the comparisons, from the runs that are finished under both arms."""
    finished = {
        arm["name"]: {run["seed"]: run for run in arm["runs"] if run["status"] == "finished"}
        for arm in results["arms"]
    }
    baseline = finished[results["baseline"]]
    results["comparisons"] = []
    for name, runs in finished.items():
        common = sorted(runs.keys() & baseline.keys())
        if name == results["baseline"] or not common:
            continue
        comparison: dict[str, Any] = {"arm": name, "baseline": results["baseline"], "seeds": common}
        for part in ("validation", "test"):
            pairs = ([of[seed][part] for seed in common] for of in (baseline, runs))
            difference = paired_difference(*pairs)
            comparison[part] = asdict(difference) | {"resolved": difference.resolved}
        comparison["per_molecule"] = results["per_molecule"].get(name)
        comparison["paper_relative_percent"] = -12.2 if results["metric"] == "mae" else 3.1
        results["comparisons"].append(comparison)
    tests = [one["test"] for one in results["comparisons"]]
    for name, value in (("holm_p", "p_value"), ("smallest_holm_p", "smallest_p")):
        adjusted = holm([one[value] for one in tests])
        for one, p in zip(results["comparisons"], adjusted.tolist(), strict=True):
            one[name] = p
