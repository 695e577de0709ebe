"""What is compared: each row is one kind of work and the sides that do it, ours first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

MATRIX_PRODUCT = "matrix product"
Which = Literal["few", "large", "connected", "many"]


@dataclass(frozen=True)
class Side:
    """Who does the work of a row.

    Attributes:
        label: What it is called in the table.
        module: File in ``benchmarks/sides`` that does it.
        work: Name of the work there.
        options: Beyond those of the row.
        environment: Of which peer (`environments.PEERS`); None is this package's own.
    """

    label: str
    module: str
    work: str
    options: dict[str, Any] = field(default_factory=dict)
    environment: str | None = None


@dataclass(frozen=True)
class Row:
    """One kind of work.

    Attributes:
        subset: By which it is chosen on the command line.
        title: What it is called in the table.
        molecules: Which are worked on; see `molecules.write`.
        sides: Ours first.
        threads: Numbers of threads to run it with.
        options: For all sides.
        rounds: At most so many; None: as many as asked for.
        streamed: The output is read while it comes, see `processes.Command`.
    """

    subset: str
    title: str
    molecules: Which
    sides: tuple[Side, ...]
    threads: tuple[int, ...] = (1,)
    options: dict[str, Any] = field(default_factory=dict)
    rounds: int | None = None
    streamed: bool = False


def _huggingface(work: str) -> Side:
    return Side("Hugging Face", "huggingface", work, environment="huggingface")


def _chemprop(work: str, cuik: bool) -> Side:
    label = "chemprop, C++ featuriser" if cuik else "chemprop"
    return Side(label, "chemprop", work, {"cuik": cuik}, environment="chemprop")


def _memory(molecules: Which, title: str) -> Row:
    sides = (Side("ours", "ours", "smiles_to_batches"), _huggingface("smiles_to_batches"))
    return Row("memory", title, molecules, sides)


_PEAK = Side(MATRIX_PRODUCT, "plain", "matrix_product")
_FAR = {"max_path_length": 20}  # hops, as in version 1 of Graphormer; else Hugging Face's 5

ROWS = (
    Row(
        "preprocess",
        "SMILES to padded batches",
        "few",
        (
            Side("ours", "ours", "smiles_to_batches"),
            _huggingface("smiles_to_batches"),
            Side("RDKit, parsing alone", "plain", "parse"),
            _chemprop("smiles_to_batches", cuik=False),
            _chemprop("smiles_to_batches", cuik=True),
        ),
    ),
    _memory("large", "96 large molecules to a batch"),
    _memory("connected", "the same, of one piece each"),
    *(
        Row(
            "train",
            f"training step, dropout {dropout:g}",
            "few",
            (
                Side("ours", "ours", "train"),
                _huggingface("train"),
                Side("PyG GPS 10x64", "gps", "train"),
                _PEAK,
            ),
            threads=(1, 2),
            options={"dropout": dropout},
        )
        for dropout in (0.1, 0.0)
    ),
    *(
        Row(
            "train",
            f"training step, {what}",
            "few",
            (Side("ours", "ours", work), _huggingface("train"), _PEAK),
            options={"dropout": 0.1, **_FAR},
        )
        for what, work in (("20 hops", "train"), ("zinc_subset_best", "train_recipe"))
    ),
    *(
        Row(
            "forward",
            f"forward pass{what}",
            "few",
            (Side("ours", "ours", work), _huggingface("forward"), _PEAK),
            options=options,
        )
        for what, work, options in (
            ("", "forward", {}),
            (", 20 hops", "forward", _FAR),
            (", zinc_subset_best", "forward_recipe", _FAR),
        )
    ),
    Row(
        "predict",
        "10,000 SMILES, whole command",
        "many",
        (
            Side("ours", "ours", "predict"),
            _huggingface("predict"),
            _chemprop("predict", cuik=False),
            _chemprop("predict", cuik=True),
        ),
        threads=(2,),
    ),
    *(
        Row(
            "predict",
            f"the same, the bundled model {model}",
            "many",
            (
                Side("ours", "ours", "predict", {"model": model}),
                _huggingface("predict"),
                _chemprop("predict", cuik=False),
            ),
            threads=(2,),
        )
        for model in ("zinc", "molhiv", "esol")
    ),
    Row(
        "startup",
        "predict.py --help",
        "few",
        (Side("ours", "ours", "show_help"), Side("import torch", "plain", "import_torch")),
    ),
    Row(
        "startup",
        "first prediction",
        "few",
        (Side("ours", "ours", "first_prediction"), Side("import torch", "plain", "import_torch")),
    ),
    Row(
        "zinc",
        "ZINC, whole set, from raw files",
        "few",
        (Side("ours", "zinc_full", "ours"), Side("PyG alone", "zinc_full", "pyg")),
        threads=(2,),
        rounds=1,
    ),
    Row(
        "million",
        "SMILES, streamed",
        "many",
        (Side("ours", "ours", "stream"),),
        threads=(2,),
        rounds=1,
        streamed=True,
    ),
)
# Not run unless asked for: they take minutes, or need data that are not in the repository.
LONG = ("zinc", "million")
SUBSETS = tuple(dict.fromkeys(row.subset for row in ROWS))
