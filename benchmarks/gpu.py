"""How fast training is on one GPU, and how near to what the GPU can do.

    python -m benchmarks.gpu --check --config zinc_subset_best --root DIR --batch_sizes 125
    python -m benchmarks.gpu --output gpu.json
    python -m benchmarks.gpu --output gpu.json --parts trainer --engines compiled --batch_sizes 256

The first line is what to run first on a GPU (`make gpu-check`): agreement, step and fit.

Every part is measured by itself and written as soon as it is there, so that a run that is cut off
leaves what it has; parts already in the file are not measured again. Nothing is said about a GPU
that is shared with other work.

* agreement: the tests that need a GPU
* ceilings: the largest matrix products and copies that this device does, in the same run
* trainer: training steps per second as `train.py fit` takes them, by engine and batch size
* step: one step by itself: time, kernels and the dearest of them, FLOP and bytes that its operators
  move
* fit: a short `train.py fit` of the configuration, with the first engine, to its test
* sharing: steps per second of several trainings at once on the device
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
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu_measures import Clock, Traffic, kernels, seconds_per_call
from benchmarks.gpu_steps import QUICK_MODEL, Trained, fitted
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.kernels.library import switched_off
from graphormer_sepnorm.resources import config_path
from graphormer_sepnorm.training.cuda_graphs import CapturedTraining

CHECK = ("agreement", "step", "fit")
ENGINES = ("eager", "captured", "compiled")
ROOT = Path(__file__).resolve().parents[1]
DEAREST = 12
# The tests that need a GPU.
AGREEMENT = ("training/test_on_gpu.py",)
_CAUGHT: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}

Result = dict[str, Any]
# A part names its measurements and says how each is taken; those that are there are not.
Part = Iterator[tuple[str, Callable[[], Result]]]


def agreement(options: argparse.Namespace) -> Part:
    """Run the tests that need a GPU, but those that compile for minutes."""
    yield "agreement", tests_that_pass


def tests_that_pass() -> Result:
    """Return what pytest says of them."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    made = subprocess.run([*command, *(f"tests/{file}" for file in AGREEMENT)], cwd=ROOT, **_CAUGHT)
    lines = made.stdout.strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return {"status": made.returncode, "said": lines[-1:], "failed": failed}


def ceilings(options: argparse.Namespace) -> Part:
    """Matrix products in each precision, and a copy within the device's memory."""
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        yield f"ceilings/matmul {name}", functools.partial(matrix_product, options, dtype)
    yield "ceilings/copy", functools.partial(copy, options)


def matrix_product(options: argparse.Namespace, dtype: torch.dtype) -> Result:
    """Return its rate."""
    size = 256 if options.quick else 8192
    left, right = torch.randn(2, size, size, device=options.device, dtype=dtype)
    taken = seconds_per_call(lambda: left @ right, options.device, options.seconds)
    return {"flop_per_s": 2 * size**3 / taken}


def copy(options: argparse.Namespace) -> Result:
    """Return its rate."""
    size = 256 if options.quick else 8192
    source = torch.empty(size * size * 4, device=options.device)
    target = torch.empty_like(source)
    taken = seconds_per_call(lambda: target.copy_(source), options.device, options.seconds)
    return {"bytes_per_s": 2 * source.nbytes / taken}


def trainer(options: argparse.Namespace) -> Part:
    """Steps per second of whole trainings; eager with its batches made in this process."""
    for batch_size in options.batch_sizes:
        for engine in options.engines:
            name = f"trainer/{engine} batch {batch_size}"
            yield name, functools.partial(timed_training, options, engine, batch_size)


def timed_training(options: argparse.Namespace, engine: str, batch_size: int) -> Result:
    """Train as long as is asked for."""
    clock = Clock(20, options.seconds)
    if engine == "eager":
        fitted(options, batch_size, clock)
        return clock.result
    captured = CapturedTraining(engine == "compiled", on_cpu=options.device.type == "cpu")
    fitted(options, batch_size, captured, clock)
    return {**clock.result, "misfits": captured.misfits}


