"""Draws how time and memory grow with the size of molecules and with their number.

    OMP_NUM_THREADS=1 python -m benchmarks.growth docs/images/growth.png

On the left the time of a molecule (chains of phenylalanine, batches of 32, the slim model with 5
hops), on the right ``predict.py esol`` on a table, by one process. Prints the numbers as CSV.
"""

from __future__ import annotations

import sys
import tempfile
import timeit
from pathlib import Path
from statistics import median

from benchmarks.molecules import find_molecules
from benchmarks.processes import REPOSITORY, Command, variables
from graphormer_sepnorm.files import replacing

RESIDUES, BATCH, ROUNDS = (1, 2, 4, 8, 16, 32), 32, 5
ROWS = (100, 1_000, 10_000, 30_000)
PREDICT = [sys.executable, str(REPOSITORY / "predict.py"), "esol", "--overwrite", "--jobs", "1"]


def sizes(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return atoms of a molecule, and milliseconds that it takes, for each kind of work."""
    import torch

    from benchmarks.sides import ours

    torch.set_num_threads(1)
    works = {
        "SMILES to batches": ours.smiles_to_batches,
        "forward pass": ours.forward,
        "training step": ours.train,
    }
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in works}
    for residues in RESIDUES:
        smiles = folder / "chains.smi"
        smiles.write_text("\n".join(["N" + "C(Cc1ccccc1)C(=O)N" * residues] * BATCH))
        options = {"smiles": str(smiles), "batch_size": BATCH, "max_path_length": 5, "dropout": 0.1}
        for name, make in works.items():
            run, setup = make(options).run, "import gc; gc.enable()"
            assert run is not None
            times = timeit.repeat(run, setup, number=1, repeat=ROUNDS + 1)[1:]
            atoms, milliseconds = 1 + 11 * residues, 1000 * median(times) / BATCH
            found[name].append((atoms, milliseconds))
            print(f"{name},{atoms} atoms,{milliseconds:.3f} ms", flush=True)
    return found


def numbers(folder: Path) -> list[tuple[int, float, float]]:
    """Return rows of a table, seconds of the command and its peak memory in MB.

    It comes before torch is loaded: the system counts this process's memory as the command's.
    """
    found, molecules = [], find_molecules()
    for rows in ROWS:
        files = ["-i", molecules.write(folder, rows)["table"], "-o", str(folder / "out.csv")]
        command = Command([*PREDICT, *files], variables(1), folder / "log")
        found.append((rows, median(command.round() for _ in range(3)), command.peak / 1e6))
        print(f"predict.py,{rows} rows,{found[-1][1]:.2f} s,{found[-1][2]:.0f} MB", flush=True)
    return found


def main() -> None:
    """Measure, print and draw."""
    with tempfile.TemporaryDirectory() as scratch:
        of_number, of_size = numbers(Path(scratch)), sizes(Path(scratch))
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams |= {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}
    figure = Figure((7.2, 2.7), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, points in of_size.items():
        left.loglog(*zip(*points, strict=True), "o-", label=name)
    left.set(xlabel="atoms of a molecule", ylabel="milliseconds a molecule")
    left.set_xticks([1 + 11 * residues for residues in RESIDUES], minor=False)
    left.xaxis.set_major_formatter("{x:.0f}")
    left.minorticks_off()
    left.legend(frameon=False)
    rows, seconds, memory = zip(*of_number, strict=True)
    right.loglog(rows, seconds, "o-", color="C3", label="seconds")
    right.loglog(rows, memory, "s--", color="C4", label="MB at most")
    right.set(xlabel="rows of the table", ylabel="predict.py esol, one process")
    right.legend(frameon=False)
    with replacing(Path(sys.argv[1])) as partial:
        figure.savefig(partial, dpi=160, format="png")


if __name__ == "__main__":
    main()
