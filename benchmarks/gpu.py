"""How fast training is on one GPU, and how near to what the GPU can do.

    python -m benchmarks.gpu --check --config zinc_subset_best --root DIR --batch_sizes 125
    python -m benchmarks.gpu --output gpu.json
    python -m benchmarks.gpu --output gpu.json --parts trainer --engines compiled --batch_sizes 256

The first line is what to run first on a GPU (`make gpu-check`): agreement, step, fit and together.

Every part is measured by itself and written as soon as it is there, so that a run that is cut off
leaves what it has; parts already in the file are not measured again. Nothing is said about a GPU
that is shared with other work.

* agreement: the tests that need a GPU
* ceilings: the largest matrix products and copies that this device does, in the same run
* trainer: training steps per second as `train.py fit` takes them, by engine and batch size
* step: one step by itself: time, kernels and the dearest of them, FLOP and bytes that its operators
  move
* fit: a short `train.py fit` of the configuration, with the first engine, to its test
* together: steps of several models as branches of one recording, beside one of a single model
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
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from lightning.pytorch import Callback, Trainer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.resident import BatchShape, ResidentGraphs, plan_shape
from graphormer_sepnorm.resources import config_path
from graphormer_sepnorm.training.captured.engine import CapturedTraining
from graphormer_sepnorm.training.captured.recording import CapturedSteps, TrainingStep
from graphormer_sepnorm.training.module import GraphormerModule

PARTS = ("agreement", "ceilings", "trainer", "step", "together", "fit", "sharing")
CHECK = ("agreement", "step", "fit", "together")
ENGINES = ("eager", "captured", "compiled")
ROOT = Path(__file__).resolve().parents[1]
DEAREST = 12
QUICK_MODEL: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "ffn_width": 16}


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_per_call(call: Callable[[], Any], device: torch.device, least: float) -> float:
    """Mean time of a call, over at least so many seconds, after warming up."""
    for _ in range(3):
        call()
    synchronise(device)
    calls, began = 0, time.perf_counter()
    while time.perf_counter() - began < least:
        for _ in range(10):
            call()
        synchronise(device)
        calls += 10
    return (time.perf_counter() - began) / calls


def ceilings(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, float]]]:
    """Matrix products in each precision, and a copy within the device's memory."""
    device, size = options.device, 256 if options.quick else 8192
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        left, right = torch.randn(2, size, size, device=device, dtype=dtype)
        taken = seconds_per_call(lambda a=left, b=right: a @ b, device, options.seconds)
        yield f"ceilings/matmul {name}", {"flop_per_s": 2 * size**3 / taken}
    source = torch.empty(size * size * 4, device=device)
    target = torch.empty_like(source)
    taken = seconds_per_call(lambda: target.copy_(source), device, options.seconds)
    yield "ceilings/copy", {"bytes_per_s": 2 * source.nbytes / taken}


class Clock(Callback):
    """Times the steps of a training after its first ones, then stops it."""

    def __init__(self, skip: int, seconds: float) -> None:
        self._skip, self._seconds = skip, seconds
        self._began = 0.0
        self._first = 0
        self.result: dict[str, float] = {}

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        """Look at the clock after a turn of the loop."""
        if trainer.global_step < self._skip:
            return
        now = time.perf_counter()
        if not self._began:
            synchronise(module.device)
            self._first, self._began = trainer.global_step, time.perf_counter()
        elif now - self._began > self._seconds:
            synchronise(module.device)
            steps = trainer.global_step - self._first
            self.result = {
                "steps": steps,
                "steps_per_s": steps / (time.perf_counter() - self._began),
            }
            trainer.should_stop = True


