"""Options of the model: what contradicts itself is an error of one line."""

import dataclasses

import pytest
import torch
from reference.models import (
    batch_of,
    batch_of_smiles,
    relative_error,
    small_config,
    small_model,
    stored,
)
from reference.molecules import graph, molecule

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer

ROWS = {"atom_rows": 5, "bond_rows": 5}


CONTRADICTIONS = [
    ({"norm": "sepnrom"}, "sepnrom.*did you mean 'sepnorm'"),
    ({"norm": None}, "norm is None"),
    ({"width": 81}, "width 81.*heads 8"),
    ({"max_path_length": 41}, "max_path_length 41.*40"),
    ({"local_layers": 12, "local_mpnn": "gine"}, "local_layers is 12: .*12"),
    ({"local_layers": 1}, "local_layers .*gine"),
    ({"bond_states": True}, "bond_states .*gine"),
    ({"readout": "max"}, "readout is 'max': .*graph_token"),
    ({"norm_position": "middle"}, "norm_position is "),
    ({"spatial_rows": 2}, "spatial_rows is "),
    ({"layers": 2.5}, "layers is "),
    ({"layers": True}, "layers is "),
    ({"local_layers": -1}, "local_layers is "),
    ({"mean_atoms": float("inf")}, "mean_atoms is "),
    ({"width": "80"}, "width is "),
    ({"dropout": None}, "dropout is "),
    ({"drop_path": 1.0}, "drop_path is "),
]


@pytest.mark.parametrize(("options", "message"), CONTRADICTIONS)
def test_contradictions_are_config_errors(options, message):
    with pytest.raises(ConfigError, match=message) as caught:
        GraphormerConfig(**options)
    assert "\n" not in str(caught.value)


def test_tables_are_sized_for_the_vocabulary():
    _, vocabulary = stored([molecule("CC=O")])
    config = GraphormerConfig().for_vocabulary(vocabulary)
    assert (config.atom_rows, config.bond_rows) == (
        vocabulary.atoms.num_rows,
        vocabulary.bonds.num_rows,
    )
    assert dataclasses.replace(config, atom_rows=None, bond_rows=None) == GraphormerConfig()
    assert config.for_vocabulary(vocabulary) == config
    larger = GraphormerConfig(atom_rows=64, bond_rows=64).for_vocabulary(vocabulary)
    assert (larger.atom_rows, larger.bond_rows) == (64, 64)
    for option in ("atom_rows", "bond_rows"):
        with pytest.raises(ConfigError, match=f"{option} 2 is too small"):
            GraphormerConfig(**{option: 2}).for_vocabulary(vocabulary)


@pytest.mark.parametrize("missing", ["atom_rows", "bond_rows"])
def test_a_model_needs_its_tables_sized(missing):
    with pytest.raises(ConfigError, match="for_vocabulary"):
        Graphormer(small_config(**(ROWS | {missing: None})))


def test_float32_agrees_with_float64():
    vocabulary, batch = batch_of_smiles("CCO", "c1ccccc1C(=O)O")
    model = small_model(vocabulary)
    exact = model(batch)
    assert torch.allclose(model.float()(batch).double(), exact, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(batch)
    assert relative_error(rough, exact) < 0.1


def test_a_data_set_without_any_bonds():
    graphs = [graph(1, []), graph(3, [])]
    _, vocabulary = stored(graphs)
    assert small_model(vocabulary)(batch_of(graphs, vocabulary)).isfinite().all()


def test_a_store_with_fewer_hops_than_the_model_counts_is_a_clear_error():
    vocabulary, batch = batch_of_smiles("CCO")
    for hops in (6, 20):
        with pytest.raises(ConfigError, match=rf"{hops} hops .* holds paths of 5: make its"):
            small_model(vocabulary, max_path_length=hops)(batch)
