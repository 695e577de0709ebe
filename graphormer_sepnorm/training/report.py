"""What a run says about itself: the parameter table before it, the result table after it."""

from __future__ import annotations

from lightning.pytorch import Callback, LightningModule, Trainer

from graphormer_sepnorm.kernels.library import library
from graphormer_sepnorm.model.summary import parameter_table
from graphormer_sepnorm.training.module import GraphormerModule


class ModelTable(Callback):
    """Prints what is trained, on what, and how many parameters each part has."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the table when the network is built."""
        if not trainer.is_global_zero or not isinstance(pl_module, GraphormerModule):
            return
        splits = trainer.datamodule.splits  # type: ignore[attr-defined]
        sizes = " / ".join(f"{len(part):,}" for part in splits.parts.values())
        left_out = len(splits.report.invalid) if splits.report else 0
        others = f", {left_out:,} rows left out" if left_out else ""
        print(f"data   {splits.name}: {sizes} molecules (train / validation / test){others}")
        plain = pl_module.device.type == "cpu" and library() is None
        slow = " without compiled kernels, several times slower (README: Install)"
        print(
            f"model  {pl_module.model.config.norm}, on {pl_module.device}{slow if plain else ''}\n"
        )
        print(parameter_table(pl_module.model), end="\n\n", flush=True)


def format_table(rows: list[tuple[str, str]]) -> str:
    """Return two aligned columns, one line per row."""
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {value}" for label, value in rows)
