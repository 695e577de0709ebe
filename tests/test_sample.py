"""The bundled sample: how it was made, that its labels are right, and its data set."""

import gzip
import hashlib
from itertools import islice
from pathlib import Path

import make_sample
import numpy as np
import pytest
from reference.molecules import sample_rows

from graphormer_sepnorm.datasets.catalog import load_dataset
from graphormer_sepnorm.resources import sample_path

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, float]]:
    return [(smiles, float(value)) for smiles, value in sample_rows()]


def test_remade_rows_are_the_files_first_rows(rows):
    drugs = make_sample.read_drugs(REPOSITORY / "data" / "drugs.smi")
    assert len(drugs) > 200
    for made, kept in zip(islice(make_sample.sample_molecules(drugs), 150), rows, strict=False):
        assert made[0] == kept[0]
        assert made[1] == pytest.approx(kept[1], abs=6e-6)


def test_file_is_the_one_that_was_checked():
    """The text, not the compressed bytes: those depend on the zlib at hand."""
    text = gzip.decompress(sample_path().read_bytes())
    expected = "bab5d53c0ec93c5a7c81948ac6094a280109a0c597d2cab962e74feb75e4297d"
    assert hashlib.sha256(text).hexdigest() == expected


def test_dataset_has_every_row_once(rows):
    splits = load_dataset("sample", Path())
    sizes = {name: len(part) for name, part in splits.parts.items()}
    assert sizes == {"train": 5600, "validation": 700, "test": 700}
    values = dict(rows)
    met = []
    for name, part in splits.parts.items():
        assert len(splits.smiles[name]) == len(part)
        own = [values[smiles] for smiles in splits.smiles[name]]
        np.testing.assert_allclose(part.y[:, 0], own, rtol=1e-6)
        met += splits.smiles[name]
    assert sorted(met) == sorted(values)
