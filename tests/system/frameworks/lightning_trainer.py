"""Trains with the real Lightning, which saves every second step while it trains."""

import os
import sys
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

folder = Path(os.environ["GPUBROKER_CHECKPOINT_DIR"])


class LineModel(lightning.LightningModule):  # type: ignore[misc, unused-ignore]  # untyped without Lightning
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(512, 512)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch[0]).pow(2).mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


data = DataLoader(TensorDataset(torch.randn(4, 512)), batch_size=1)
newest = max(folder.glob("*.ckpt"), key=lambda path: int(path.stem.rpartition("=")[2]), default=None)
saves = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=2, save_top_k=-1)
trainer = lightning.Trainer(
    max_steps=int(sys.argv[1]), max_epochs=-1, callbacks=[saves], accelerator="cpu", logger=False,
    enable_progress_bar=False, default_root_dir=os.environ["GPUBROKER_OUTPUT_DIR"],
)  # fmt: skip
trainer.fit(LineModel(), data, ckpt_path=newest)
print(f"from {newest.name if newest else None} to {trainer.global_step}", flush=True)
