"""Saves with the real torch.distributed.checkpoint in place, slowly: 100 files a checkpoint."""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

checkpoint: Any = import_module("torch.distributed.checkpoint")
folder = Path(os.environ["GPUBROKER_CHECKPOINT_DIR"])
weights = {f"layer.{number}": torch.full((64, 64), float(number)) for number in range(100)}
newest = max((int(path.name.removeprefix("step_")) for path in folder.glob("step_*")), default=0)
if newest:
    kept: dict[str, Any] = {name: torch.zeros(64, 64) for name in weights} | {"step": 0}
    checkpoint.load(kept, checkpoint_id=str(folder / f"step_{newest}"), no_dist=True)
    assert kept["step"] == newest, kept["step"]
    assert all(torch.equal(kept[name], weights[name]) for name in weights)
    print(f"resumed at {newest}", flush=True)
for step in range(newest + 1, int(sys.argv[1]) + 1):
    writer = checkpoint.FileSystemWriter(str(folder / f"step_{step}"), single_file_per_rank=False, thread_count=1)
    checkpoint.save({**weights, "step": step}, storage_writer=writer, no_dist=True)
