"""SepNorm in a masked autoencoder of images: ViT-MAE on scikit-learn's digits.

    python examples/sepnorm_vit_mae.py

A ViT-MAE of Hugging Face (3 layers of width 64) learns to paint the missing three quarters of 8 x 8
images of digits, without their labels, under each of the six norms. Then its weights stay, and a
logistic regression reads the digit from [CLS] after the last norm.

Decided before any run: the last weights are measured, after a fixed number of epochs; the metric is
the accuracy of the probe (L2 penalty 1, standardised features) on 597 images that neither the
autoencoder nor the probe has seen; beside it the uniformity of [CLS] on these (Eq. 4 of Chen et al.
2023) and the error of reconstruction.
"""
# pyright: reportMissingImports=false

import copy

import numpy as np
import torch
from six_arms import finish, options, put_norms, run_all
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from transformers import ViTMAEConfig, ViTMAEForPreTraining

from graphormer_sepnorm.compare.geometry import uniformity
from graphormer_sepnorm.errors import GraphormerError

BATCH, RATE = 100, 2e-3
PATCHES = 16
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


def autoencoder() -> ViTMAEForPreTraining:
    """Return one that is not trained.

    Made from a configuration, that of transformers 5.23 has zeros for positions and for [CLS], and
    could not tell one place from another: here they are drawn, and learned like the rest.
    """
    model = ViTMAEForPreTraining(copy.deepcopy(CONFIG))
    embeddings, decoder = model.vit.embeddings, model.decoder
    for table in (
        embeddings.position_embeddings,
        embeddings.cls_token,
        decoder.decoder_pos_embed,
        decoder.mask_token,
    ):
        torch.nn.init.normal_(table.requires_grad_(True), std=0.5)
    return model


def pretrained(arm: str, seed: int, pixels: Tensor, epochs: int) -> ViTMAEForPreTraining:
    """Train an autoencoder."""
    torch.manual_seed(seed)
    model = autoencoder().train()
    put_norms(model, arm)
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


def main() -> None:
    """Run the experiment."""
    parser = options(__doc__ or "", seeds=3, folder="runs/vit_mae")
    parser.add_argument("--epochs", type=int, default=100, help="of pre-training (%(default)s)")
    given = parser.parse_args()
    arms, data = given.arms.split(","), images()
    try:
        runs = run_all(
            given.out,
            arms,
            given.seeds,
            {"epochs": given.epochs},
            lambda arm, seed: measured(pretrained(arm, seed, data[0], given.epochs), data),
        )
    except GraphormerError as error:
        parser.error(str(error))
    better = {"accuracy": "higher", "uniformity": "", "reconstruction": "lower"}
    labels = {
        "accuracy": "accuracy of a linear probe of [CLS]",
        "uniformity": "uniformity of [CLS] (less: more even)",
    }
    finish(given.out, runs, arms, better, labels)


if __name__ == "__main__":
    main()