def step(options: argparse.Namespace) -> Part:
    """One step by itself: without loop, loader and schedule."""
    for batch_size in options.batch_sizes:
        trained = functools.cache(functools.partial(Trained, options, batch_size))
        for engine in options.engines:
            name = f"step/{engine} batch {batch_size}"
            yield name, functools.partial(one_step, options, trained, engine)


def one_step(options: argparse.Namespace, trained: Callable[[], Trained], engine: str) -> Result:
    """Measure a step on the same batch again and again."""
    ready, device = trained(), options.device
    taken = ready.step(engine)
    call: Callable[[], Any]
    counted: dict[str, float] = {}
    if engine == "eager":
        call = functools.partial(taken, *ready.inputs(taken), ready.shape)
        call()
        # Of torch's operators: what kernels of ours do is not in it. On a CPU all products are.
        with switched_off():
            with FlopCounterMode(display=False) as flop:
                call()
            with Traffic() as traffic:
                call()
        counted = {"flop": flop.get_total_flops(), "bytes": traffic.bytes}
    else:
        call = ready.recorded(taken)
    per_step = seconds_per_call(call, device, options.seconds)
    times, calls = kernels(call, device)
    return {
        "steps_per_s": 1 / per_step,
        "kernels": calls.total(),
        "busy_us": times.total(),
        **counted,
        **{f"{what}_per_s": number / per_step for what, number in counted.items()},
        "dearest_us": {
            f"{calls[kernel]} x {kernel}": round(taken, 1)
            for kernel, taken in times.most_common(DEAREST)
        },
    }


def fit(options: argparse.Namespace) -> Part:
    """Train and test as a user does; a failure is told by the last lines that were printed."""
    engine, batch_size = options.engines[0], options.batch_sizes[0]
    yield f"fit/{engine} batch {batch_size}", functools.partial(short_fit, options)


