"""Each norm arm on packed rows against direct formulas on the padded [B, T, C] layout."""

import pytest
import torch
from reference.models import ARMS, randomize, relative_error
from torch import Tensor

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.config import NORM_ALIASES, NORMS, norm_name
from graphormer_sepnorm.model.norms import make_norm

EXACT = 1e-11
SIZES = (4, 1, 7, 2, 3)
CHANNELS = 6


def padded_formula(
    state: dict[str, Tensor], tokens: Tensor, mask: Tensor, arm: str, first: bool, training: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """The arm over padded tokens ``[B, T, C]`` with ``mask [B, T]``, and new running statistics."""
    is_token = torch.zeros_like(mask)
    is_token[:, 0] = True
    if arm.startswith("shared-") and not (first and arm == "shared-bn"):
        branches = [(arm.removeprefix("shared-"), "norm", torch.ones_like(mask))]
    else:
        kinds = [arm.removeprefix("shared-")] * 2 if "+" not in arm else arm.split("+")
        if first:
            kinds[0] = "ln"
        branches = [(kinds[0], "graph_token_norm", is_token), (kinds[1], "atom_norm", ~is_token)]
    result = torch.zeros_like(tokens)
    statistics = {}
    for kind, name, belongs in branches:
        if kind == "ln":
            mean = tokens.mean(-1, keepdim=True)
            variance = ((tokens - mean) ** 2).mean(-1, keepdim=True)
        elif training:
            weights = (belongs & mask)[..., None].double()
            count = weights.sum()
            mean = (tokens * weights).sum((0, 1)) / count
            variance = ((tokens - mean) ** 2 * weights).sum((0, 1)) / count
            for key, new in (("mean", mean), ("var", variance * count / (count - 1))):
                old = state[f"{name}.running_{key}"]
                statistics[f"{name}.running_{key}"] = (0.9 * old + 0.1 * new).detach()
        else:
            mean, variance = (state[f"{name}.running_{key}"] for key in ("mean", "var"))
        normal = (tokens - mean) / torch.sqrt(variance + 1e-5)
        out = normal * state[f"{name}.weight"] + state[f"{name}.bias"]
        result = torch.where(belongs[..., None], out, result)
    return result, statistics


@pytest.mark.parametrize("filler", [None, 0, 5])
@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("arm", ARMS)
def test_packed_rows_equal_the_padded_formula(arm, training, first, filler):
    norm = make_norm(arm, CHANNELS, first=first).double().train(training)
    randomize(norm)
    longest = 1 + max(SIZES)
    mask = torch.arange(longest) <= torch.tensor(SIZES)[:, None]
    # Garbage at padding: it must not enter anything.
    tokens = torch.randn(len(SIZES), longest, CHANNELS, dtype=torch.float64) * 2 + 1
    is_atom = mask.clone()
    is_atom[:, 0] = False
    state = {
        k: v.clone().requires_grad_(v.is_floating_point()) for k, v in norm.state_dict().items()
    }
    padded = tokens.clone().requires_grad_()
    truth, statistics = padded_formula(state, padded, mask, arm, first, training)

    graph_token = tokens[:, 0].clone().requires_grad_()
    atoms = tokens[is_atom].clone().requires_grad_()
    rows, real = atoms, None
    if filler is not None:
        rows = torch.cat([atoms, torch.full((filler, CHANNELS), 1e3, dtype=torch.float64)])
        real = torch.arange(len(rows)) < len(atoms)
    out = norm(torch.cat([graph_token, rows]), len(SIZES), real)
    token_out, atom_out = out[: len(SIZES)], out[len(SIZES) :]
    assert atom_out.shape == rows.shape
    atom_out = atom_out[: len(atoms)]
    assert relative_error(token_out, truth[:, 0]) < EXACT
    assert relative_error(atom_out, truth[is_atom]) < EXACT

    weight = torch.randn_like(tokens)
    ((token_out * weight[:, 0]).sum() + (atom_out * weight[is_atom]).sum()).backward()
    (truth * weight * mask[..., None]).sum().backward()
    assert relative_error(graph_token.grad, padded.grad[:, 0]) < EXACT
    assert relative_error(atoms.grad, padded.grad[is_atom]) < EXACT
    for name, parameter in norm.named_parameters():
        assert relative_error(parameter.grad, state[name].grad) < EXACT, name
    changed = {name: buffer for name, buffer in norm.named_buffers() if "running" in name}
    assert bool(changed) == ("bn" in arm and not (first and arm == "bn+ln"))
    for name, buffer in changed.items():
        assert relative_error(buffer, statistics.get(name, state[name])) < EXACT, name


def test_all_arms_are_tested():
    assert {*ARMS} == {*NORMS}


def test_aliases_capitals_and_slips():
    assert [norm_name(name) for name in ("sepnorm", "sharenorm", "BN+LN")] == [
        "bn+ln",
        "shared-ln",
        "bn+ln",
    ]
    with pytest.raises(ConfigError, match="did you mean 'sepnorm'") as caught:
        norm_name("sepnrom")
    assert all(choice in str(caught.value) for choice in (*NORMS, *NORM_ALIASES))
    with pytest.raises(ConfigError, match="unknown norm 'zzz': choose"):
        norm_name("zzz")