def fitted(
    options: argparse.Namespace, batch_size: int, *callbacks: Callback, **trainer: Any
) -> tuple[GraphormerModule, MoleculeDataModule, Trainer]:
    """Train the model of the configuration, or slim Graphormer, on the data set of the options."""
    own = {**options.configured.get("model", {}), **(QUICK_MODEL if options.quick else {})}
    module = GraphormerModule(**{**own, "precise_bn_graphs": 0})
    data = MoleculeDataModule(
        dataset=options.dataset,
        root=options.root,
        batch_size=batch_size,
        attention_blocks=4,
        max_path_length=module.hparams["max_path_length"],
    )
    made = Trainer(
        accelerator="gpu" if options.device.type == "cuda" else "cpu",
        devices=1,
        precision=options.precision,
        gradient_clip_val=options.clip,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        **{"max_steps": 10**9, "max_epochs": -1, **trainer},
    )
    made.fit(module, data)
    return module, data, made


def trainer(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, float]]]:
    """Steps per second of whole trainings; eager with its batches made in this process."""
    for batch_size in options.batch_sizes:
        for engine in options.engines:
            name = f"trainer/{engine} batch {batch_size}"
            if name in options.done:
                continue
            clock = Clock(20, options.seconds)
            captured = CapturedTraining(engine == "compiled", on_cpu=options.device.type == "cpu")
            fitted(options, batch_size, *([] if engine == "eager" else [captured]), clock)
            misfits = {} if engine == "eager" else {"misfits": captured.misfits}
            yield name, {**clock.result, **misfits}


class Traffic(TorchDispatchMode):
    """Adds up the bytes that operators read and write, were nothing of it in a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and add its tensors; one that returns a view moves nothing."""
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = tree_leaves((args, kwargs, result))
            self.bytes += sum(part.nbytes for part in tensors if isinstance(part, torch.Tensor))
        return result


def step(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """One step by itself: without loop, loader and schedule."""
    for batch_size in options.batch_sizes:
        names = {engine: f"step/{engine} batch {batch_size}" for engine in options.engines}
        if all(name in options.done for name in names.values()):
            continue
        capturing = CapturedTraining(on_cpu=True, steps_per_launch=1)
        module, data, made = fitted(options, batch_size, capturing, max_steps=1)
        module.to(options.device).train()
        resident = ResidentGraphs(data.store, module.vocabulary, options.device)
        for engine, name in names.items():
            if name not in options.done:
                taken = step_of(module, resident, made, engine, options)
                yield name, one_step(taken, engine, data, batch_size, options)


def step_of(
    module: GraphormerModule,
    resident: ResidentGraphs,
    made: Trainer,
    engine: str,
    options: argparse.Namespace,
) -> TrainingStep:
    """Return the step of a module that was trained before."""
    return TrainingStep(
        module,
        optimizer_for(module, options.device),
        resident,
        functools.partial(clip, options.clip),
        made.precision_plugin.forward_context,
        ([], []),
        engine == "compiled",
    )


def together(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, float]]]:
    """Steps of several models, of the first batch size, as `compare --seeds-together` takes them.

    On a CPU, where nothing is recorded, one after the other.
    """
    counts, batch_size = (1, 2) if options.quick else (1, 2, 4, 8), options.batch_sizes[0]
    engines = [engine for engine in options.engines if engine != "eager"]
    names = {(e, n): f"together/{n} x {e} batch {batch_size}" for e in engines for n in counts}
    if all(name in options.done for name in names.values()):
        return
    capturing = {"on_cpu": True, "steps_per_launch": 1}
    trained = [
        fitted(options, batch_size, CapturedTraining(**capturing), max_steps=1)
        for _ in range(max(counts))
    ]
    for module, _, _ in trained:
        module.to(options.device).train()
    module, data, _ = trained[0]
    resident = ResidentGraphs(data.store, module.vocabulary, options.device)
    for (engine, count), name in names.items():
        if name in options.done:
            continue
        steps = [step_of(own, resident, made, engine, options) for own, _, made in trained[:count]]
        inputs, shape = same_batch(steps[0], data, batch_size, options.device)
        call: Callable[[], Any]
        if options.device.type == "cuda":
            pool = torch.cuda.graph_pool_handle()
            recorded = CapturedSteps(steps, [inputs] * count, shape, pool)
            call = functools.partial(recorded, [inputs] * count, range(count))
        else:
            call = functools.partial(one_after_the_other, steps, inputs, shape)
        each = count / seconds_per_call(call, options.device, options.seconds)
        alone = options.done.get(names[engine, 1], {}).get("steps_per_s", each)
        yield name, {"steps_per_s": each, "times_one_alone": each / alone}


