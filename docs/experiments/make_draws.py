"""Data roots with disjoint draws of ZINC's training molecules, for protocol P2.

    python docs/experiments/make_draws.py ROOT DIR

ROOT holds ZINC (`ROOT/ZINC/raw`). DIR/drawK, for each K, is a data root of zinc-subset
whose 10,000 training molecules are disjoint from those of all other draws; validation is that of
the published subset, test are all 5,000 test molecules of ZINC.
"""

import sys
from pathlib import Path

import numpy as np

SEED, SIZE, TEST = 2026, 10_000, 5_000
MOLECULES = 220_010  # of the training set


def main(root: Path, to: Path) -> None:
    """Write the draws."""
    raw = (root / "ZINC" / "raw").resolve()
    order = np.random.Generator(np.random.PCG64(SEED)).permutation(MOLECULES)
    for draw in range(MOLECULES // SIZE):
        folder = to / f"draw{draw}" / "ZINC" / "raw"
        folder.mkdir(parents=True)
        for split in ("train", "val", "test"):
            (folder / f"{split}.pickle").symlink_to(raw / f"{split}.pickle")
        chosen = np.sort(order[draw * SIZE : (draw + 1) * SIZE])
        (folder / "train.index").write_text(",".join(map(str, chosen)) + "\n")
        (folder / "val.index").write_text((raw / "val.index").read_text())
        (folder / "test.index").write_text(",".join(map(str, range(TEST))) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
