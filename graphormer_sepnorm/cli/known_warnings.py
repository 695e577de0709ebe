"""Silences messages that are known and not meant for the user, one by one, each with its reason."""

from __future__ import annotations

import logging
import warnings

from graphormer_sepnorm.process import load_library

# (start of the message as a regular expression, category)
_KNOWN_WARNINGS: list[tuple[str, type[Warning]]] = [
    # torch 2.13 deprecates what Lightning 2.6 calls on every run:
    # https://github.com/Lightning-AI/pytorch-lightning/issues/21326
    (r".*isinstance\(treespec, LeafSpec\).* is deprecated", FutureWarning),
    # torch-geometric 2.8 compiles some classes when it is imported; torch 2.14 shows no warning.
    (r"`torch\.jit\.script` is ", FutureWarning),
    # Batches come from arrays in memory: on a few cores worker processes only cost time. The
    # option data.num_workers says when they help.
    (r"The '\w+' does not have many workers", UserWarning),
    # A short epoch is logged by its mean; the step-wise rows are an extra.
    (r"The number of training batches \(\d+\) is smaller than the logging interval", UserWarning),
    # The run directory is new (its name is numbered): what lies in it is our own config.yaml.
    (r"Checkpoint directory .* exists and is not empty", UserWarning),
    # MoleculeDataModule keeps the position in the epoch in the checkpoint itself.
    (r"You're resuming from a checkpoint that ended before the epoch ended", UserWarning),
    # Evaluating needs none of the callbacks that trained the checkpoint.
    (r"Be aware that when using `ckpt_path`, callbacks used to create", UserWarning),
    # Whoever says --trainer.accelerator cpu knows; unless told otherwise, Lightning takes the GPU.
    (r"GPU available but not used", UserWarning),
    # 32-true means float32; on a GPU bf16-mixed is the way to be faster and less exact.
    (r"TensorFloat32 tensor cores for float32 matrix multiplication available", UserWarning),
    # Triton 3.9 announces another default; products and sums may be fused as before.
    (r"TRITON_DEFAULT_FP_FUSION is unset", UserWarning),
    # LambdaLR is given a pure function of the step; Lightning restores its counter on resume.
    (r"Detected call of `lr_scheduler.step\(\)` before `optimizer.step\(\)`", UserWarning),
]


def silence_known_noise(trains: bool = True) -> None:
    """Hide known warnings, and where a network trains notices of Lightning."""
    for message, category in _KNOWN_WARNINGS:
        warnings.filterwarnings("ignore", message=message, category=category)
    if not trains:
        return
    load_library("lightning.pytorch")  # sets the levels of its loggers when it is imported

    # INFO of Lightning is "GPU available: ..." and tips for other products; its warnings stay.
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
