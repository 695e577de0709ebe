"""The script of docs/ with stand-ins for SLURM's commands: when a job goes back to the queue."""

import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SCRIPT = REPOSITORY / "docs" / "how-to" / "slurm.sh"
SAVES = 'mkdir -p "$RUN/checkpoints"; touch "$RUN/config.yaml" "$RUN/checkpoints/last.ckpt"'


@pytest.mark.parametrize(
    ("begun", "training", "requeued"),
    [
        (False, f"{SAVES}; exit 130", True),  # the time was over
        (False, f'{SAVES}; touch "$RUN/summary.json"', False),  # done
        (False, "exit 2", False),  # a mistake: nothing was saved
        (True, 'touch "$RUN/summary.json"', False),
    ],
)
def test_job_goes_back_into_the_queue_until_it_is_done(begun, training, requeued, tmp_path):
    commands = tmp_path / "bin"
    commands.mkdir()
    run = tmp_path / "my run"
    if begun:
        run.mkdir()
        (run / "config.yaml").touch()
    for name, body in (("srun", training), ("scontrol", ":"), ("sbatch", ":")):
        command = commands / name
        command.write_text(f'#!/bin/bash\necho "{name} $*" >> "$SAID"\n{body}\n')
        command.chmod(0o755)
    # SLURM runs a copy of the script, from the folder in which it was submitted.
    copy = tmp_path / "slurm_script"
    copy.write_bytes(SCRIPT.read_bytes())
    said = tmp_path / "said"
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", str(copy), str(run), "-c", "quickstart"]
    own = {"PATH": path, "SAID": str(said), "RUN": str(run), "SLURM_JOB_ID": "7"}
    subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, check=False)
    options = "--trainer.num_nodes 2 --trainer.devices 4 --trainer.strategy ddp -c quickstart"
    first = f"--resume {run}" if begun else f"--output {run} {options}"
    expected = [f"srun python train.py fit {first}", *["scontrol requeue 7"] * requeued]
    assert said.read_text().splitlines() == expected
