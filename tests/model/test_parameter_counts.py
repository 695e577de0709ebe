"""Numbers of parameters against the published arithmetic, and the table that explains them."""

import pytest

from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer, count_parameters

SLIM = {"atom_rows": 64, "bond_rows": 64}

# Version 1 of the reference, slim, part by part.
LAYER = 6 * (80**2 + 80) + 4 * 80
PARTS = {
    "layers": 12 * LAYER,
    "embedding.atom": 64 * 80,
    "embedding.in_degree": 64 * 80,
    "embedding.out_degree": 64 * 80,
    "embedding.graph_token": 80,
    "bias.bond": 64 * 8,
    "bias.path_weight": 40 * 8 * 8,
    "bias.spatial": 40 * 8,
    "bias.graph_token": 8,
    "output_norm": 2 * 80,
    "readout": 80 + 1,
}


def test_slim_with_one_layer_norm_for_all_tokens():
    model = Graphormer(GraphormerConfig(norm="sharenorm", **SLIM))
    assert LAYER == 39_200
    found = dict.fromkeys(PARTS, 0)
    for name, parameter in model.named_parameters():
        part = next(part for part in PARTS if name == part or name.startswith(f"{part}."))
        found[part] += parameter.numel()
    assert found == PARTS
    assert count_parameters(model) == sum(PARTS.values()) == 489_481


@pytest.mark.parametrize(
    ("norm", "twice"),
    [("bn+ln", 25), ("bn+bn", 25), ("ln+ln", 25), ("ln+bn", 25), ("shared-bn", 1)],
)
def test_a_norm_of_its_own_for_the_token_adds_two_vectors(norm, twice):
    """To each of 25 norms; to a shared BatchNorm in first place only."""
    model = Graphormer(GraphormerConfig(norm=norm, **SLIM))
    assert count_parameters(model) == 489_481 + twice * 160


def test_base_model_is_of_the_published_size():
    """12 x 768 with 32 heads, tables sized as for ogbg-molhiv: 47.0 M published."""
    config = GraphormerConfig(
        norm="shared-ln", width=768, heads=32, ffn_width=768, atom_rows=120, bond_rows=14
    )
    layer = 6 * (768**2 + 768) + 4 * 768
    tables = (120 + 64 + 64 + 1) * 768 + (14 + 40 + 1) * 32 + 40 * 32**2 + 2 * 768 + 768 + 1
    number = count_parameters(Graphormer(config))
    assert number == 12 * layer + tables
    # The reference allots 512 x 9 atom rows and 512 degree rows, of which few are ever used.
    reference = number + (512 * 9 + 1 - 120 + 2 * (512 - 64)) * 768
    assert reference == pytest.approx(47.0e6, rel=0.02)
    assert 42e6 < number < 47.0e6
