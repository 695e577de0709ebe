"""The whole of ZINC from its raw files, by torch-geometric alone and by us on top of it.

python -m benchmarks.sides.zinc_full {pyg|ours} DATA_ROOT MAX_PATH_LENGTH
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.sides.protocol import Options, Work, serve


def _command(who: str, options: Options) -> Work:
    if not options["data_root"]:
        raise ValueError("give --data-root: the folder that holds ZINC/raw")
    script = ["-m", "benchmarks.sides.zinc_full", who, options["data_root"]]
    return Work(command=[sys.executable, *script, str(options["max_path_length"])])


def pyg(options: Options) -> Work:
    """torch-geometric's own processing."""
    return _command("pyg", options)


def ours(options: Options) -> Work:
    """Its processing and the graph store."""
    return _command("ours", options)


def main(who: str, data_root: str, max_path_length: str) -> None:
    """Prepare the data set in a fresh folder."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "ZINC").mkdir()
        (root / "ZINC" / "raw").symlink_to(Path(data_root).resolve() / "ZINC" / "raw")
        if who == "pyg":
            from torch_geometric.datasets import ZINC

            ZINC(str(root / "ZINC"), subset=False, split="train")
        else:
            from graphormer_sepnorm.datasets.data_module import MoleculeDataModule

            data = MoleculeDataModule(
                dataset="zinc", root=folder, max_path_length=int(max_path_length), batch_size=256
            )
            data.prepare_data()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve({"pyg": pyg, "ours": ours})
    else:
        main(*sys.argv[1:])
