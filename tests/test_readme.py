"""Every command and every Python block of the README and the guides runs, with capped training."""

import gzip
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from graphormer_sepnorm.resources import sample_path

REPOSITORY = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", *(f"docs/{name}.md" for name in ("training", "predicting", "python"))]
TEXT = "\n".join((REPOSITORY / name).read_text(encoding="utf-8") for name in DOCUMENTS)
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
COMMANDS = list(
    dict.fromkeys(
        line.partition("  #")[0].strip()
        for language, block in BLOCKS
        if not language
        for line in block.splitlines()
        if line.startswith(("python ", "make "))
    )
)
CAP = [
    *("--trainer.max_steps", "3", "--trainer.max_epochs", "-1", "--model.warmup_steps", "1"),
    *("--trainer.limit_val_batches", "2", "--trainer.limit_test_batches", "2"),
    *("--data.batch_size", "16"),
]
SMALL = ["--model.layers", "2", "--model.width", "16", "--model.ffn_width", "16"]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A folder that looks like the checkout, with a data root of its own."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("train.py", "predict.py", "configs"):
        (folder / name).symlink_to(REPOSITORY / name)
    (folder / "data").mkdir()
    # A short sample, and a stand-in for the user's own table.
    lines = gzip.decompress(sample_path().read_bytes()).decode().splitlines()[1:]
    rows = [line.split(",") for line in lines[:400]]
    hits = [f"{smiles},{int(float(value) > 0)}" for smiles, value in rows]
    sample = "\n".join(["smiles,penalised_logp", *lines[:400]])
    (folder / "data" / "sample.csv.gz").write_bytes(gzip.compress(sample.encode()))
    (folder / "hits.csv").write_text("\n".join(["smiles,active", *hits]))
    return folder


def run(arguments, workspace):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=workspace,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


def place_data(command, workspace, request):
    """Put the real data that a command needs under the workspace's data root."""
    for config, fixture, folder in (
        ("zinc_subset", "real_data_root", "ZINC"),
        ("zinc.yaml", "real_data_root_full", "ZINC"),
        ("molhiv", "real_data_root", "ogbg_molhiv"),
    ):
        if config in command:
            root = request.getfixturevalue(fixture)
            link = workspace / "data" / folder
            link.unlink(missing_ok=True)
            link.symlink_to(Path(root) / folder)


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("python ")])
def test_command(command, workspace, request):
    place_data(command, workspace, request)
    arguments = shlex.split(command.removeprefix("python "))
    if arguments[:2] == ["train.py", "fit"] and not {"--help", "--resume"} & {*arguments}:
        arguments += CAP
    if arguments[:2] == ["train.py", "compare"] and "--report-only" not in arguments:
        arguments += [*CAP, *SMALL, "--seeds", "0,1"]
    done = run(arguments, workspace)
    assert done.returncode == 0, done.stdout + done.stderr
    if arguments[1] == "fit" and "--help" not in arguments:
        assert "test " in done.stdout
        assert "best.ckpt" in done.stdout
    elif arguments[1] == "compare":
        directory = workspace / arguments[arguments.index("-o") + 1]
        assert "over 2 paired seeds" in (directory / "report.md").read_text()
    elif arguments[:2] == ["predict.py", "geometry"]:
        assert "output" in done.stdout
    elif arguments[:2] == ["predict.py", "info"]:
        assert "predicts" in done.stdout
    elif arguments[0] == "predict.py" and "-o" in arguments:
        output = (workspace / arguments[arguments.index("-o") + 1]).read_text().splitlines()
        assert len(output) == 401
        assert output[0].startswith("smiles,penalised_logp,pred_")
        assert ("MAE" in done.stdout) == ("--evaluate" in arguments)
    elif arguments[0] == "predict.py":
        assert done.stdout.count("\n") == 1 + len(arguments[2:])
    elif arguments[1] == "test":
        assert "mae" in done.stdout


def test_make_commands_exist():
    named = [command.split()[1] for command in COMMANDS if command.startswith("make ")]
    assert {"train", "test"} <= set(named)
    for target in named:
        done = subprocess.run(
            ["make", "--dry-run", target], cwd=REPOSITORY, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", range(sum(language == "python" for language, _ in BLOCKS)))
def test_python_block(number, workspace):
    if not (workspace / "runs/quickstart/bn+ln-seed0").exists():
        run(["train.py", "fit", "-c", "configs/quickstart.yaml", *CAP], workspace)
    code = [block for language, block in BLOCKS if language == "python"][number]
    done = run(["-c", code], workspace)
    assert done.returncode == 0, done.stderr


PAGES = [
    *(REPOSITORY / name for name in ("README.md", "data/README.md", "benchmarks/README.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted((REPOSITORY / "docs" / "compare").glob("*.md")),
    *sorted((REPOSITORY / "data" / "models").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_files_that_are_linked_exist(page):
    for path in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / path).exists(), path
