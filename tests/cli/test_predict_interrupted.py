"""predict.py when something goes wrong in the middle: nothing is lost, nothing half-done stays."""

import gzip
import json
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest
from predict_tables import SMILES, interrupted, rows_of, table, write_csv
from reference.processes import REPOSITORY, run_python
from tiny_run import refused

from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.inference.table_job import Shard, TableJob, identify


def test_damaged_input_keeps_what_was_predicted(model, tmp_path, capsys, small_chunks):
    source = tmp_path / "in.csv.gz"
    text = "smiles\n" + "\n".join("C" * (1 + n % 30) for n in range(300))
    source.write_bytes(gzip.compress(text.encode())[:-40])
    output = tmp_path / "out.csv"
    words = (model, "-i", source, "-o", output, "--quiet")
    assert "is cut off" in refused(capsys, main, *words)
    assert not output.exists()
    kept = (tmp_path / "out.csv.partial").read_bytes()
    assert kept.count(b"\n") > 1
    # Going on ends at once, and takes nothing away.
    assert "is cut off" in refused(capsys, main, *words, "--resume")
    assert (tmp_path / "out.csv.partial").read_bytes() == kept


@pytest.mark.parametrize(
    ("suffix", "calls"), [("csv", 0), ("csv", 2), ("tsv", 1), ("csv.gz", 1), ("csv.gz", 2)]
)
def test_interrupted_job_continues_to_the_identical_file(
    model, tmp_path, capsys, small_chunks, suffix, calls
):
    source = tmp_path / "in.csv"  # what separates the cells is known when it goes on
    source.write_text("smiles|y\n" + "".join(f"{one}|{len(one)}\n" for one in SMILES))
    whole, output = tmp_path / f"whole.{suffix}", tmp_path / f"out.{suffix}"
    options = ["-i", str(source), "--jobs", "1"]
    assert main([str(model), *options, "-o", str(whole)]) == 0
    uninterrupted = capsys.readouterr()

    interrupted([str(model), *options, "-o", str(output)], calls)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert not output.exists()
    if calls:
        assert f"holds the first {4 * calls} rows" in said
        again = shlex.split(said.partition("python predict.py ")[2])
        assert again[-1] == "--resume"
        said = refused(capsys, main, model, *options, "-o", output)
        assert "--resume continues it" in said
        with (tmp_path / f"out.{suffix}.partial").open("ab") as handle:
            handle.write(b"half a row that was never finished")
    else:
        again = [str(model), *options, "-o", str(output), "--resume"]
        assert not list(tmp_path.glob("out*"))  # nothing to continue, so nothing is left
    assert main(again) == 0
    continued = capsys.readouterr()
    assert output.read_bytes() == whole.read_bytes()
    assert continued.err.split(";")[0] == uninterrupted.err.split(";")[0]
    assert not list(tmp_path.glob("*partial*")) + list(tmp_path.glob("*progress*"))


def test_a_job_is_not_continued_with_something_else(model, tmp_path, capsys, small_chunks):
    source, output = table(tmp_path), tmp_path / "out.csv"
    arguments = [str(model), "-i", str(source), "-o", str(output), "--jobs", "1"]
    interrupted(arguments, 1)
    partial = (tmp_path / "out.csv.partial").read_bytes()
    words = (*arguments, "--resume")
    assert "another options" in refused(capsys, main, *words, "--max_atoms", "7")
    assert (tmp_path / "out.csv.partial").read_bytes() == partial
    progress = tmp_path / "out.csv.progress.json"
    state = json.loads(progress.read_text())
    assert state["rows"] == 4
    state["identity"]["version of torch"] = "0"
    progress.write_text(json.dumps(state))
    assert "another version of torch" in refused(capsys, main, *words)
    progress.write_text("{")
    assert "is damaged" in refused(capsys, main, *words)
    assert main([*arguments, "--overwrite", "--quiet"]) == 0
    assert len(rows_of(output)) == len(SMILES) + 1


