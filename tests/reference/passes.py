"""All that a model makes of a batch, and whether two passes are the same."""

import torch

from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.model.graphormer import Graphormer
from reference.models import relative_error

EXACT = 1e-9


def run(model: Graphormer, batch: GraphBatch):
    """Predictions, atoms, gradients and buffers of one pass of a copy of the model's state."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.zero_grad()
    token, atoms = model.encode(batch)
    real = torch.ones(len(atoms), dtype=torch.bool)
    if batch.real_atoms is not None:
        real = batch.real_atoms
    output = model.read_out(token, atoms, batch)
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    ((weight * output).sum() + atoms[real].sin().sum()).backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    buffers = {name: tensor.clone() for name, tensor in model.named_buffers()}
    model.load_state_dict(state)
    return output.detach(), atoms[real].detach(), gradients, buffers


def assert_same(one, other, tolerance: float = EXACT) -> None:
    assert relative_error(one[0], other[0]) < tolerance
    assert relative_error(one[1], other[1]) < tolerance
    # Gradients relative to the largest of all: that of a key's bias, for one, is exactly zero.
    largest = max(float(gradient.abs().max()) for gradient in other[2].values())
    assert one[2].keys() == other[2].keys()
    for name, gradient in one[2].items():
        assert float((gradient - other[2][name]).abs().max()) < tolerance * largest, name
    assert one[3].keys() == other[3].keys()
    for name, buffer in one[3].items():
        assert relative_error(buffer, other[3][name]) < tolerance, name
