"""The scripts of docs/ with stand-ins for SLURM's commands: when a job goes back to the queue."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SCRIPT = REPOSITORY / "docs" / "slurm.sh"
PREDICT = REPOSITORY / "docs" / "slurm_predict.sh"
SAVES = 'mkdir -p "$RUN/checkpoints"; touch "$RUN/config.yaml" "$RUN/checkpoints/last.ckpt"'


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
        env={
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "SAID": str(said),
            "RUN": str(run),
            "SLURM_JOB_ID": "7",
        },
        capture_output=True,
        text=True,
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
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SLURM_JOB_ID": "7"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"python train.py fit --resume {run}\n"


def predict_part(folder: Path, number: int, srun: str) -> list[str]:
    """Run a task of the array; return what the stand-ins were called with."""
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    for name, body in (("srun", srun), ("scontrol", ":")):
        (commands / name).write_text(f'#!/bin/bash\necho "{name} $*" >> "$SAID"\n{body}\n')
        (commands / name).chmod(0o755)
    said = folder / "said"
    said.write_text("")
    subprocess.run(
        ["bash", str(PREDICT), "esol", str(folder / "in.csv"), str(folder / "my parts")],
        cwd=REPOSITORY,
        env={
            "PATH": f"{commands}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}/usr/bin:/bin",
            "SAID": str(said),
            "PART": str(folder / "my parts" / f"part-{number:02}.csv"),
            "SLURM_JOB_ID": "7",
            "SLURM_ARRAY_TASK_ID": str(number),
            "SLURM_CPUS_PER_TASK": "1",
        },
        capture_output=True,
        check=False,
    )
    return said.read_text().splitlines()


@pytest.mark.parametrize(
    ("predicting", "requeued"),
    [
        ('echo row > "$PART.partial"; exit 130', True),  # the time was over
        ("exit 130", False),  # before anything was written
        ('echo row > "$PART.partial"; exit 2', False),  # a mistake
        ('echo row > "$PART"', False),  # done
    ],
)
def test_a_part_goes_back_into_the_queue_until_it_is_done(
    predicting: str, requeued: bool, tmp_path: Path
) -> None:
    said = predict_part(tmp_path, 3, predicting)
    part = f"{tmp_path}/my parts/part-03.csv"
    command = f"python predict.py esol -i {tmp_path}/in.csv -o {part} --shard 3/16"
    expected = [f"srun {command} --jobs 1 --resume", *["scontrol requeue 7"] * requeued]
    assert said == expected
    again = predict_part(tmp_path, 3, predicting)
    # What is done is left alone; what has nothing new to save does not come back for ever.
    assert again == ([] if predicting.endswith('"$PART"') else expected[:1])


def test_parts_of_the_array_are_the_whole_table(tmp_path: Path) -> None:
    """With the real command; the table has one chunk, so 15 parts are empty."""
    (tmp_path / "in.csv").write_text("smiles,id\nCCO,1\nxx,2\nCN,3\n")
    for number in (1, 16):
        predict_part(tmp_path, number, '"$@"')
    parts = [tmp_path / "my parts" / f"part-{number:02}.csv" for number in (1, 16)]
    assert [len(part.read_text().splitlines()) for part in parts] == [1, 4]
    joined = subprocess.run(
        ["awk", "FNR > 1 || NR == 1", *map(str, parts)], capture_output=True, text=True, check=True
    ).stdout
    whole = subprocess.run(
        [sys.executable, "predict.py", "esol", "-i", str(tmp_path / "in.csv"), "--quiet"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert joined == whole