def test_what_decides_the_rows_identifies_a_job(tmp_path):
    source, checkpoint = tmp_path / "in.csv", tmp_path / "model.ckpt"
    source.write_bytes(b"smiles\n" + b"CCO\n" * 300_000)
    checkpoint.write_bytes(b"network")
    job = TableJob(str(source), str(tmp_path / "out.csv"))
    first = identify(job, checkpoint, 8, "cuda:0")
    same = replace(job, jobs=3, quiet=True, resume=True)
    assert identify(same, checkpoint, 8, "cuda:1") == first
    options = {"batch_size": 3, "max_atoms": 7, "smiles_column": "a", "verb": "embedded"}
    options |= {"input_format": "tsv", "output_format": "sdf", "asked": "{}", "shard": Shard(1, 2)}
    others = [replace(job, **{name: value}) for name, value in options.items()]
    changed = [identify(other, checkpoint, 8, "cuda:0") for other in others]
    changed += [identify(job, checkpoint, 9, "cuda:0"), identify(job, checkpoint, 8, "cpu")]
    for identity in changed:
        assert [name for name in first if identity[name] != first[name]] == ["options"]
    source.write_bytes(source.read_bytes()[:-2] + b"N\n")  # of the same size, beyond a megabyte
    checkpoint.write_bytes(b"another")
    changed = identify(job, checkpoint, 8, "cuda:0")
    assert {name for name in first if changed[name] != first[name]} == {"input", "model"}


def test_a_job_that_evaluates_begins_anew(model, tmp_path, capsys, small_chunks):
    source, output = table(tmp_path), tmp_path / "out.csv"
    words = [str(model), "-i", str(source), "-o", str(output), "--evaluate", "id"]
    assert "no --evaluate" in refused(capsys, main, *words, "--resume")
    interrupted(words, 2)
    assert "the output is incomplete" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [source]


def test_full_disk_leaves_no_final_file(model, tmp_path):
    smiles = [["C" * (1 + n % 25)] for n in range(1200)]
    source, output = write_csv(tmp_path / "in.csv", [["smiles"], *smiles]), tmp_path / "out.csv"
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); "
        "from graphormer_sepnorm.cli.predict import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = [str(model), "-i", str(source), "-o", str(output)]
    done = run_python("-c", program, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert "make room" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not output.exists()
    assert main([*arguments, "--resume", "--quiet"]) == 0
    assert len(rows_of(output)) == 1201


@pytest.mark.slow
def test_many_rows_take_little_memory(tmp_path):
    """The streaming itself: the model and RDKit are replaced, as they would take many minutes."""
    program = f"""
import resource, sys
sys.path.insert(0, {str(REPOSITORY)!r})
import numpy as np
from pathlib import Path
from graphormer_sepnorm.chem.molecules import ParsedMolecule
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference import predict_table
from graphormer_sepnorm.inference.predictor import Predictions
from graphormer_sepnorm.inference.table_job import Outcome, TableJob

class Constant:
    device = "cpu"
    task = Task("regression", ("y",), ("",), "mae")
    extra_inputs = ()
    def predict_molecules(self, molecules, *rest):
        n = len(molecules)
        return Predictions((), np.zeros((n, 1)), ("",) * n, ("",) * n, ("y",))

predict_table.parse_smiles = lambda text: ParsedMolecule(None, "")
folder = Path(sys.argv[1])
with open(folder / "in.csv", "w") as handle:
    handle.write("id,smiles,note\\n")
    handle.writelines(f"{{n}},CCO,some more text of row {{n}}\\n" for n in range(400_000))

def predict(rows_file, out):
    outcome = Outcome()
    job = TableJob(str(rows_file), str(out), quiet=True, evaluate=("id",), jobs=1)
    predict_table.predict_table(Constant(), job, rows_file, outcome)
    return outcome.rows

small = folder / "small.csv"
with open(folder / "in.csv") as handle, open(small, "w") as few:
    few.writelines(line for _, line in zip(range(20_001), handle))
assert predict(small, folder / "small_out.csv") == 20_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert predict(folder / "in.csv", folder / "out.csv") == 400_000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # The labels and predictions of the evaluation take 6 MB (13 while the array grows).
    assert float(done.stdout) < 25
    with (tmp_path / "out.csv").open() as handle:
        assert sum(1 for _ in handle) == 400_001