def short_fit(options: argparse.Namespace) -> Result:
    """Return the summary of a `train.py fit`, its time and its status."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        settings: dict[str, Any] = {
            **{f"model.{name}": value for name, value in QUICK_MODEL.items() if options.quick},
            "data.dataset": options.dataset,
            "data.root": Path(options.root).resolve(),
            "data.batch_size": options.batch_sizes[0],
            "trainer.max_epochs": options.epochs,
            "trainer.check_val_every_n_epoch": options.epochs,
            "trainer.precision": options.precision,
            "trainer.accelerator": "gpu" if options.device.type == "cuda" else "cpu",
            "engine": options.engines[0],
            "baselines": "false",  # forests would keep the GPU waiting
            "output": run,
        }
        command = [sys.executable, "train.py", "fit", "-c", options.config or "zinc_subset"]
        began = time.perf_counter()
        made = subprocess.run([*command, *words(settings)], cwd=ROOT, **_CAUGHT)
        found: Result = {"status": made.returncode, "s": time.perf_counter() - began}
        if (run / "summary.json").is_file():
            summary = json.loads((run / "summary.json").read_text())
            found |= {key: one for key, one in summary.items() if isinstance(one, int | float)}
        if made.returncode:
            found["said"] = made.stdout.strip().splitlines()[-5:]
    return found


def sharing(options: argparse.Namespace) -> Part:
    """Several trainings at once: the last engine, the first batch size, each in a process."""
    for processes in (1, 2) if options.quick else (1, 2, 4, 8):
        name = f"sharing/{processes} x {options.engines[-1]} batch {options.batch_sizes[0]}"
        yield name, functools.partial(several_trainings, options, processes)


def several_trainings(options: argparse.Namespace, processes: int) -> Result:
    """Run this command so many times, for the trainer alone."""
    kept = ("dataset", "root", "precision", "seconds", "config")
    settings = {name: getattr(options, name) for name in kept if getattr(options, name) is not None}
    settings |= {"parts": "trainer", "device": options.device.type}
    settings |= {"engines": options.engines[-1], "batch_sizes": options.batch_sizes[0]}
    command = [sys.executable, "-m", "benchmarks.gpu", *words(settings)]
    command += ["--quick"] if options.quick else []
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.json" for number in range(processes)]
        running = [subprocess.Popen([*command, "--output", str(file)]) for file in files]
        failed = [status for status in [one.wait() for one in running] if status]
        if failed:
            return {"failed": len(failed)}
        found = [json.loads(file.read_text())["results"] for file in files]
    rates = [next(iter(result.values()))["steps_per_s"] for result in found]
    return {"steps_per_s": sum(rates), "slowest": min(rates), "fastest": max(rates)}


def words(settings: dict[str, Any]) -> list[str]:
    """Return settings as options of a command."""
    texts = {name: "null" if value is None else str(value) for name, value in settings.items()}
    return [word for name, text in texts.items() for word in (f"--{name}", text)]


PARTS: dict[str, Callable[[argparse.Namespace], Part]] = {
    part.__name__: part for part in (agreement, ceilings, trainer, step, fit, sharing)
}


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser("benchmarks.gpu", description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--parts", nargs="+", choices=PARTS)
    parser.add_argument("--check", action="store_true", help=f"the parts {', '.join(CHECK)}")
    parser.add_argument("--engines", nargs="+", choices=ENGINES)
    parser.add_argument("--config", help="model, clipping and data set are those of it")
    parser.add_argument("--batch_sizes", nargs="+", type=int, default=[64, 256, 1024])
    parser.add_argument("--dataset", help="sample (bundled; default without --config), zinc-subset")
    parser.add_argument("--epochs", type=int, default=10, help="of the short fit")
    parser.add_argument("--root", default="data", help="data root")
    parser.add_argument("--precision", choices=("32-true", "bf16-mixed"), default="32-true")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement, at least")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="a tiny model, to try the command")
    parser.add_argument("--output", type=Path, default=Path("gpu.json"))
    options = parser.parse_args(arguments)
    options.configured = {}
    if options.config:
        options.configured = yaml.safe_load(config_path(options.config).read_text())
    options.clip = options.configured.get("trainer", {}).get("gradient_clip_val", 5.0)
    options.dataset = options.dataset or options.configured.get("data", {}).get("dataset", "sample")
    # A short check tries what is new first.
    options.engines = options.engines or (ENGINES[1:] + ENGINES[:1] if options.check else ENGINES)
    options.parts = options.parts or (CHECK if options.check else tuple(PARTS)[1:])
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
    options.device = torch.device(options.device)
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    record: dict[str, Any] = {"results": {}}
    if options.output.is_file():
        record = json.loads(options.output.read_text())
    gpu = options.device.type == "cuda"
    record["machine"] = {
        "device": torch.cuda.get_device_name() if gpu else "CPU",
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "precision": options.precision,
        "dataset": options.dataset,
        "config": options.config,
    }
    options.done = record["results"]
    for part in options.parts:
        for name, measure in PARTS[part](options):
            if name in options.done and not options.done[name].get("status"):
                continue
            try:
                options.done[name] = measure()
            except Exception as error:  # the other parts are measured all the same
                said = f"{type(error).__name__}: {error}".splitlines()[:3]
                options.done[name] = {"status": 1, "said": said}
                traceback.print_exc()
            options.output.write_text(json.dumps(record, indent=1) + "\n")
            print(shown(name, options.done[name]), flush=True)
    return int(any(values.get("status") for values in options.done.values()))


def shown(name: str, values: dict[str, Any]) -> str:
    """Return a result in words: its numbers in a line, what is longer below."""
    numbers = [
        f"{what} {value:,.4g}" for what, value in values.items() if isinstance(value, int | float)
    ]
    lines = [f"{name}: {', '.join(numbers)}"]
    for value in values.values():
        if isinstance(value, dict):
            lines += [f"    {taken:10,.1f} us  {kernel}" for kernel, taken in value.items()]
        elif isinstance(value, list):
            lines += [f"    {line}" for line in value]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
