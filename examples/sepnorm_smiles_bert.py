"""SepNorm in BERT: SMILES as text, a masked language model, then SimCSE.

    python examples/sepnorm_smiles_bert.py --root data     # ZINC-subset, as train.py has it
    python examples/sepnorm_smiles_bert.py                 # the bundled sample of 7,000 molecules

A BERT of Hugging Face (2 layers of width 64) learns to fill in masked tokens of SMILES under each
of the six norms, then, as in unsupervised SimCSE (Gao et al. 2021), to tell by [CLS] which two of a
batch are one molecule under two draws of dropout. Then its weights stay, and a linear probe reads
logP and the number of rings from [CLS] after the last norm.

Decided before any run: the last weights are measured, after a fixed number of steps; the metric is
R^2 of logP, by ridge regression from 2,000 training molecules, on 1,000 test molecules; beside it
R^2 of the number of rings, the uniformity of [CLS] on these (Eq. 4 of Chen et al. 2023), and all
three after the masked language model alone (mlm_).
"""
# pyright: reportMissingImports=false

import csv
import gzip
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rdkit import Chem
from rdkit.Chem import Crippen, rdMolDescriptors
from six_arms import finish, options, put_norms, run_all
from torch import Tensor
from torch.nn import functional
from transformers import BertConfig, BertForMaskedLM

from graphormer_sepnorm.chem.features import get_featuriser
from graphormer_sepnorm.compare.geometry import linear_probe, uniformity
from graphormer_sepnorm.datasets.zinc import load_zinc
from graphormer_sepnorm.errors import GraphormerError
from graphormer_sepnorm.graphs.packed_graphs import checked_graph
from graphormer_sepnorm.resources import sample_path

BATCH, MASKED, TEMPERATURE = 32, 0.15, 0.05
MLM_RATE, SIMCSE_RATE = 1e-3, 1e-4
PROBED, TESTED = 2000, 1000
PAD, CLS, SEP, MASK, UNKNOWN = range(5)
TOKEN = re.compile(r"\[[^\]]*\]|Br|Cl|%\d\d|.")


class Molecules(NamedTuple):
    """SMILES as tokens, ``[n, L]``, padded with `PAD`; and what probes look for in the first."""

    ids: Tensor
    logp: np.ndarray
    rings: np.ndarray


def smiles_from(root: Path | None) -> tuple[list[str], list[str]]:
    """Return SMILES to train on and to test on."""
    if root is None:
        with gzip.open(sample_path(), "rt", encoding="utf-8") as file:
            smiles = [row["smiles"] for row in csv.DictReader(file)]
        smiles = [smiles[place] for place in np.random.default_rng(0).permutation(len(smiles))]
        return smiles[TESTED:], smiles[:TESTED]
    splits = load_zinc(root, subset=True)
    way_back = get_featuriser("zinc-1").smiles_of
    assert way_back is not None
    train, test = (
        [way_back(checked_graph(graph, part)[0]) for graph in splits.parts[part]]
        for part in ("train", "test")
    )
    return train, test[:TESTED]


def tokenised(smiles: list[str], vocabulary: dict[str, int]) -> Molecules:
    """Read SMILES; a vocabulary that is empty is filled."""
    if not vocabulary:
        words = sorted({token for one in smiles for token in TOKEN.findall(one)})
        vocabulary |= {word: number for number, word in enumerate(words, start=UNKNOWN + 1)}
    rows = [
        [CLS, *(vocabulary.get(token, UNKNOWN) for token in TOKEN.findall(one)), SEP]
        for one in smiles
    ]
    ids = torch.full((len(rows), max(map(len, rows))), PAD)
    for row, place in zip(rows, ids, strict=True):
        place[: len(row)] = torch.tensor(row)
    molecules = [Chem.MolFromSmiles(one) for one in smiles[:PROBED]]
    logp = np.array([Crippen.MolLogP(one) for one in molecules])  # type: ignore[attr-defined]
    rings = np.array([rdMolDescriptors.CalcNumRings(molecule) for molecule in molecules], float)
    return Molecules(ids, logp, rings)


