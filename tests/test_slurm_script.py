"""The script of docs/ with stand-ins for SLURM's commands: when a job goes back to the queue."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SCRIPT = REPOSITORY / "docs" / "how-to" / "slurm.sh"
SAVES = 'mkdir -p "$RUN/checkpoints"; touch "$RUN/config.yaml" "$RUN/checkpoints/last.ckpt"'


def path_with(folder: Path) -> str:
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("training", "requeued"),
    [
        (f"{SAVES}; exit 130", True),  # the time was over
        (f'{SAVES}; touch "$RUN/summary.json"', False),  # done
        ("exit 2", False),  # a mistake: nothing was saved
    ],
)
def test_job_goes_back_into_the_queue_until_it_is_done(
    training: str, requeued: bool, tmp_path: Path
) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    run = tmp_path / "my run"
    for name, body in (("srun", training), ("scontrol", ":"), ("sbatch", ":")):
        command = commands / name
        command.write_text(f'#!/bin/bash\necho "{name} $*" >> "$SAID"\n{body}\n')
        command.chmod(0o755)
    # SLURM runs a copy of the script, from the folder in which it was submitted.
    copy = tmp_path / "slurm_script"
    copy.write_bytes(SCRIPT.read_bytes())
    said = tmp_path / "said"
    subprocess.run(
        ["bash", str(copy), str(run), "-c", "quickstart"],
        cwd=tmp_path,
        env={"PATH": path_with(commands), "SAID": str(said), "RUN": str(run), "SLURM_JOB_ID": "7"},
        capture_output=True,
        check=False,
    )
    options = "--trainer.num_nodes 2 --trainer.devices 4 --trainer.strategy ddp -c quickstart"
    first = f"srun python train.py fit --output {run} {options}"
    assert said.read_text().splitlines() == [first, *["scontrol requeue 7"] * requeued]


def test_job_that_comes_back_continues_its_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").touch()
    (tmp_path / "srun").write_text('#!/bin/bash\necho "$*"\n')
    (tmp_path / "srun").chmod(0o755)
    done = subprocess.run(
        ["bash", str(SCRIPT), str(run), "-c", "quickstart"],
        env={"PATH": path_with(tmp_path), "SLURM_JOB_ID": "7"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"python train.py fit --resume {run}\n"
