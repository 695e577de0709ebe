"""One small run of the command that the tests of its verbs share."""

import contextlib
import functools
import gzip
import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from reference.checkpoints import make_checkpoint
from reference.processes import FORKING
from tiny_run import TINY, Run

from graphormer_sepnorm.baselines import fit as baselines
from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.datasets import catalog, molecule_data
from graphormer_sepnorm.inference import predict_table
from graphormer_sepnorm.pipeline import calibrate
from graphormer_sepnorm.pipeline import fit as learning_curve
from graphormer_sepnorm.resources import sample_path
from graphormer_sepnorm.runs import scheduler

DRAW = learning_curve.draw_learning_curve


@pytest.fixture(scope="session")
def small_sample(tmp_path_factory: pytest.TempPathFactory) -> Callable[[pytest.MonkeyPatch], None]:
    """Gives what takes a seventh of the sample's molecules, which are featurized once."""
    lines = gzip.decompress(sample_path().read_bytes()).splitlines(keepends=True)
    small = tmp_path_factory.mktemp("sample") / "sample.csv.gz"
    small.write_bytes(gzip.compress(b"".join(lines[:1001]), mtime=0))
    load = functools.cache(molecule_data.load_dataset)

    def take(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(catalog, "sample_path", lambda: small)
        patch.setattr(molecule_data, "load_dataset", load)

    return take


@pytest.fixture(autouse=True, scope="module")
def _runs_take_a_moment(small_sample: Callable[[pytest.MonkeyPatch], None]) -> Iterator[None]:
    """Trees are few, little is kept, nothing is drawn, ensembles need not import torch again."""
    with pytest.MonkeyPatch.context() as patch:
        small_sample(patch)
        for kind in ("regression", "binary"):
            patch.setitem(baselines.BOOSTED, kind, 20)
            patch.setitem(baselines.FOREST, kind, 5)
        patch.setattr(calibrate, "MOST_KEPT", 500)
        patch.setattr(calibrate, "MOST_TOKENS", 500)
        patch.setattr(scheduler, "subprocess", FORKING)
        # A learning curve is a tenth of such a run.
        name = "draw_learning_curve"
        patch.setattr(learning_curve, name, lambda run, *_: run.learning_curve_file.touch())
        yield


@pytest.fixture(scope="session")
def run(tmp_path_factory, small_sample: Callable[[pytest.MonkeyPatch], None]) -> Run:
    """A fit of four steps on the bundled sample; its learning curve is drawn."""
    base = tmp_path_factory.mktemp("cli")
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(record=True) as shown,
        pytest.MonkeyPatch.context() as patch,
    ):
        small_sample(patch)
        patch.setattr(learning_curve, "draw_learning_curve", DRAW)
        # As in a process of its own: everything is shown but what Python hides from users.
        warnings.resetwarnings()
        warnings.simplefilter("ignore", DeprecationWarning)
        options = ["--data.root", str(base / "root"), "--output", str(base / "run")]
        status = main(["fit", "-c", "quickstart", *TINY, *options, "--model.norm", "sepnorm"])
    assert status == 0, err.getvalue()
    return Run(
        base / "root",
        base / "run",
        out.getvalue(),
        err.getvalue(),
        [str(warning.message) for warning in shown],
    )


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model") / "model.ckpt"
    torch.save(make_checkpoint(), path)
    return path


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(predict_table, "CHUNK_ROWS", 4)


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before the first process."""

    def started(*arguments: object, **options: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(scheduler.subprocess, "Popen", started)
