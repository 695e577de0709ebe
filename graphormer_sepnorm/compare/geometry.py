"""The geometry of embeddings: how far a model spreads [CLS], and what can be read from it.

First the formulas, of ``[n, d]`` clouds with one embedding a row, in float64 and without units.
What is undefined is nan: where an embedding is zero (it has no direction) or not finite, or there
is only one (no pairs). Then the clouds of a trained run after each of its layers; `geometry_of`
stores what it measures in the directory of the run.

Sources: Wang & Isola (ICML 2020) for uniformity, as in Chen et al. (NeurIPS 2023, "SepNorm"),
Eq. 4 and Figs. 4b, 6a; Roy & Vetterli (EUSIPCO 2007) for the effective rank.

    n embeddings · d channels · G graphs · M atoms
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import hyp0f1
from scipy.stats import entropy
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.files import read_json, typed, write_json
from graphormer_sepnorm.graphs.loading import in_order, make_loader
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.inference.checkpoint import (
    KEY,
    build_network,
    model_weights,
    read_checkpoint,
)
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.runs.directory import RunDirectory

if TYPE_CHECKING:
    from graphormer_sepnorm.datasets.molecule_data import MoleculeData

OUTPUT = "output"
# Uniformity holds the distances of all pairs, and there are a dozen clouds in a model.
_UNIFORMITY_OF = 2000
# Of a run at most so many test molecules, whose embeddings are measured, and training molecules,
# from which probes learn.
_TEST_MOLECULES, _TRAINING_MOLECULES = 10_000, 2000
_VERSION = 4  # of what is stored in the directory of a run
# Penalties among which a probe chooses, for standardized features: from next to none to the mean.
PROBE_PENALTIES = tuple(10.0 ** (power / 2) for power in range(-6, 13))


def uniformity(embeddings: ArrayLike) -> float:
    """Return L_U, how evenly the directions of a cloud cover the sphere: less is more even.

    SepNorm's Eq. 4, which is Wang & Isola's loss with t = 2::

        log( 2 / (n (n - 1)) * sum over i < j of exp(-2 |u_i - u_j|^2) ),   u = h / |h|

    0 for a cloud that has collapsed to one direction; `uniformity_floor` is its expected value
    where the directions are drawn evenly. Holds n^2 numbers, twice. nan with fewer than two
    embeddings, or if one is zero (it has no direction) or not finite.
    """
    directions = _directions(embeddings)
    n = len(directions)
    if n < 2:
        return math.nan
    # |u - v|^2 = 2 - 2 u.v; each term lies between exp(-8) and 1, so that a plain sum neither
    # overflows nor loses anything.
    kernel = np.exp(4 * (np.minimum(directions @ directions.T, 1) - 1))
    np.fill_diagonal(kernel, 0)
    return math.log(kernel.sum() / (n * (n - 1)))


def uniformity_floor(width: int) -> float:
    """Return the L_U of infinitely many embeddings spread evenly over the sphere in `width` = d.

    ``-4 + log 0F1(; d/2; 4)``: the mean of ``exp(4 u)``, u a coordinate of an even direction, is
    0F1(; d/2; 4^2 / 4), a modified Bessel function (see Wang & Isola). About ``-4 + 8 / d`` for
    large d. n embeddings that avoid each other can lie lower, by 0.005 for n = 10,000 and d = 80.
    """
    return -4 + math.log(hyp0f1(width / 2, 4.0))


def effective_rank(embeddings: ArrayLike) -> float:
    """Return the effective rank of a cloud ``[n, d]`` without its mean; nan if it is not finite.

    Roy & Vetterli 2007: ``exp(- sum p log p)`` with ``p = s / sum s``, s the singular values. From
    1 (one direction) to d (all are equal); 0 if all embeddings are equal. (With the mean, as far as
    the SepNorm paper says, the first value is mostly the length of the mean.)
    """
    cloud = np.asarray(embeddings, dtype=np.float64)
    if not len(cloud) or not np.isfinite(cloud).all():
        return math.nan
    # The rounding error is that of the cloud as given: centering a collapsed cloud leaves nothing
    # but error, which must not pass for a spectrum.
    rounding = np.finfo(np.float64).eps * max(cloud.shape) * np.linalg.norm(cloud)
    values = np.linalg.svd(cloud - cloud.mean(0), compute_uv=False)
    spectrum = values[values > rounding]
    return float(np.exp(entropy(spectrum))) if len(spectrum) else 0.0


def cosine_to(graph_token: ArrayLike, atoms: ArrayLike, graph_of_atom: np.ndarray) -> np.ndarray:
    """Return the mean cosine between the [CLS] of each graph and the atoms of that graph.

    Args:
        graph_token: ``[G, d]``.
        atoms: ``[M, d]``, those of all graphs in any order, each has one or more.
        graph_of_atom: Integers ``[M]``, row of `graph_token` that an atom belongs to.

    Returns:
        float64 ``[G]``, from -1 to 1; nan where an embedding is zero or not finite.
    """
    tokens, others = _directions(graph_token), _directions(atoms)
    cosines = np.einsum("md,md->m", tokens[graph_of_atom], others).clip(-1, 1)
    return np.bincount(graph_of_atom, cosines) / np.bincount(graph_of_atom)


def linear_probe(
    train_x: ArrayLike, train_y: np.ndarray, test_x: ArrayLike, test_y: np.ndarray
) -> float:
    """Return how much of a quantity a linear read-out finds in embeddings, as R^2 on other rows.

    Ridge regression on features standardized by the training rows, with that of `PROBE_PENALTIES`
    whose leave-one-out squared error on the training rows is least. Where LayerNorm has erased
    the length of [CLS], what is proportional to that length (atom count, an additive target) is
    not to be found by it any more.

    Args:
        train_x: Embeddings ``[n, d]`` that the probe is fitted to.
        train_y: Their quantity ``[n]``, finite, in any unit: R^2 does not depend on it.
        test_x: Other embeddings ``[m, d]``.
        test_y: Their quantity ``[m]``.

    Returns:
        1 for a perfect read-out, about 0 for one that is no better than the mean, less if worse;
        nan with fewer than two rows in either part, if all `test_y` are equal, or if an embedding
        is not finite.
    """
    x, other = (np.asarray(side, dtype=np.float64) for side in (train_x, test_x))
    if min(len(x), len(other)) < 2 or (test_y == test_y[0]).all():
        return math.nan
    if not (np.isfinite(x).all() and np.isfinite(other).all()):
        return math.nan
    probe = make_pipeline(StandardScaler(), RidgeCV(alphas=PROBE_PENALTIES)).fit(x, train_y)
    return float(probe.score(other, test_y))


def _directions(embeddings: ArrayLike) -> np.ndarray:
    """Return the rows at length 1; nan for those that are zero or not finite."""
    cloud = np.asarray(embeddings, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        # By the largest entry first: squares of very small or large ones leave the range.
        cloud = cloud / np.abs(cloud).max(1, keepdims=True)
        return cloud / np.linalg.norm(cloud, axis=1, keepdims=True)


@dataclass(frozen=True)
class LayerGeometry:
    """The geometry of n [CLS] embeddings at one layer of a model; nan is what they do not have.

    Attributes:
        layer: ``layer 1`` and so on, or ``output``.
        uniformity: Of at most 2,000 of them, sampled with a fixed seed.
        uniformity_floor: Of this width.
        effective_rank: Of their spectrum without the mean.
        cosine_to_atoms: Mean over the molecules.
        probes: R² of each quantity that is read from them.
    """

    layer: str
    uniformity: float = math.nan
    uniformity_floor: float = math.nan
    effective_rank: float = math.nan
    cosine_to_atoms: float = math.nan
    probes: dict[str, float] | None = None


def collect_embeddings(
    model: Graphormer,
    store: GraphStore,
    vocabulary: GraphVocabulary,
    indices: np.ndarray,
    batch_size: int = 64,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Run a model in evaluation mode; return [CLS] after each layer and at the output, by name.

    With `norm_position: pre` a layer gives the residual stream, which no norm has touched yet; the
    output is what the last norm made of it. With ``post`` the output is the last layer again.

    Args:
        model: The network (`GraphormerModule.model`), on the CPU; set to evaluation mode.
        store: The graphs.
        vocabulary: What the model knows of them.
        indices: int64 ``[G]``, which of them, at least one.
        batch_size: Graphs that are computed at once.

    Returns:
        [CLS] ``[G, d]`` in the floating type of the model (float32 at least), and its `cosine_to`
        the atoms, ``[G]``; in the order of `indices`.
    """
    names = [*(f"layer {number}" for number in range(1, len(model.layers) + 1)), OUTPUT]
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in names}
    after_layers: list[Tensor] = []  # packed rows [graphs + atoms of a batch, d]

    def record(layer: nn.Module, given: Any, made: tuple[Tensor, Tensor | None]) -> None:
        after_layers.append(made[0])

    hooks = [layer.register_forward_hook(record) for layer in model.layers]
    model.eval()
    try:
        with torch.no_grad():
            for batch in make_loader(store, vocabulary, in_order(store, indices, batch_size)):
                after_layers.clear()
                outputs = torch.cat(model.encode(batch))
                graph_of_atom = batch.graph_of_atom.numpy()
                for of_layer, rows in zip(found.values(), [*after_layers, outputs], strict=True):
                    wide = rows if rows.dtype == torch.float64 else rows.float()
                    token, atoms = np.split(wide.numpy(), [batch.num_graphs])
                    # A copy, or it would keep the whole batch alive.
                    of_layer.append((token.copy(), cosine_to(token, atoms, graph_of_atom)))
    finally:
        for hook in hooks:
            hook.remove()
    joined = (map(np.concatenate, zip(*of_layer, strict=True)) for of_layer in found.values())
    return {name: (token, cosines) for name, (token, cosines) in zip(names, joined, strict=True)}


