"""Whether training works on one GPU, and how fast each engine is there.

    python -m benchmarks.gpu --check --config zinc_subset_best --root DIR --batch_sizes 125
    python -m benchmarks.gpu --output gpu.json --engines compiled --batch_sizes 256

The first line is what to run first on a GPU (`make gpu-check`). Each measurement is written as soon
as it is there; what is in the file already is not measured again.

* agreement: the tests that need a GPU
* steps: training steps per second as `train.py fit` takes them, by engine and batch size
* fit: a short `train.py fit` of the configuration, with the first engine, to its test
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.files import read_json, require_json
from graphormer_sepnorm.resources import config_path
from graphormer_sepnorm.training.cuda_graphs import CapturedTraining
from graphormer_sepnorm.training.module import GraphormerModule

PARTS = ("agreement", "steps", "fit")
ENGINES = ("captured", "compiled", "eager")
ROOT = Path(__file__).resolve().parents[1]
AGREEMENT = ("training/test_on_gpu.py",)  # tests that need a GPU
WARM_UP = 20  # steps
# A tiny model, to try the command; a configuration may have more local layers than two.
QUICK = {"layers": 2, "width": 16, "heads": 2, "ffn_width": 16, "local_layers": 0}
_CAUGHT: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
Result = dict[str, Any]


def measurements(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Result]]]:
    """Yield what is asked for: a name and what measures it."""
    if "agreement" in options.parts:
        yield "agreement", tests_that_pass
    for size in options.batch_sizes if "steps" in options.parts else ():
        for engine in options.engines:
            yield f"steps/{engine} batch {size}", functools.partial(steps, options, engine, size)
    if "fit" in options.parts:
        name = f"fit/{options.engines[0]} batch {options.batch_sizes[0]}"
        yield name, functools.partial(short_fit, options)


def tests_that_pass() -> Result:
    """Return what pytest reports of the tests that need a GPU, but those that compile long."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    made = subprocess.run([*command, *(f"tests/{file}" for file in AGREEMENT)], cwd=ROOT, **_CAUGHT)
    lines = made.stdout.strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return {"status": made.returncode, "output": [*lines[-1:], *failed]}


class Clock(Callback):
    """Times the steps of a training after its first ones, then stops it."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._first, self._began = seconds, 0, 0.0
        self.result: Result = {}

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        """Look at the clock after a turn of the loop."""
        due = not self._began or time.perf_counter() - self._began > self._seconds
        if trainer.global_step < WARM_UP or not due:
            return
        if module.device.type == "cuda":
            torch.cuda.synchronize(module.device)
        now = time.perf_counter()
        if not self._began:
            self._first, self._began = trainer.global_step, now
            return
        done = trainer.global_step - self._first
        self.result = {"steps": done, "steps_per_s": done / (now - self._began)}
        trainer.should_stop = True


def steps(options: argparse.Namespace, engine: str, batch_size: int) -> Result:
    """Train the model of the configuration, or slim Graphormer, for some seconds."""
    own = {**options.configured.get("model", {}), **(QUICK if options.quick else {})}
    # Steps are timed that see their batch; statistics are not measured, so nothing can fix them.
    module = GraphormerModule(**{**own, "precise_bn_graphs": 0, "frozen_bn_fraction": 0.0})
    data = MoleculeDataModule(
        dataset=options.dataset,
        root=options.root,
        batch_size=batch_size,
        attention_blocks=4,
        max_path_length=module.hparams["max_path_length"],
    )
    gpu = options.device == "cuda"
    callbacks: list[Callback] = [clock := Clock(options.seconds)]
    if engine != "eager":
        callbacks.insert(0, CapturedTraining(engine == "compiled", on_cpu=not gpu))
    trainer = Trainer(
        accelerator="gpu" if gpu else "cpu",
        devices=1,
        precision=options.precision,
        gradient_clip_val=options.configured.get("trainer", {}).get("gradient_clip_val", 5.0),
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        max_epochs=-1,
        max_steps=10**9,
    )
    trainer.fit(module, data)
    return clock.result


def short_fit(options: argparse.Namespace) -> Result:
    """Train and test as a user does; return summary, time, status and the end of a failure."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        settings: dict[str, Any] = {
            **{f"model.{name}": value for name, value in QUICK.items() if options.quick},
            "data.dataset": options.dataset,
            "data.root": Path(options.root).resolve(),
            "data.batch_size": options.batch_sizes[0],
            "trainer.max_epochs": options.epochs,
            "trainer.check_val_every_n_epoch": options.epochs,
            "trainer.precision": options.precision,
            "trainer.accelerator": "gpu" if options.device == "cuda" else "cpu",
            "engine": options.engines[0],
            "baselines": "false",  # forests would keep the GPU waiting
            "output": run,
        }
        command = [sys.executable, "train.py", "fit", "-c", options.config or "zinc_subset"]
        command += [f"--{name}={value}" for name, value in settings.items()]
        began = time.perf_counter()
        made = subprocess.run(command, cwd=ROOT, **_CAUGHT)
        found: Result = {"status": made.returncode, "s": time.perf_counter() - began}
        summary = read_json(run / "summary.json") or {}
        found |= {key: one for key, one in summary.items() if isinstance(one, int | float)}
        if made.returncode:
            found["output"] = made.stdout.strip().splitlines()[-5:]
    return found


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser("benchmarks.gpu", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["steps"])
    parser.add_argument("--check", action="store_const", dest="parts", const=PARTS, help="all")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--config", help="whose model, clipping and data; without: of the sample")
    parser.add_argument("--batch_sizes", nargs="+", type=int, default=[64, 256, 1024])
    parser.add_argument("--epochs", type=int, default=10, help="of the short fit")
    parser.add_argument("--root", default="data", help="data root")
    parser.add_argument("--precision", choices=("32-true", "bf16-mixed"), default="32-true")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement, at least")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="a tiny model, to try the command")
    parser.add_argument("--output", type=Path, default=Path("gpu.json"))
    options = parser.parse_args(arguments)
    text = config_path(options.config).read_text() if options.config else "{}"
    options.configured = yaml.safe_load(text)
    options.dataset = options.configured.get("data", {}).get("dataset", "sample")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Measure what is asked for; return the exit status."""
    try:
        options = parsed(arguments)
    except ConfigError as error:
        print(f"error: {error}")
        return 2
    if options.device == "cuda" and not torch.cuda.is_available():
        print("error: there is no CUDA GPU; --device cpu --quick tries the command without one")
        return 2
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    record = require_json(options.output) if options.output.is_file() else {"results": {}}
    record["machine"] = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "CPU",
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        **{name: getattr(options, name) for name in ("precision", "dataset", "config")},
    }
    done = record["results"]
    for name, measure in measurements(options):
        if name in done and not done[name].get("status"):
            continue
        try:
            done[name] = measure()
        except Exception as error:  # the others are measured all the same
            first = f"{type(error).__name__}: {error}".splitlines()[:3]
            done[name] = {"status": 1, "output": first}
            traceback.print_exc()
        options.output.write_text(json.dumps(record, indent=1) + "\n")
        found = done[name]
        numbers = (f"{k} {v:,.4g}" for k, v in found.items() if isinstance(v, int | float))
        print(f"{name}: {', '.join(numbers)}", *found.get("output", ()), sep="\n    ", flush=True)
    return int(any(found.get("status") for found in done.values()))


if __name__ == "__main__":
    sys.exit(main())
