"""The training step of a recipe, as `train.py fit` takes it, here and in another checkout.

python -m benchmarks.recipe CHECKOUT --data-root DIR [--rounds N] [OPTION OF train.py fit ...]

Both train side by side, on the same batches, and take turns of a few steps. What is compared is
their CPU time: a core that is shared takes seconds away, but not work. Validation is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from benchmarks.processes import REPOSITORY, SideFailed, SideProcess, variables
from benchmarks.rounds import ratios, spread, take_turns

# That of this checkout on both sides: norm and batches of the file have changed.
_CONFIG = REPOSITORY / "configs" / "zinc_subset_best.yaml"
_SIDE = REPOSITORY / "benchmarks" / "sides" / "recipe.py"


def main() -> None:
    """Measure, and print one line a side and the ratio."""
    parser = argparse.ArgumentParser(prog="benchmarks.recipe", description=__doc__)
    parser.add_argument("checkout", type=Path, help="of another version, its kernels compiled")
    parser.add_argument("--data-root", type=Path, required=True, help="folder with ZINC")
    parser.add_argument("--config", default=_CONFIG, help=f"of both ({_CONFIG.name} of this one)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=8, help="of a turn (8)")
    options, others = parser.parse_known_args()
    if not (options.checkout / "train.py").is_file():
        parser.error(f"no checkout of this project: {options.checkout}")
    given = [
        "-c",
        str(options.config),
        "--data.root",
        str(options.data_root.resolve()),
        *others,
        # Nothing but steps.
        "--trainer.check_val_every_n_epoch",
        "1000",
        "--trainer.enable_progress_bar",
        "false",
    ]
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as trainings:
        sides = []
        for name, checkout in (("here", REPOSITORY), ("there", options.checkout.resolve())):
            folder = Path(scratch, name)
            folder.mkdir()
            of_run = [str(checkout), str(options.steps), "--output", str(folder / "run"), *given]
            environment = {**variables(1), "PYTHONPATH": ""}
            command = [sys.executable, str(_SIDE), *of_run]
            side = SideProcess(command, environment, folder / "log", checkout)
            trainings.callback(side.close)
            side.round()  # warms up
            sides.append(side)
        here, there = take_turns(
            [side.round for side in sides],
            options.rounds,
            lambda done: print(f"  round {done}", end="\r", file=sys.stderr),
        )
    print(file=sys.stderr)
    for name, seconds in (("here", here), ("there", there)):
        low, median, high = spread(seconds)
        print(f"{name}: {1e3 * median:.1f} ms of CPU a step [{1e3 * low:.1f}, {1e3 * high:.1f}]")
    low, median, high = ratios(there, here)
    print(f"times as fast: {median:.3f} [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    try:
        main()
    except SideFailed as error:
        sys.exit(f"error: {error}")
