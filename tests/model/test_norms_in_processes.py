"""`replace_norms` under DistributedDataParallel."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from reference.models import relative_error
from torch import nn

from graphormer_sepnorm import replace_norms

N, L, D = 6, 5, 8
EXACT = 1e-10


def an_encoder() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(D, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(D), enable_nested_tensor=False).double()
    replace_norms(encoder.train(), "bn", "bn")
    return encoder


def _one_of_two(rank: int, folder: str) -> None:
    """A process that has two or four of the six sequences."""
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{folder}/rendezvous", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    try:
        given = torch.load(f"{folder}/given.pt", weights_only=True)
        encoder = an_encoder()
        encoder.load_state_dict(given.pop("state"))
        parallel = nn.parallel.DistributedDataParallel(encoder)
        own = {key: value[:2] if rank == 0 else value[2:] for key, value in given.items()}
        out = parallel(own["src"], src_key_padding_mask=own["padding"])
        (out * own["weight"]).sum().backward()
        gradients = {name: one.grad for name, one in encoder.named_parameters()}
        torch.save((out.detach(), gradients, encoder.state_dict()), f"{folder}/{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_have_the_statistics_of_all(tmp_path: Path):
    encoder = an_encoder()
    padding = torch.arange(L) >= torch.tensor([L, 3, 4, L, 2, L])[:, None]
    given = {"src": torch.randn(N, L, D).double(), "padding": padding}
    given["weight"] = torch.randn(N, L, D).double() * ~padding[..., None]
    torch.save(given | {"state": encoder.state_dict()}, tmp_path / "given.pt")
    torch.multiprocessing.spawn(_one_of_two, args=(str(tmp_path),), nprocs=2)
    parts = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    out = encoder(given["src"], src_key_padding_mask=padding)
    (out * given["weight"]).sum().backward()
    real = ~padding
    assert relative_error(torch.cat([part[0] for part in parts])[real], out[real]) < EXACT
    for _, gradients, state in parts:
        for name, value in encoder.state_dict().items():
            assert relative_error(state[name], value) < EXACT
        for name, one in encoder.named_parameters():  # DDP averages them
            assert (2 * gradients[name] - one.grad).abs().max() < 1e-8
