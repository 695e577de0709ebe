"""`SepNorm` in torch.compile and torch.export: the numbers of sequences and positions vary."""

import copy

import pytest
import torch
from reference.models import randomize
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch.export import Dim

from graphormer_sepnorm import SepNorm

D = 8

PLACES = [(0, False), (2, False), (-1, True)]
CASES = [(p, *at, train) for p in ("bn+ln", "bn+bn") for at in PLACES for train in (True, False)]
EACH = pytest.mark.parametrize(("pair", "position", "masked", "training"), CASES)


@pytest.fixture(autouse=True)
def _nothing_compiled_before():
    torch.compiler.reset()


def a_batch(n: int, length: int, masked: bool) -> tuple[Tensor, ...]:
    tokens = torch.randn(n, length, D) + 1
    if not masked:
        return (tokens,)
    mask = torch.rand(n, length) < 0.6
    mask[0] = True
    return tokens, mask


@EACH
def test_one_graph_serves_all_lengths(pair, position, masked, training):
    eager = SepNorm(D, *pair.split("+"), cls_position=position).train(training)
    randomize(eager)
    module = copy.deepcopy(eager)
    counter = CompileCounter()
    compiled = torch.compile(module, backend=counter, dynamic=True, fullgraph=True)
    for n, length in zip((3, 4, 5, 6, 4, 9), (5, 9, 4, 12, 7, 6), strict=True):
        batch = a_batch(n, length, masked)
        torch.testing.assert_close(compiled(*batch), eager(*batch))
    torch.testing.assert_close(module.state_dict(), eager.state_dict())
    assert counter.frame_count == 1


@EACH
def test_export_keeps_batch_and_length_open(pair, position, masked, training):
    module = SepNorm(D, *pair.split("+"), cls_position=position).train(training)
    randomize(module)
    # From 3 on: torch takes the size 1, here of all tokens but [CLS], for a constant.
    sizes = {0: Dim("n"), 1: Dim("length", min=3)}
    example = a_batch(3, 7, masked)
    exported = torch.export.export(module, example, dynamic_shapes=(sizes,) * len(example))
    again = exported.module()
    for n, length in ((2, 3), (5, 11), (4, 4)):
        batch = a_batch(n, length, masked)
        torch.testing.assert_close(again(*batch), module(*batch))
    # In training both have kept the same running statistics.
    torch.testing.assert_close(dict(again.named_buffers()), dict(module.named_buffers()))
