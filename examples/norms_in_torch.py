"""SepNorm in a transformer of one's own, compared with LayerNorm over paired seeds.

    python examples/norms_in_torch.py

The task: how many different words a sequence has, read from its [CLS] token. Each seed gives both
norms the same sequences and the same initial weights; half a minute on one core. It is a training
from which nothing follows for longer ones.
"""

import torch
from torch import Tensor, nn

from graphormer_sepnorm import SepNorm
from graphormer_sepnorm.compare.statistics import against, log_errors

WORDS, LENGTH, WIDTH = 10, 8, 16


class Counter(nn.Module):
    """A transformer whose norms are those of `norm`, a class that takes the width."""

    def __init__(self, norm: type[nn.Module]) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS + 1, WIDTH)  # the last is [CLS]
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
        layer.norm1, layer.norm2 = norm(WIDTH), norm(WIDTH)  # type: ignore[assignment]
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.count = nn.Linear(WIDTH, 1)

    def forward(self, sequences: Tensor) -> Tensor:
        """Return the counts ``[N]`` of sequences ``[N, L]``."""
        cls = torch.full_like(sequences[:, :1], WORDS)
        tokens = self.encoder(self.words(torch.cat([cls, sequences], dim=1)))
        return self.count(tokens[:, 0]).squeeze(1)


def error_after_training(norm: type[nn.Module], seed: int, steps: int) -> float:
    """Train with a seed; return the mean absolute error on new sequences."""
    torch.manual_seed(seed)
    model = Counter(norm)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    # Down to 0: what BatchNorm remembers of training then belongs to the weights that are tested.
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    torch.manual_seed(seed)  # the same sequences, whatever the norm has drawn
    for step in range(steps + 1):
        sequences = torch.randint(WORDS, (128, LENGTH))
        truth = torch.tensor([len(set(row)) for row in sequences.tolist()], dtype=torch.float32)
        if step == steps:
            break
        loss = (model(sequences) - truth).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return (model.eval()(sequences) - truth).abs().mean().item()


def main(seeds: int = 6, steps: int = 200) -> None:
    """Compare the norms."""
    logs = {}
    for norm in (nn.LayerNorm, SepNorm):
        values = [error_after_training(norm, seed, steps) for seed in range(seeds)]
        print(f"{norm.__name__:<10}", "  ".join(f"{value:.3f}" for value in values))
        logs[norm.__name__] = dict(enumerate(log_errors(values, higher_is_better=False)))
    found = against(logs, "LayerNorm")["SepNorm"]
    change, low, high = found.percent
    print(f"SepNorm changes the error by {change:+.1f} %, 95 % interval {low:+.1f} to {high:+.1f}, "
          f"p {found.p_value:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