def cut(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return token numbers without columns of padding only, and which are real."""
    ids = ids[:, : int((ids != PAD).sum(1).max())]
    return ids, ids != PAD


def mlm_loss(model: BertForMaskedLM, ids: Tensor, draws: torch.Generator) -> Tensor:
    """The loss of filling in masked tokens; every hidden one is replaced by [MASK]."""
    ids, real = cut(ids)
    hidden = (torch.rand(ids.shape, generator=draws) < MASKED) & (ids > SEP)
    labels = torch.where(hidden, ids, -100)
    return model(torch.where(hidden, MASK, ids), attention_mask=real, labels=labels).loss


def simcse_loss(model: BertForMaskedLM, ids: Tensor, draws: torch.Generator) -> Tensor:
    """The loss of finding the other view of each molecule; both are in one batch for BatchNorm."""
    ids, real = cut(ids)
    cls = model.bert(ids.repeat(2, 1), attention_mask=real.repeat(2, 1)).last_hidden_state[:, 0]
    one, other = functional.normalize(cls, dim=-1).chunk(2)
    return functional.cross_entropy(one @ other.T / TEMPERATURE, torch.arange(len(one)))


def train(model: BertForMaskedLM, loss_of, ids: Tensor, steps: int, rate: float, seed: int) -> None:
    """Train for some steps, with batches and random numbers that are those of the other arms."""
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.1)
    draws = torch.Generator().manual_seed(seed)
    model.train()
    for step in range(steps):
        torch.manual_seed(1_000_000 * seed + step)  # dropout
        batch = torch.randint(len(ids), (BATCH,), generator=draws)
        loss = loss_of(model, ids[batch], draws)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()


@torch.no_grad()
def measured(model: BertForMaskedLM, known: Molecules, new: Molecules) -> dict[str, float]:
    """Measure [CLS]."""
    cls = []
    for molecules in (known, new):
        parts = [cut(ids) for ids in molecules.ids.split(250)]
        states = [model.bert(ids, attention_mask=real).last_hidden_state for ids, real in parts]
        cls.append(torch.cat([state[:, 0] for state in states]).numpy())
    return {
        "logp": linear_probe(cls[0], known.logp, cls[1], new.logp),
        "rings": linear_probe(cls[0], known.rings, cls[1], new.rings),
        "uniformity": uniformity(cls[1]),
    }


def main() -> None:
    """Run the experiment."""
    parser = options(__doc__ or "", seeds=3, folder="runs/smiles_bert")
    parser.add_argument("--root", type=Path, help="data root with ZINC; the sample without it")
    parser.add_argument("--steps", type=int, default=500, help="of masking (%(default)s)")
    parser.add_argument("--simcse_steps", type=int, default=100, help="after them (%(default)s)")
    given = parser.parse_args()
    arms = given.arms.split(",")
    vocabulary: dict[str, int] = {}
    try:
        corpus, new = (tokenised(smiles, vocabulary) for smiles in smiles_from(given.root))
        known = corpus._replace(ids=corpus.ids[:PROBED])
        config = BertConfig(
            vocab_size=UNKNOWN + 1 + len(vocabulary), max_position_embeddings=512,
            hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        )  # fmt: skip

        def run(arm: str, seed: int) -> dict[str, float]:
            torch.manual_seed(seed)
            model = BertForMaskedLM(config)
            # The head over all tokens, which SimCSE does without, stays as it is.
            put_norms(model, arm, "bert.*")
            train(model, mlm_loss, corpus.ids, given.steps, MLM_RATE, seed)
            before = measured(model, known, new)
            train(model, simcse_loss, corpus.ids, given.simcse_steps, SIMCSE_RATE, seed)
            after = measured(model, known, new)
            return after | {f"mlm_{name}": value for name, value in before.items()}

        settings = {
            "data": "sample" if given.root is None else "ZINC-subset",
            "steps": given.steps,
            "simcse_steps": given.simcse_steps,
        }
        runs = run_all(given.out, arms, given.seeds, settings, run)
    except GraphormerError as error:
        parser.error(str(error))
    better = {"logp": "higher", "rings": "higher", "uniformity": ""}
    labels = {
        "logp": "R² of logP, linear probe of [CLS]",
        "rings": "R² of the number of rings",
        "uniformity": "uniformity of [CLS] (less: more even)",
    }
    finish(given.out, runs, arms, better | {f"mlm_{n}": b for n, b in better.items()}, labels)


if __name__ == "__main__":
    main()