def measured(
    layer: str,
    token: np.ndarray,
    cosines: np.ndarray,
    properties: Mapping[str, np.ndarray],
    tested: np.ndarray,
) -> LayerGeometry:
    """Measure the cloud of [CLS] at one layer, as `collect_embeddings` gives it.

    Args:
        layer: Its name.
        token: Of G molecules, ``[G, d]``.
        cosines: To their atoms, ``[G]``.
        properties: Quantities that probes read from [CLS]: ``[G]``, nan where they are unknown.
        tested: bool ``[G]``: the molecules whose embeddings are measured and that probes are tested
            on; they are fitted to the others.
    """
    probes = {}
    for quantity, column in properties.items():
        values = column.astype(np.float64)
        fit, test = (~np.isnan(values) & part for part in (~tested, tested))
        probes[quantity] = linear_probe(token[fit], values[fit], token[test], values[test])
    cloud = sampled = token[tested]
    if len(cloud) > _UNIFORMITY_OF:
        sampled = cloud[np.random.default_rng(0).choice(len(cloud), _UNIFORMITY_OF, replace=False)]
    return LayerGeometry(
        layer,
        uniformity=uniformity(sampled),
        uniformity_floor=uniformity_floor(cloud.shape[1]),
        effective_rank=effective_rank(cloud),
        cosine_to_atoms=float(cosines[tested].mean()) if len(cloud) else math.nan,
        probes=probes,
    )


