"""The geometry of embeddings: how far a model spreads [CLS], and what can be read from it.

First the formulas, of ``[n, d]`` clouds with one embedding a row, in float64 and without units.
What is undefined is nan: where an embedding is zero (it has no direction) or not finite, or there
is only one (no pairs). Then the clouds of a trained run after each of its layers; `geometry_of`
stores what it measures in the directory of the run.

Sources: Wang & Isola (ICML 2020) for uniformity, as in Chen et al. (NeurIPS 2023, "SepNorm"),
Eq. 4 and Figs. 4b, 6a; Roy & Vetterli (EUSIPCO 2007) for the effective rank.

    n embeddings · d channels · G graphs · M sampled atoms
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import hyp0f1
from scipy.stats import entropy
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
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
    from graphormer_sepnorm.datasets.data_module import MoleculeDataModule

OUTPUT = "output"
# Uniformity holds the distances of all pairs, and there are a dozen clouds in a model.
_UNIFORMITY_OF = 2000
# Of a run at most so many test molecules, whose embeddings are measured, and training molecules,
# from which probes learn; and the atoms of both, so that some 10,000 are left of the former.
_TEST_MOLECULES, _TRAINING_MOLECULES, _ATOMS = 10_000, 2000, 30_000
_SEED = 0
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


def singular_values(embeddings: ArrayLike) -> np.ndarray:
    """Return the singular values of a cloud without its mean, largest first.

    Their squares, divided by n, are the variances along the principal axes. (With the mean, as far
    as the SepNorm paper says, the first value is mostly the length of the mean.)

    Args:
        embeddings: ``[n, d]``, finite, at least one.

    Returns:
        float64 ``[min(n, d)]``; they grow with sqrt(n) and with the scale of the embeddings. Values
        within rounding error of 0 are 0.
    """
    cloud = np.asarray(embeddings, dtype=np.float64)
    # The rounding error is that of the cloud as given: centering a collapsed cloud leaves nothing
    # but error, which must not pass for a spectrum.
    rounding = np.finfo(np.float64).eps * max(cloud.shape) * np.linalg.norm(cloud)
    values = np.linalg.svd(cloud - cloud.mean(0), compute_uv=False)
    return np.where(values > rounding, values, 0.0)


def effective_rank(spectrum: np.ndarray) -> float:
    """Return the effective rank of a spectrum: exp of the entropy of its normalized values.

    Roy & Vetterli 2007: ``exp(- sum p log p)`` with ``p = s / sum s``, natural logarithm. From 1
    (one direction) to q (all singular values ``[q]`` are equal); 0 if all of them are 0.
    """
    return float(np.exp(entropy(spectrum))) if spectrum.any() else 0.0


def cosine_to(graph_token: ArrayLike, atoms: ArrayLike, graph_of_atom: np.ndarray) -> np.ndarray:
    """Return the mean cosine between the [CLS] of each graph and the atoms of that graph.

    Args:
        graph_token: ``[G, d]``.
        atoms: ``[M, d]``, all or some atoms of these graphs in any order.
        graph_of_atom: Integers ``[M]``, row of `graph_token` that an atom belongs to.

    Returns:
        float64 ``[G]``, from -1 to 1; nan for a graph without atoms here. Empty if an embedding is
        zero or not finite.
    """
    tokens, others = _directions(graph_token), _directions(atoms)
    if not (len(tokens) and len(others)):
        return np.empty(0)
    cosines = np.einsum("md,md->m", tokens[graph_of_atom], others).clip(-1, 1)
    number = np.bincount(graph_of_atom, minlength=len(tokens))
    sums = np.bincount(graph_of_atom, cosines, minlength=len(tokens))
    return np.where(number > 0, sums / np.maximum(number, 1), np.nan)


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
    scaler = StandardScaler().fit(x)
    probe = RidgeCV(alphas=PROBE_PENALTIES).fit(scaler.transform(x), train_y)
    return float(r2_score(test_y, probe.predict(scaler.transform(other))))


def _directions(embeddings: ArrayLike) -> np.ndarray:
    """Return the rows at length 1; none at all if one is zero or not finite."""
    cloud = np.asarray(embeddings, dtype=np.float64)
    # Divided by the largest entry first: squares of very small or large ones leave the range.
    largest = np.abs(cloud).max(1, keepdims=True)
    if not np.isfinite(cloud).all() or not largest.all():
        return cloud[:0]
    directions = cloud / largest
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)


class LayerEmbeddings(NamedTuple):
    """[CLS] ``[G, d]`` and the sampled atoms ``[M, d]`` at ``layer 1`` and so on, or ``output``."""

    name: str
    graph_token: np.ndarray
    atoms: np.ndarray


class ModelEmbeddings(NamedTuple):
    """The embeddings of some graphs throughout a model.

    Attributes:
        layers: One per encoder layer, in order, then the output. With ``norm_position: pre`` a
            layer gives the residual stream, which no norm has touched yet; the output is what the
            last norm made of it. With ``post`` the output is the last layer again.
        graph_of_atom: int64 ``[M]``, row of the graph that each sampled atom belongs to.
        num_atoms: int64 ``[G]``, atoms of each graph, sampled or not.
    """

    layers: tuple[LayerEmbeddings, ...]
    graph_of_atom: np.ndarray
    num_atoms: np.ndarray


@dataclass(frozen=True)
class LayerGeometry:
    """The geometry of n [CLS] embeddings at one layer of a model; nan is what they do not have.

    Attributes:
        layer: ``layer 1`` and so on, or ``output``.
        embeddings: n.
        uniformity: Of at most 2,000 of them, sampled with a fixed seed.
        uniformity_floor: Of this width.
        effective_rank: Of their spectrum without the mean.
        cosine_to_atoms: Mean over the molecules.
        probes: R² of each quantity that is read from them.
    """

    layer: str
    embeddings: int = 0
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
    *,
    batch_size: int = 64,
    max_atoms: int = 10_000,
    seed: int = 0,
) -> ModelEmbeddings:
    """Run a model in evaluation mode and return its embeddings.

    Which atoms are sampled depends on `seed`, `max_atoms` and the set of graphs alone, not on the
    model, so that arms are compared on the same atoms.

    Args:
        model: The network (`GraphormerModule.model`), on any device; set to evaluation mode.
        store: The graphs.
        vocabulary: What the model knows of them.
        indices: int64 ``[G]``, which of them, at least one.
        batch_size: Graphs that are computed at once.
        max_atoms: Largest M. All atoms are taken if there are no more.
        seed: Of the sample.

    Returns:
        Rows in the order of `indices`, in the floating type of the model (float32 at least).
    """
    num_atoms = store.num_atoms(indices)
    # The atoms with the smallest random numbers, which depend on (seed, graph, index in the graph).
    keys = [
        np.random.default_rng([seed, index]).random(count)
        for index, count in zip(indices.tolist(), num_atoms.tolist(), strict=True)
    ]
    chosen = np.zeros(int(num_atoms.sum()), dtype=bool)
    chosen[np.argsort(np.concatenate(keys), kind="stable")[:max_atoms]] = True
    names = [*(f"layer {number}" for number in range(1, len(model.layers) + 1)), OUTPUT]
    found: dict[str, list[list[np.ndarray]]] = {name: [] for name in names}
    after_layers: list[Tensor] = []  # packed rows [graphs + atoms of a batch, d]

    def record(layer: nn.Module, given: Any, made: tuple[Tensor, Tensor | None]) -> None:
        after_layers.append(made[0])

    def to_numpy(rows: Tensor) -> np.ndarray:
        wide = rows if rows.dtype == torch.float64 else rows.float()
        return wide.cpu().numpy().copy()  # or it would keep the whole batch alive

    hooks = [layer.register_forward_hook(record) for layer in model.layers]
    device = next(model.parameters()).device
    model.eval()
    first = 0
    try:
        with torch.no_grad():
            for batch in make_loader(store, vocabulary, in_order(store, indices, batch_size)):
                after_layers.clear()
                outputs = torch.cat(model.encode(batch.to(device)))
                end = first + len(batch.graph_of_atom)
                atoms = torch.from_numpy(np.flatnonzero(chosen[first:end])).to(device)
                first = end
                for of_layer, rows in zip(found.values(), [*after_layers, outputs], strict=True):
                    parts = rows[: batch.num_graphs], rows[batch.num_graphs + atoms]
                    of_layer.append([to_numpy(part) for part in parts])
    finally:
        for hook in hooks:
            hook.remove()
    layers = [
        LayerEmbeddings(name, *map(np.concatenate, zip(*of_layer, strict=True)))
        for name, of_layer in found.items()
    ]
    graph_of_atom = np.repeat(np.arange(len(indices)), num_atoms)[chosen]
    return ModelEmbeddings(tuple(layers), graph_of_atom, num_atoms)


def geometry_per_layer(
    embeddings: ModelEmbeddings,
    properties: Mapping[str, np.ndarray],
    tested: np.ndarray,
) -> tuple[LayerGeometry, ...]:
    """Measure the clouds of [CLS] after each layer and at the output.

    Args:
        embeddings: Of G molecules.
        properties: Quantities that probes read from [CLS]: ``[G]``, nan where they are unknown.
        tested: bool ``[G]``: the molecules whose embeddings are measured and that probes are tested
            on; they are fitted to the others.
    """
    return tuple(
        _measured(layer, embeddings.graph_of_atom, properties, tested)
        for layer in embeddings.layers
    )


def _measured(
    layer: LayerEmbeddings,
    graph_of_atom: np.ndarray,
    properties: Mapping[str, np.ndarray],
    tested: np.ndarray,
) -> LayerGeometry:
    name, token, atoms = layer
    probes = {}
    for quantity, column in properties.items():
        values = column.astype(np.float64)
        fit, test = (~np.isnan(values) & part for part in (~tested, tested))
        probes[quantity] = linear_probe(token[fit], values[fit], token[test], values[test])
    cosines = cosine_to(token, atoms, graph_of_atom)
    cosines = cosines[tested] if len(cosines) else cosines
    known = cosines[~np.isnan(cosines)]  # a graph of which no atom was sampled has none
    cloud = sampled = token[tested]
    if len(cloud) > _UNIFORMITY_OF:
        sampled = cloud[np.random.default_rng(0).choice(len(cloud), _UNIFORMITY_OF, replace=False)]
    finite = len(cloud) and np.isfinite(cloud).all()
    return LayerGeometry(
        name,
        len(cloud),
        uniformity=uniformity(sampled) if finite else math.nan,
        uniformity_floor=uniformity_floor(cloud.shape[1]),
        effective_rank=effective_rank(singular_values(cloud)) if finite else math.nan,
        cosine_to_atoms=float(known.mean()) if len(known) else math.nan,
        probes=probes,
    )


def geometry_of(
    run: RunDirectory, data: MoleculeDataModule, *, accelerator: str | None = "cpu"
) -> tuple[LayerGeometry, ...]:
    """Measure the embeddings of the tested checkpoint of a run, see `geometry_per_layer`.

    The result is stored in the directory of the run and taken from there the next time, also where
    the checkpoint was deleted meanwhile. No other checkpoint is measured instead.

    Args:
        run: Its directory.
        data: What it was trained on.
        accelerator: That of its trainer: one that may be a GPU is one here if there is one.

    Raises:
        CheckpointError: The checkpoint cannot be read, or it is gone and nothing was stored.
    """
    named = (run.summary() or {}).get("checkpoint")
    file = run.checkpoints / Path(named).name if named else run.tested or run.best
    wanted = {"version": _VERSION, "dataset_fingerprint": data.splits.fingerprint}
    if file.is_file():
        wanted["checkpoint"] = f"{file.name} {file.stat().st_mtime_ns}"
    stored = read_json(run.geometry_file) or {}
    of_this = str(stored.get("checkpoint")).startswith(f"{file.name} ")
    if of_this and wanted.items() <= stored.items():
        return typed(tuple[LayerGeometry, ...], stored["clouds"])
    if not file.is_file():
        raise CheckpointError(
            f"{file} is gone, and what the report needs of it was not stored: put it back, or "
            f"remove {run.path} and start the comparison again to train this run anew"
        )
    on_gpu = accelerator in (None, "auto", "gpu", "cuda") and torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    checkpoint = read_checkpoint(file, device)
    model = build_network(checkpoint[KEY]["model"], model_weights(checkpoint)).to(device)
    # The same molecules for every arm, in their order.
    test, train = (
        np.sort(np.random.default_rng(_SEED).permutation(data.indices(split))[:most])
        for split, most in (("test", _TEST_MOLECULES), ("train", _TRAINING_MOLECULES))
    )
    indices = np.concatenate([train, test])
    embeddings = collect_embeddings(
        model,
        data.store,
        GraphVocabulary.from_plain(checkpoint[KEY]["vocabulary"]),
        indices,
        batch_size=data.eval_batch_size,
        max_atoms=_ATOMS,
        seed=_SEED,
    )
    properties = {"atoms": embeddings.num_atoms, "target": data.store.targets[indices, 0]}
    clouds = geometry_per_layer(embeddings, properties, np.isin(indices, test))
    plain = [asdict(cloud) for cloud in clouds]
    write_json(run.geometry_file, {**wanted, "clouds": plain}, indent=None)
    return clouds
