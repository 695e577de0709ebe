"""Makes a model that comes with the package out of a training run.

    python data/make_model.py RUN NAME "what it predicts"

writes ``data/models/NAME.ckpt``: the best checkpoint of the run without what only training needs,
with the run's test result in it. Where it knows more than `MOST_KEPT` training molecules the run is
ended anew with so many, by their fingerprints: the file stays small. The model card
``data/models/NAME.md`` is written by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.inference.checkpoint import (
    CONFIDENCE,
    find_checkpoint,
    for_prediction,
    read_checkpoint,
    write_checkpoint,
)
from graphormer_sepnorm.inference.model_card import describe
from graphormer_sepnorm.pipeline import calibrate

MODELS = Path(__file__).resolve().parent / "models"
LARGEST_BYTES = 4_000_000
MOST_KEPT = 12_000


def main(run: str, name: str, purpose: str) -> None:
    """Write the file and show what it says about itself."""
    known = read_checkpoint(find_checkpoint(run)).get(CONFIDENCE, {}).get("neighbors")
    if known and len(known["numbers"]) > MOST_KEPT:
        calibrate.MOST_KEPT = MOST_KEPT
        if train(["fit", "--resume", run, "--keep", "fingerprints"]) != 0:
            raise SystemExit(f"{run} could not be ended anew")
    result = json.loads((Path(run) / "summary.json").read_text(encoding="utf-8"))
    tests = [
        f"{key.removeprefix('test_')} {value:.4f}"
        for key, value in result.items()
        if key.startswith("test_") and key != "test_loss"
    ]
    card = {"model of the package": name, "purpose": purpose, "test": ", ".join(tests)}
    path = MODELS / f"{name}.ckpt"
    write_checkpoint(for_prediction(read_checkpoint(run), card), path)
    if path.stat().st_size > LARGEST_BYTES:
        raise SystemExit(f"{path} has {path.stat().st_size:,} bytes, more than {LARGEST_BYTES:,}")
    print(describe(read_checkpoint(path), path))


if __name__ == "__main__":
    main(*sys.argv[1:])
