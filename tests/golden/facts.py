"""Facts that a change of the code's structure leaves as they are; see test_golden.py.

    python -m tests.golden.facts        # makes golden.json anew: the commit says what moved and why

Trainings are in float64 and on the plain path, so that every processor agrees. They go through the
public names and the two commands alone.
"""

import contextlib
import csv
import gzip
import io
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import yaml
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.cli.predict import main as predict
from graphormer_sepnorm.cli.train import main as train
from graphormer_sepnorm.compare.statistics import against, norm_effects
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.kernels.library import switched_off
from graphormer_sepnorm.training.module import GraphormerModule

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GOLDEN = HERE / "golden.json"
STEPS = 20
DROPOUTS = dict.fromkeys(("dropout", "attention_dropout", "input_dropout"), 0.1)  # of `table` then


class InDouble(GraphormerModule):
    """A network in float64."""

    def configure_model(self) -> None:
        super().configure_model()
        self.double()


class Losses(Callback):
    """The loss of each step."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, module: Any, outputs: Any, *_: Any) -> None:
        self.values.append(float(outputs["loss"]))


def sample(count: int) -> list[list[str]]:
    """The first molecules of the bundled sample, below a header."""
    with gzip.open(ROOT / "data" / "sample.csv.gz", "rt", newline="") as file:
        return [row for row, _ in zip(csv.reader(file), range(count + 1), strict=False)]


def write(path: Path, rows: list[list[str]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def network(configuration: str, folder: Path, steps: int, **own: Any) -> tuple[Any, Any, Trainer]:
    """Module, data and trainer of a configuration, on 200 molecules of the sample."""
    stated = yaml.safe_load((ROOT / "configs" / f"{configuration}.yaml").read_text())
    table = write(folder / "table.csv", sample(200))
    options = {"root": str(folder / "root"), "batch_size": 16, "attention_blocks": 2}
    options["max_path_length"] = stated["model"]["max_path_length"]
    data = MoleculeDataModule(dataset="table", table=str(table), **options)
    module = InDouble(**{**stated["model"], "warmup_steps": 0.1, "seed": 0, **own})
    quietly = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    quietly |= {"enable_checkpointing": False, "num_sanity_val_steps": 0, "limit_val_batches": 0}
    limits = {"max_steps": steps, "gradient_clip_val": stated["trainer"]["gradient_clip_val"]}
    kept = {"default_root_dir": folder, "callbacks": [Losses()]}
    return module, data, Trainer(accelerator="cpu", **limits, **kept, **quietly)


def losses(configuration: str, **own: Any) -> list[float]:
    """The losses of some steps."""
    with tempfile.TemporaryDirectory() as name, switched_off(), quiet():
        module, data, trainer = network(configuration, Path(name), STEPS, **own)
        trainer.fit(module, data)
    [recorder] = [one for one in trainer.callbacks if isinstance(one, Losses)]
    return recorder.values


def resumed_weights() -> dict[str, float]:
    """Sums of absolute values after a run that went on; keys' biases have rounding's gradients."""
    with tempfile.TemporaryDirectory() as name, switched_off(), quiet():
        folder = Path(name)
        module, data, trainer = network("zinc_subset", folder, 7)
        trainer.fit(module, data)
        trainer.save_checkpoint(folder / "half.ckpt")
        module, data, trainer = network("zinc_subset", folder, 15)
        trainer.fit(module, data, ckpt_path=folder / "half.ckpt", weights_only=True)
    assert module.dtype == torch.float64, module.dtype
    weights = {name for name, _ in module.named_parameters() if not name.endswith("key.bias")}
    return {name: float(module.get_parameter(name).detach().abs().sum()) for name in weights}


def predictions(model: str) -> list[dict[str, float | str]]:
    """What the command writes for 300 molecules."""
    with tempfile.TemporaryDirectory() as name, quiet():
        folder = Path(name)
        drugs = (ROOT / "data" / "drugs.smi").read_text().split("\n")
        smiles = [[line.split()[0]] for line in drugs if line[:1] not in ("", "#")][:100]
        rows = [["smiles"], *smiles, *([row[0]] for row in sample(200)[1:])]
        write(folder / "in.csv", rows)
        status = predict([model, "-i", str(folder / "in.csv"), "-o", str(folder / "out.csv")])
        assert status in (0, None), status
        return [facts_of(row) for row in read(folder / "out.csv")]


def torture() -> list[dict[str, float | str]]:
    """What the command writes for rows that are wrong in every way we know."""
    with tempfile.TemporaryDirectory() as name, quiet():
        output = Path(name) / "out.csv"
        predict(["esol", "-i", str(HERE / "torture.csv"), "-o", str(output)])
        return [facts_of(row) for row in read(output)]


def facts_of(row: dict[str, str]) -> dict[str, float | str]:
    """Values, intervals and probabilities as numbers; of an error only whether there is one."""
    facts: dict[str, float | str] = {"smiles": row["smiles"]}
    for column, cell in row.items():
        if column.partition("_")[0] in ("pred", "low", "high", "prob"):
            facts[column] = float(cell) if cell else ""
    if "error" in row:
        facts["error"] = bool(row["error"])
    return facts


def comparison() -> dict[str, float]:
    """A stored comparison's statistics, from its records."""
    records = json.loads((ROOT / "docs/experiments/compare/factorial/results.json").read_text())
    errors = {
        arm["name"]: {run["seed"]: math.log(run["test"]) for run in arm["runs"]}
        for arm in records["arms"]
    }
    found = against(errors, next(iter(errors))) | norm_effects(errors)
    return {
        f"{name} {key}": value for name, one in found.items() for key, value in vars(one).items()
    }


def blend() -> dict[str, Any]:
    """The blend of a small table, by networks of one epoch, and what it predicts."""
    plain = patch.dict(os.environ, GRAPHORMER_KERNELS="plain")  # of the processes that train
    with tempfile.TemporaryDirectory() as name, switched_off(), plain, quiet():
        folder = Path(name)
        table = write(folder / "table.csv", sample(150))
        words = ["fit", "-c", "table", "--data.table", str(table), "--trainer.max_epochs=1"]
        words += ["--ensemble=2", *(f"--model.{name}={one}" for name, one in DROPOUTS.items())]
        assert not train([*words, "--data.root", str(folder / "root"), "-o", str(folder / "run")])
        summary = json.loads((folder / "run" / "summary.json").read_text())
        rows = [facts_of(row) for row in read(folder / "run" / "test_predictions.csv")]
    return {"network_weight": summary["blend"]["network_weight"], "rows": rows}


FACTS: dict[str, Callable[[], Any]] = {
    "losses of quickstart": lambda: losses("quickstart"),
    "losses of zinc_subset": lambda: losses("zinc_subset"),
    "losses of zinc_subset_best": lambda: losses("zinc_subset_best"),
    "losses of fine-tuning": lambda: losses("table", **DROPOUTS),
    "weights after resuming": resumed_weights,
    "predictions of esol": lambda: predictions("esol"),
    "predictions of zinc": lambda: predictions("zinc"),
    "predictions of molhiv": lambda: predictions("molhiv"),
    "torture": torture,
    "comparison": comparison,
    "blend": blend,
}


def main() -> None:
    torch.set_num_threads(1)
    wanted = sys.argv[1:] or list(FACTS)
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for name in wanted:
        golden[name] = FACTS[name]()
        print(name, flush=True)
    GOLDEN.write_text(json.dumps(golden, indent=0) + "\n")


if __name__ == "__main__":
    main()
