"""What is compared: each row is one kind of work and the sides that do it, ours first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

MATRIX_PRODUCT = "matrix product"


@dataclass(frozen=True)
class Side:
    """Who does the work of a row.

    Attributes:
        label: What it is called in the table.
        module: File in ``benchmarks/sides`` that does it.
        work: Name of the work there.
        options: Beyond those of the row.
        environment: Of which peer (`environments.PEERS`); None is this package's own.
        checkout: Another version of this package; None: this one.
    """

    label: str
    module: str
    work: str
    options: dict[str, Any] = field(default_factory=dict)
    environment: str | None = None
    checkout: Path | None = None


@dataclass(frozen=True)
class Row:
    """One kind of work.

    Attributes:
        subset: By which it is chosen on the command line.
        title: What it is called in the table.
        sides: Ours first.
        threads: Numbers of threads to run it with.
        options: For all sides.
        many: Whether it works on a long table.
    """

    subset: str
    title: str
    sides: tuple[Side, ...]
    threads: tuple[int, ...] = (1,)
    options: dict[str, Any] = field(default_factory=dict)
    many: bool = False


def _ours(work: str, **options: Any) -> Side:
    return Side("ours", "ours", work, options)


def _huggingface(work: str) -> Side:
    return Side("Hugging Face", "huggingface", work, environment="huggingface")


def _chemprop(work: str) -> tuple[Side, Side]:
    python = Side("chemprop", "chemprop", work, {"cuik": False}, environment="chemprop")
    return python, replace(python, label="chemprop, C++ featurizer", options={"cuik": True})


_PEAK = Side(MATRIX_PRODUCT, "plain", "matrix_product")
_TORCH = Side("import torch", "plain", "import_torch")
_FAR = {"max_path_length": 20}  # hops, as in version 1 of Graphormer; else Hugging Face's 5
_RECIPE = "zinc_subset_best"


def _network(work: str, what: str, title: str, ours: str = "", **more: Any) -> Row:
    sides = _ours(ours or work), _huggingface(work), _PEAK
    return Row(work, f"{title}{what}", sides, **more)


def _predict(title: str, **options: Any) -> Row:
    sides = _ours("predict", **options), _huggingface("predict"), *_chemprop("predict")
    return Row("predict", title, sides, threads=(2,), many=True)


_BATCHES = "smiles_to_batches"
_STEP, _PASS = "training step, ", "forward pass"
ROWS = (
    Row(
        "preprocess",
        "SMILES to padded batches",
        (
            *(_ours(_BATCHES), _huggingface(_BATCHES)),
            *(Side("RDKit, parsing alone", "plain", "parse"), *_chemprop(_BATCHES)),
        ),
    ),
    _network("train", "dropout 0.1", _STEP, threads=(1, 2), options={"dropout": 0.1}),
    _network("train", "dropout 0", _STEP, threads=(1, 2), options={"dropout": 0.0}),
    _network("train", _RECIPE, _STEP, "train_recipe", options={"dropout": 0.1, **_FAR}),
    _network("forward", "", _PASS),
    _network("forward", f", {_RECIPE}", _PASS, "forward_recipe", options=_FAR),
    _predict("10,000 SMILES, whole command"),
    *(_predict(f"the same, the bundled model {m}", model=m) for m in ("zinc", "molhiv", "esol")),
    Row("startup", "predict.py --help", (_ours("show_help"), _TORCH)),
    Row("startup", "missing table", (_ours("missing_table"), _TORCH)),
    Row("startup", "first prediction", (_ours("first_prediction"), _TORCH)),
)
SUBSETS = tuple(dict.fromkeys(row.subset for row in ROWS))