def one_after_the_other(
    steps: Sequence[TrainingStep], inputs: tuple[torch.Tensor, torch.Tensor], shape: BatchShape
) -> None:
    """Take a step of each model."""
    for taken in steps:
        taken(*inputs, shape)


def optimizer_for(module: GraphormerModule, device: torch.device) -> torch.optim.Optimizer:
    """Return a new optimiser of a module that was trained before.

    What captures steps has made the module an ordinary one again when that training ended; on a
    GPU this optimiser is to be captured.
    """
    module.capturable = device.type == "cuda"
    return module.configure_optimizers()[0][0]


def clip(most: float, optimizer: torch.optim.Optimizer) -> None:
    """Clip the gradients as the configuration does."""
    parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, most)


def one_step(
    taken: TrainingStep,
    engine: str,
    data: MoleculeDataModule,
    batch_size: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Measure a step on the same batch again and again."""
    device = options.device
    inputs, shape = same_batch(taken, data, batch_size, device)

    def call() -> Any:
        return taken(*inputs, shape)

    counted: dict[str, float] = {}
    if engine == "eager":
        call()
        with FlopCounterMode(display=False) as flop:
            call()
        with Traffic() as traffic:
            call()
        counted = {"flop": flop.get_total_flops(), "bytes": traffic.bytes}
    elif device.type == "cuda":
        captured = CapturedSteps([taken], [inputs], shape, torch.cuda.graph_pool_handle())
        call = functools.partial(captured, [inputs], [0])
    per_step = seconds_per_call(call, device, options.seconds)
    rates = {f"{what}_per_s": number / per_step for what, number in counted.items()}
    times, calls = kernels(call, device)
    dearest = {
        f"{calls[kernel]} x {kernel}": round(taken, 1)
        for kernel, taken in times.most_common(DEAREST)
    }
    return {
        "steps_per_s": 1 / per_step,
        "kernels": calls.total(),
        "busy_us": times.total(),
        **counted,
        **rates,
        "dearest_us": dearest,
    }


def same_batch(
    taken: TrainingStep, data: MoleculeDataModule, batch_size: int, device: torch.device
) -> tuple[tuple[torch.Tensor, torch.Tensor], BatchShape]:
    """Return what a step is given, random training graphs, and a shape that holds them."""
    train = data.indices("train")
    shape = plan_shape(data.store.num_atoms(train), batch_size)
    chosen = np.random.default_rng(0).choice(train, batch_size, replace=False)
    if not shape.holds(data.store.num_atoms(chosen)):
        shape = BatchShape.of(data.store.num_atoms(chosen))
    rates = [1e-5] * len(taken.optimizer.param_groups)
    numbers = torch.tensor([batch_size, 0.0, *rates], device=device)
    return (torch.tensor(chosen, device=device), numbers), shape


def kernels(call: Callable[[], Any], device: torch.device) -> tuple[Counter[str], Counter[str]]:
    """Kernels and copies that a call starts on a GPU, operators on a CPU: µs and calls of each."""
    kind = device.type.upper()
    activity = getattr(torch.profiler.ProfilerActivity, kind)
    call()
    synchronise(device)
    with torch.profiler.profile(activities=[activity]) as profile:
        call()
        synchronise(device)
    times: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in profile.events() or []:
        if event.device_type.name == kind:
            own = event.device_time_total if kind == "CUDA" else event.self_cpu_time_total
            times[event.name[:100]] += own
            calls[event.name[:100]] += 1
    return times, calls


def agreement(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the tests that need a GPU, but those that compile for minutes."""
    if "agreement" in options.done:
        return
    kernels = ("attention", "norm")
    files = [
        "tests/training/test_on_gpu.py",
        *(f"tests/model/test_fused_{name}.py" for name in kernels),
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    made = subprocess.run([*command, *files], cwd=ROOT, **_CAUGHT)
    lines = made.stdout.strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    yield "agreement", {"status": made.returncode, "said": lines[-1:], "failed": failed}


_CAUGHT: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


def fit(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Train and test as a user does; a failure is told by the last lines that were printed."""
    engine, batch_size = options.engines[0], options.batch_sizes[0]
    name = f"fit/{engine} batch {batch_size}"
    if name in options.done:
        return
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        settings: dict[str, Any] = {
            **{f"model.{name}": value for name, value in QUICK_MODEL.items() if options.quick},
            "data.dataset": options.dataset,
            "data.root": Path(options.root).resolve(),
            "data.batch_size": batch_size,
            "trainer.max_epochs": options.epochs,
            "trainer.check_val_every_n_epoch": options.epochs,
            "trainer.precision": options.precision,
            "trainer.accelerator": "gpu" if options.device.type == "cuda" else "cpu",
            "engine": engine,
            "output": run,
        }
        command = [sys.executable, "train.py", "fit", "-c", options.config or "zinc_subset"]
        for option, value in settings.items():
            command += [f"--{option}", str(value)]
        began = time.perf_counter()
        made = subprocess.run(command, cwd=ROOT, **_CAUGHT)
        found: dict[str, Any] = {"status": made.returncode, "s": time.perf_counter() - began}
        if (run / "summary.json").is_file():
            summary = json.loads((run / "summary.json").read_text())
            found |= {key: one for key, one in summary.items() if isinstance(one, int | float)}
        if made.returncode:
            found["said"] = made.stdout.strip().splitlines()[-5:]
    yield name, found


def sharing(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, float]]]:
    """Several trainings at once: the last engine, the first batch size, each in a process."""
    for processes in (1, 2) if options.quick else (1, 2, 4, 8):
        name = f"sharing/{processes} x {options.engines[-1]} batch {options.batch_sizes[0]}"
        if name in options.done:
            continue
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / f"{number}.json" for number in range(processes)]
            command = [sys.executable, "-m", "benchmarks.gpu", "--parts", "trainer"]
            for option in ("dataset", "root", "precision", "seconds", "config"):
                if getattr(options, option) is None:
                    continue
                command += [f"--{option}", str(getattr(options, option))]
            command += ["--device", options.device.type, "--engines", options.engines[-1]]
            command += ["--batch_sizes", str(options.batch_sizes[0])]
            command += ["--quick"] if options.quick else []
            running = [subprocess.Popen([*command, "--output", str(file)]) for file in files]
            failed = [one.wait() for one in running]
            if any(failed):
                yield name, {"failed": len([status for status in failed if status])}
                continue
            found = [json.loads(file.read_text())["results"] for file in files]
        rates = [next(iter(result.values()))["steps_per_s"] for result in found]
        yield name, {"steps_per_s": sum(rates), "slowest": min(rates), "fastest": max(rates)}


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
    options.parts = options.parts or (CHECK if options.check else PARTS[1:])
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
    measure: dict[str, Callable[..., Iterator[tuple[str, dict[str, Any]]]]] = {
        "agreement": agreement,
        "ceilings": ceilings,
        "trainer": trainer,
        "step": step,
        "together": together,
        "fit": fit,
        "sharing": sharing,
    }
    for part in options.parts:
        if part == "ceilings" and "ceilings/copy" in options.done:
            continue
        for name, values in measure[part](options):
            options.done[name] = values
            options.output.write_text(json.dumps(record, indent=1) + "\n")
            print(shown(name, values), flush=True)
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
