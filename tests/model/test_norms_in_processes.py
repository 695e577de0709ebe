"""Two processes of torch.distributed have the statistics of all rows, in a norm and a network."""

from pathlib import Path
from typing import Any

import pytest
import torch
from reference.models import randomize, relative_error
from torch import Tensor, nn

from graphormer_sepnorm import replace_norms
from graphormer_sepnorm.model.norms import MaskedBatchNorm, make_norm

N, L, D = 6, 5, 8
EXACT = 1e-10
REAL = torch.tensor([1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1], dtype=torch.bool)
PADDING = torch.arange(L) >= torch.tensor([L, 3, 4, L, 2, L])[:, None]


def an_encoder() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(D, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(D), enable_nested_tensor=False).double()
    replace_norms(encoder.train(), "bn", "bn")
    return encoder


def results_of(module: nn.Module, inputs: Tensor, weight: Tensor, **given: Any) -> dict[str, Any]:
    """Output, all gradients and the state afterwards; `weight` is the slope."""
    inputs = inputs.clone().requires_grad_()
    out = module(inputs, **given)
    (out * weight).sum().backward()
    return {
        "out": out.detach(),
        "of inputs": inputs.grad,
        "of parameters": [one.grad for one in module.parameters()],
        "state": [*module.state_dict().values()],
    }


def all_results(data: dict[str, Any], chosen: dict[str, slice], parallel: bool) -> dict[str, Any]:
    """What a norm, with and without a mask, an arm and an encoder give for these rows."""
    found = {}
    rows = chosen["rows"]
    for masked in (True, False):
        norm = MaskedBatchNorm(D).double()
        norm.load_state_dict(data["norm"])
        real = REAL[rows] if masked else None
        found[masked] = results_of(norm, data["rows"][rows], data["slope"][rows], real=real)
    # In float32 the compiled functions would take it, which know of one process alone.
    arm = make_norm("shared-bn", D)
    arm.norm.load_state_dict(data["norm"])
    slope = data["slope"][rows].float()
    found["arm"] = results_of(arm, data["rows"][rows].float(), slope, num_graphs=2)
    encoder: nn.Module = an_encoder()
    encoder.load_state_dict(data["encoder"])
    if parallel:
        encoder = nn.parallel.DistributedDataParallel(encoder)
    own = chosen["sequences"]
    found["encoder"] = results_of(
        encoder, data["src"][own], data["weight"][own], src_key_padding_mask=PADDING[own]
    )
    return found


def _one_of_two(rank: int, folder: str) -> None:
    """A process that has 7 or 4 of the rows, two or four of the sequences."""
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{folder}/rendezvous", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    try:
        data = torch.load(f"{folder}/data.pt", weights_only=True)
        bounds = {"rows": 7, "sequences": 2}
        chosen = {k: slice(n) if rank == 0 else slice(n, None) for k, n in bounds.items()}
        torch.save(all_results(data, chosen, parallel=True), f"{folder}/{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_normalize_what_they_have_together(tmp_path: Path) -> None:
    norm = MaskedBatchNorm(D)
    randomize(norm)
    data = {"norm": norm.state_dict(), "encoder": an_encoder().state_dict()}
    data |= {name: torch.randn(len(REAL), D).double() for name in ("rows", "slope")}
    data |= {"src": torch.randn(N, L, D).double()}
    data |= {"weight": torch.randn(N, L, D).double() * ~PADDING[..., None]}
    torch.save(data, tmp_path / "data.pt")
    torch.multiprocessing.spawn(_one_of_two, args=(str(tmp_path),), nprocs=2)
    parts = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    truth = all_results(data, {"rows": slice(None), "sequences": slice(None)}, parallel=False)
    for what, whole in truth.items():
        real = ~PADDING if what == "encoder" else ...
        exact, of_sums = (1e-5, 1e-4) if what == "arm" else (EXACT, 1e-8)
        for name in ("out", "of inputs"):
            joint = torch.cat([part[what][name] for part in parts])
            assert relative_error(joint[real], whole[name][real]) < exact, (what, name)
        for number, gradient in enumerate(whole["of parameters"]):
            own = [part[what]["of parameters"][number] for part in parts]
            # Those of a bare norm add up; DDP has averaged them in each process.
            found = [2 * one for one in own] if what == "encoder" else [sum(own)]
            for joint in found:
                assert float((joint - gradient).abs().max()) < of_sums, what
        for part in parts:
            for one, value in zip(part[what]["state"], whole["state"], strict=True):
                assert relative_error(one, value) < exact, what
