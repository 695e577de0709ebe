"""Where the time of our training step or forward pass goes, operation by operation.

python -m benchmarks.profile_step {train,forward} [--threads N] [--dropout P]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.bench import BATCH_SIZE, MAX_PATH_LENGTH
from benchmarks.markdown import table
from benchmarks.molecules import find_molecules
from benchmarks.sides import ours

_LEAST_SHARE = 0.01


def shares(seconds: dict[str, float]) -> list[tuple[str, float]]:
    """Return the operations with at least a hundredth of the time, and the rest, by their share."""
    total = sum(seconds.values())
    listed = {name: own / total for name, own in seconds.items() if own / total >= _LEAST_SHARE}
    rest = [("everything else", 1 - sum(listed.values()))]
    return sorted(listed.items(), key=lambda pair: -pair[1]) + rest


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(prog="benchmarks.profile_step", description=__doc__)
    parser.add_argument("work", choices=("train", "forward"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.1, help="of training (0.1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        given = {
            **find_molecules().write(Path(folder), "few"),
            "batch_size": BATCH_SIZE,
            "max_path_length": MAX_PATH_LENGTH,
            "dropout": options.dropout if options.work == "train" else 0.0,
        }
        run = getattr(ours, options.work)(given).run
    assert run is not None
    run()
    with profile(activities=[ProfilerActivity.CPU]) as measured:
        run()
    seconds = {event.key: event.self_cpu_time_total for event in measured.key_averages()}
    rows = [[name, f"{share:.1%}"] for name, share in shares(seconds)]
    print(table(["operation", "share"], rows))


if __name__ == "__main__":
    main()
