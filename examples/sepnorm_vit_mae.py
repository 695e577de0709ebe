"""SepNorm in a masked autoencoder of images: ViT-MAE on scikit-learn's digits.

    python examples/sepnorm_vit_mae.py

A ViT-MAE of Hugging Face (3 layers of width 64) learns to paint the missing three quarters of 8 x 8
images of digits, without their labels, under each of the six norms, with paired seeds: the same
initial weights, batches and masks. Then its weights stay, and a logistic regression reads the digit
from [CLS] after the last norm.

Decided before any run: the last weights are measured, after a fixed number of epochs; the metric is
the accuracy of the probe (L2 penalty 1, standardized features) on 597 images that neither the
autoencoder nor the probe has seen; in addition the uniformity of [CLS] on these (Eq. 4 of Chen et
al. 2023) and the error of reconstruction.
"""
# pyright: reportMissingImports=false

import argparse
import copy
from dataclasses import replace

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from transformers import ViTMAEConfig, ViTMAEForPreTraining

from graphormer_sepnorm import replace_norms
from graphormer_sepnorm.compare.geometry import uniformity
from graphormer_sepnorm.compare.statistics import against, holm, norm_effects, verdict
from graphormer_sepnorm.formatting import aligned, interval, mean_and_sd, p_value, signed

BASELINE = "shared-ln"
ARMS = (BASELINE, "shared-bn", "bn+ln", "bn+bn", "ln+ln", "ln+bn")
BETTER = {"accuracy": "higher", "uniformity": "", "reconstruction": "lower"}
BATCH, RATE, PATCHES, DECIMALS = 100, 2e-3, 16, 4
CONFIG = ViTMAEConfig(
    image_size=8, patch_size=2, num_channels=1, mask_ratio=0.75,
    hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
    decoder_hidden_size=32, decoder_num_hidden_layers=1, decoder_num_attention_heads=4,
    decoder_intermediate_size=64,
)  # fmt: skip


def images() -> tuple[Tensor, Tensor, np.ndarray, np.ndarray]:
    """Return 1,200 images ``[1200, 1, 8, 8]`` to train on and 597 others, and their digits."""
    pixels, digits = (np.asarray(one) for one in load_digits(return_X_y=True))
    pixels = ((pixels - pixels.mean()) / pixels.std()).astype(np.float32)
    train, test = train_test_split(
        np.arange(len(digits)), train_size=1200, stratify=digits, random_state=0
    )
    known, new = (torch.from_numpy(pixels[part]).view(-1, 1, 8, 8) for part in (train, test))
    return known, new, digits[train], digits[test]


def autoencoder(arm: str) -> ViTMAEForPreTraining:
    """Return one that is not trained, with the norms of an arm.

    Made from a configuration, that of transformers 5.23 has zeros for positions and for [CLS], and
    could not tell one patch from another: here they are sampled, and learned like the rest.
    """
    model = ViTMAEForPreTraining(copy.deepcopy(CONFIG))
    embeddings, decoder = model.vit.embeddings, model.decoder
    for table in (
        *(embeddings.position_embeddings, embeddings.cls_token),
        *(decoder.decoder_pos_embed, decoder.mask_token),
    ):
        torch.nn.init.normal_(table.requires_grad_(True), std=0.5)
    if arm != BASELINE:
        shared = arm.startswith("shared-")
        replace_norms(model, *([arm[-2:]] * 2 if shared else arm.split("+")), shared=shared)
    return model


def pretrained(arm: str, seed: int, pixels: Tensor, epochs: int) -> ViTMAEForPreTraining:
    """Train an autoencoder."""
    torch.manual_seed(seed)
    model = autoencoder(arm).train()
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.05)
    steps = epochs * (len(pixels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps, pct_start=0.1)
    draws = torch.Generator().manual_seed(seed)  # batches and masks are those of the other arms
    for _ in range(epochs):
        for batch in torch.randperm(len(pixels), generator=draws).split(BATCH):
            noise = torch.rand(len(batch), PATCHES, generator=draws)
            loss = model(pixels[batch], noise=noise).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


@torch.no_grad()
def measured(model: ViTMAEForPreTraining, data: tuple) -> dict[str, float]:
    """Measure an autoencoder."""
    train, test, train_y, test_y = data
    noise = torch.rand(len(test), PATCHES, generator=torch.Generator().manual_seed(0))
    error = model(test, noise=noise).loss.item()
    model.config.mask_ratio = 0.0  # [CLS] sees whole images from here on
    in_order = torch.arange(PATCHES).float()
    cls = [
        model.vit(part, noise=in_order.expand(len(part), -1)).last_hidden_state[:, 0].numpy()
        for part in (train, test)
    ]
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=2000))
    return {
        "accuracy": float(probe.fit(cls[0], train_y).score(cls[1], test_y)),
        "uniformity": uniformity(cls[1]),
        "reconstruction": error,
    }


def report(metric: str, values: dict[str, dict[int, float]]) -> str:
    """Return a metric of each arm, its change, and the effects of the norms' factors.

    `values` are those of the metric by arm and by seed, the baseline's first.
    """
    columns = {arm: [*of_seed.values()] for arm, of_seed in values.items()}
    rows = [["", f"{metric}, mean ± sd", "change", "95 % interval", "p", "verdict"]]
    rows.append([BASELINE, mean_and_sd(columns[BASELINE], DECIMALS), *[""] * 4])
    effects = norm_effects(values)
    adjusted = holm([one.p_value for one in effects.values()]).tolist()
    pairs = zip(effects.items(), adjusted, strict=True)
    found = against(values, BASELINE) | {n: replace(one, p_value=p) for (n, one), p in pairs}
    for name, one in found.items():
        mean = mean_and_sd(columns[name], DECIMALS) if name in columns else ""
        ends = interval(one.low, one.high, DECIMALS)
        cells = signed(one.mean, DECIMALS), ends, p_value(one.p_value)
        rows.append([name, mean, *cells, verdict(one, BETTER[metric])])
    return aligned(rows)


def main() -> None:
    """Run the experiment and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="0, 1, ... (%(default)s of them)")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS, help=f"with {BASELINE}")
    parser.add_argument("--epochs", type=int, default=100, help="of pre-training (%(default)s)")
    given = parser.parse_args()
    data, found = images(), {}
    for seed in range(given.seeds):
        for arm in given.arms:
            found[arm, seed] = measured(pretrained(arm, seed, data[0], given.epochs), data)
            numbers = "  ".join(f"{name} {one:.4f}" for name, one in found[arm, seed].items())
            print(f"{arm:<9}  seed {seed}  {numbers}", flush=True)
    for metric in BETTER:
        seeds = range(given.seeds)
        values = {arm: {seed: found[arm, seed][metric] for seed in seeds} for arm in given.arms}
        print("", report(metric, values), sep="\n")


if __name__ == "__main__":
    main()