def geometry_of(run: RunDirectory, data: MoleculeData) -> tuple[LayerGeometry, ...]:
    """Measure the embeddings of the tested checkpoint of a run on the CPU, see `measured`.

    The result is stored in the directory of the run and taken from there the next time, also where
    the checkpoint was deleted meanwhile. No other checkpoint is measured instead.

    Args:
        run: Its directory.
        data: What it was trained on.

    Raises:
        CheckpointError: The checkpoint cannot be read, or it is gone and nothing was stored.
    """
    wanted = {"version": _VERSION, "dataset_fingerprint": data.splits.fingerprint}
    stored = read_json(run.geometry_file) or {}  # removed when the run is trained further
    if wanted.items() <= stored.items():
        return typed(tuple[LayerGeometry, ...], stored["clouds"])
    file = run.checkpoints / Path((run.summary() or {})["checkpoint"]).name
    if not file.is_file():
        raise CheckpointError(
            f"{file} is gone, and what the report needs of it was not stored: put it back, or "
            f"remove {run.path} and start the comparison again to train this run again"
        )
    checkpoint = read_checkpoint(file)
    model = build_network(checkpoint[KEY]["model"], model_weights(checkpoint))
    # The same molecules for every arm, in their order.
    test, train = (
        np.sort(np.random.default_rng(0).permutation(data.indices(split))[:most])
        for split, most in (("test", _TEST_MOLECULES), ("train", _TRAINING_MOLECULES))
    )
    indices = np.concatenate([train, test])
    vocabulary = GraphVocabulary.from_plain(checkpoint[KEY]["vocabulary"])
    layers = collect_embeddings(model, data.store, vocabulary, indices, data.eval_batch_size)
    properties = {"atoms": data.store.num_atoms(indices), "target": data.store.targets[indices, 0]}
    tested = np.isin(indices, test)
    clouds = tuple(measured(name, *of, properties, tested) for name, of in layers.items())
    plain = [asdict(cloud) for cloud in clouds]
    write_json(run.geometry_file, {**wanted, "clouds": plain}, indent=None)
    return clouds
