"""The verb geometry of predict.py: how the embeddings of a model lie, layer by layer."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from graphormer_sepnorm.cli.main import OneLineParser, check_least
from graphormer_sepnorm.cli.table_verbs import add_layout
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.formatting import aligned

if TYPE_CHECKING:
    from graphormer_sepnorm.compare.model_geometry import CloudGeometry
    from graphormer_sepnorm.graphs.store import GraphStore
    from graphormer_sepnorm.inference.predictor import Predictor

USAGE = "predict.py geometry MODEL -i FILE [-o FILE.json]"

DESCRIPTION = """\
Measure how the embeddings of [CLS] (the graph token) and of the atoms lie after each layer of a
model, for the molecules of a table.

uniformity   L_U of Chen et al. 2023, Eq. 4: 0 is one direction for all, the floor an even spread
rank         effective rank once the mean is taken away: how many directions are used
cosine       mean cosine of [CLS] to the atoms of its molecule
atoms, rings R2 with which ridge regression reads these numbers from [CLS], on every fifth
             molecule, fitted to the others
"""

_MOLECULES = 10_000
_HELD_OUT = 5  # one molecule in so many is for testing the probes


def geometry(arguments: list[str]) -> None:
    """Run ``predict.py geometry`` with the words after the verb.

    Raises:
        GraphormerError: A user's mistake.
    """
    options = _parse(arguments)
    from graphormer_sepnorm.inference.predictor import Predictor

    predictor = Predictor.load(options.model, options.device)
    store, left_out = _read(predictor, options)
    clouds = _measure(predictor, store)
    if options.output is not None:
        from graphormer_sepnorm.files import write_json

        result = {
            "model": str(options.model),
            "table": options.input,
            "molecules": store.num_graphs,
        }
        try:
            plain = [dataclasses.asdict(cloud) for cloud in clouds]
            write_json(Path(options.output), {**result, "clouds": plain}, indent=1)
        except OSError as error:
            raise DataError(f"{options.output} cannot be written ({error.strerror})") from error
    print(_table(clouds))
    note = f"{store.num_graphs:,} molecules"
    if left_out:
        given = shlex.quote(options.input)
        note += f"; {left_out:,} rows left out, which predict.py -i {given} explains"
    print(note, file=sys.stderr)
    if not predictor.model.config.reads_graph_token:
        from graphormer_sepnorm.inference.embeddings import READS_ATOMS

        print(f"note: {READS_ATOMS}", file=sys.stderr)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = OneLineParser(prog="predict.py geometry", usage=USAGE, description=DESCRIPTION)
    add = parser.add_argument
    add("model", metavar="MODEL", help="checkpoint, run directory or bundled name")
    add("-i", "--input", metavar="FILE", required=True, help="table of molecules; - reads stdin")
    add("-o", "--output", metavar="FILE", help="JSON file for all numbers, spectra and histograms")
    add_layout(add)
    add("--input_format", metavar="FORMAT", help="default: by the name of the file")
    many = f"so many from the top of the table ({_MOLECULES:,})"
    add("--molecules", metavar="N", type=int, default=_MOLECULES, help=many)
    add("--device", help="cpu, cuda, cuda:1 ...; default: a GPU if there is one")
    options = parser.parse_args(arguments)
    check_least(options, {"molecules": 2})
    if options.output is not None:
        output = Path(options.output)
        if output.exists():
            raise ConfigError(f"{output} is there already: name another file")
        if not output.parent.is_dir():
            raise ConfigError(f"{output} cannot be written: there is no folder {output.parent}")
    return options


def _read(predictor: Predictor, options: argparse.Namespace) -> tuple[GraphStore, int]:
    """Return the graphs of the molecules that the model understands, and how many it does not."""
    from graphormer_sepnorm.graphs.store import GraphStore
    from graphormer_sepnorm.inference.table_molecules import MoleculeColumns
    from graphormer_sepnorm.tables.opening import open_table
    from graphormer_sepnorm.tables.reader import Layout

    layout = Layout(options.sheet, options.header_row, options.smiles_column)
    with open_table(options.input, options.input_format, layout) as reader:
        columns = MoleculeColumns.find(reader, options.smiles_column)
        for note in columns.notes:
            print(f"note: {note}", file=sys.stderr)
        rows = itertools.islice(reader, options.molecules)
        molecules = columns.read([columns.unread(row) for row in rows]).parsed
        graphs, _, errors, _ = predictor.featurise(predictor.prepared(molecules))
    if graphs is None or len(graphs) < 2:
        reason = next((error for error in errors if error), "it has too few rows")
        raise DataError(
            f"{options.input}: {len(graphs or ())} of its molecules can be used, 2 are needed "
            f"({reason})"
        )
    path_length = predictor.model.config.max_path_length
    return GraphStore.from_graphs([graphs], path_length), len(errors) - len(graphs)


def _measure(predictor: Predictor, store: GraphStore) -> tuple[CloudGeometry, ...]:
    import numpy as np

    from graphormer_sepnorm.compare.model_geometry import (
        collect_embeddings,
        geometry_per_layer,
        ring_counts,
    )

    numbers = np.arange(store.num_graphs)
    embeddings = collect_embeddings(predictor.model, store, predictor.vocabulary, numbers)
    properties = {"atoms": embeddings.num_atoms, "rings": ring_counts(store, numbers)}
    check = numbers % _HELD_OUT == 0
    return geometry_per_layer(embeddings, properties, check=check, histograms=True)


def _table(clouds: tuple[CloudGeometry, ...]) -> str:
    """Return one line per layer, [CLS] and the atoms side by side."""
    rows = [
        ["", "uniformity", "", "rank", "", "cosine", "atoms", "rings"],
        ["", "[CLS]", "atoms", "[CLS]", "atoms", "", "R2", "R2"],
    ]
    for token, atoms in zip(clouds[::2], clouds[1::2], strict=True):
        probes = token.probes or {}
        numbers = [
            *((one.uniformity, 2) for one in (token, atoms)),
            *((one.effective_rank_centred, 1) for one in (token, atoms)),
            (token.cosine_to_atoms, 2),
            *((probes[name], 3) for name in ("atoms", "rings")),
        ]
        rows.append([token.layer, *(_number(value, digits) for value, digits in numbers)])
    floor = _number(clouds[0].uniformity_floor, 2)
    return f"{aligned(rows, numbers_from=1)}\nfloor of the uniformity in this width: {floor}"


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"
