"""What this process is called by, which of several it is, and that it gives memory back."""

import ast
import gc
import platform
import subprocess
import sys

import pytest

from graphormer_sepnorm import __version__, process
from graphormer_sepnorm.process import command, is_first_process


@pytest.mark.parametrize(
    ("started", "proposed"),
    [
        ("train.py", "python train.py"),
        ("/somewhere/graphormer_sepnorm/cli/train.py", "python train.py"),
        ("/env/bin/graphormer-train", "graphormer-train"),
        ("/env/bin/graphormer-predict", "graphormer-train"),
    ],
)
def test_command_is_the_one_that_the_user_has(monkeypatch, started, proposed):
    monkeypatch.setattr(sys, "argv", [started, "fit"])
    assert command("train") == proposed


@pytest.mark.parametrize(
    ("environment", "first"),
    [
        ({}, True),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"RANK": "4", "LOCAL_RANK": "0"}, False),
        ({"LOCAL_RANK": "1"}, False),
        ({"SLURM_PROCID": "3"}, False),
        ({"NODE_RANK": "1"}, False),  # Lightning's first process of another machine
        ({"SLURM_PROCID": "0", "LOCAL_RANK": "1"}, False),  # Lightning's child in a job's shell
    ],
)
def test_first_of_several_processes(monkeypatch, environment, first):
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_first_process() == first


HEAVY = {"torch", "numpy", "rdkit", "lightning", "scipy", "ogb"}
FIT = ("train", "fit", "-c", "table", "--data.table")
# Words of a command, in a folder with two tables -> a part of the answer.
HELP = {
    ("train", "--version"): f"graphormer_sepnorm {__version__}\n",
    ("train", "--help"): "zinc_subset",
    ("predict", "--version"): f"graphormer_sepnorm {__version__}\n",
    ("predict", "--help"): "predict.py info MODEL",
    ("predict",): "predict.py info MODEL",
    ("train", "fit", "--help"): "--data.table",
}
SLIPS = {
    ("train", "predict"): "'predict' is done by predict.py",
    (*FIT, "missing.csv"): "there is no file missing.csv",
    (*FIT, "t.csv", "--data.target_columns", "logP"): "(did you mean 'logS'?)",
    (*FIT, "m.csv"): "2 columns may hold the labels (logS, logP): name them",
    (*FIT, "t.csv", "--model.from-pretrained", "esl"): "no such checkpoint or run directory: esl",
    (*FIT, "t.csv", "--data.tabel", "t.csv"): "(did you mean '--data.table'?)",
    (*FIT, "t.csv", "--data.neighbours", "3"): "unknown option --data.neighbours\n",
    ("train", "fit", "-c", "quickstart", "--data.dataset", "zinc-subst"): "'zinc-subset'?",
    ("train", "fit", "-c", "quickstart", "--data.split", "random"): "a table of your own",
    ("train", "fit", "--resume", "t"): "t is no run directory",
    ("train", "test", "t"): "no such checkpoint or run directory: t;",
    ("train", "crossvalidate", *FIT[2:], "missing.csv", "-o", "c"): "no file missing.csv",
    ("train", "compare", *FIT[2:], "a.csv", "--arms", "bn+ln,bn+bn", "-o", "c"): "no file",
    ("predict", "esl", "CCO"): "no such checkpoint or run directory: esl (did you mean 'esol'?)",
    ("predict", "esol", "--jbos", "2", "CCO"): "(did you mean '--jobs'?)",
    ("predict", "esol", "CCO", "--max-atoms", "0"): "--max_atoms is 0",
    ("predict", "esol", "-i", "missing.csv"): "there is no file missing.csv",
    ("predict", "esol", "-i", "t.csv", "--smiles-column", "x"): "there is no column 'x'",
    ("predict", "esol", "-i", "t.csv", "--evaluate", "logP"): "(did you mean 'logS'?)",
    ("predict", "C" * 300, "CCO"): "CCC...: File name too long",
}
NO_GPU = {
    (*FIT, "t.csv", "--trainer.accelerator", "gpu"): "gpu: there is no GPU here",
    ("train", "test", "t.ckpt", "--trainer.accelerator", "cuda"): "cuda: there is no GPU here",
    ("predict", "esol", "CCO", "--device", "cuda:1"): "cuda:1: there is no GPU here",
}


def test_help_and_slips_are_answered_before_anything_heavy_is_loaded(tmp_path):
    (tmp_path / "t.csv").write_text("smiles,logS\nCCO,1\n")
    (tmp_path / "m.csv").write_text("smiles,logS,logP\nCCO,1.5,2\nCCC,0.5,3\nCCN,2.5,1\n")
    (tmp_path / "t.ckpt").touch()
    slips = SLIPS | ({} if process.has_gpu_driver() else NO_GPU)
    code = f"""
import contextlib, io, sys
from graphormer_sepnorm.cli import predict, train
for program, *words in {[*HELP, *slips]}:
    said, status = io.StringIO(), 0
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(said):
        with contextlib.redirect_stderr(said):
            status = {{"train": train, "predict": predict}}[program].main(words)
    print((status, said.getvalue()))
print(sorted({HEAVY} & sys.modules.keys()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    *answers, heavy = map(ast.literal_eval, done.stdout.splitlines())
    assert heavy == []
    for (words, part), (status, answer) in zip((HELP | slips).items(), answers, strict=True):
        assert part in answer, words
        assert (status, answer.count("\n")) == (2, 1) if words in slips else status == 0, words


def test_no_garbage_is_looked_for_while_a_library_is_loaded_nor_among_its_objects(monkeypatch):
    def fails(name):
        assert not gc.isenabled()
        raise ImportError(name)

    monkeypatch.setattr(process, "import_module", fails)
    with pytest.raises(ImportError, match="large"):
        process.load_library("large")
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    gc.unfreeze()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has malloc_trim")
def test_freed_memory_goes_back_to_the_system():
    # In a process of its own: here much may be free already, and be used again.
    script = """
from graphormer_sepnorm.process import trim_now_and_then

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

# Too small to be mapped on their own; the last one is in the way of the heap's end.
blocks = [b"x" * 100_000 for _ in range(1000)]
kept = blocks[-1]
full = resident()
del blocks
for _ in range(8):
    trim_now_and_then()
print(full - resident())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert int(done.stdout) > 50_000_000
