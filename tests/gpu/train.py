"""A job of this trial: products of large matrices on the GPU, saved and resumed for a time."""

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path

import torch
from gpubroker_checkpoint import progress, resume, save, should_stop  # type: ignore[import-not-found]  # of each job

_SIZE = {"cuda": 8192, "cpu": 256}


def main(seconds: float, enough: Path | None) -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "none"
    print(f"sees {name}, CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')!r}", flush=True)
    torch.manual_seed(1)
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    weights = torch.randn(_SIZE[device], _SIZE[device], device=device, dtype=kind) / _SIZE[device] ** 0.5
    step, worked, state = 0, 0.0, torch.randn(_SIZE[device], _SIZE[device], device=device, dtype=kind)
    if found := resume():
        kept = torch.load(found, map_location=device, weights_only=True)
        step, worked, state = kept["step"], kept["worked"], kept["state"]
        print(f"resumed at step {step}, after {worked:.1f} s of work, state {mark(state)}", flush=True)
    stop = should_stop()
    done = False
    while not done and not stop:
        began = time.monotonic()
        for _ in range(200):
            state = state @ weights
            state = state / state.float().norm().to(kind) * _SIZE[device]
        if device == "cuda":
            torch.cuda.synchronize()
        step, worked = step + 1, worked + time.monotonic() - began
        progress(step)
        done = worked >= seconds or (enough is not None and enough.exists())
        stop = should_stop()
        if stop or done or step % 20 == 0:
            with save(f"step_{step:06d}.pt", step=step) as path:
                torch.save({"step": step, "worked": worked, "state": state}, path)
            print(f"saved step {step}, state {mark(state)}", flush=True)
    print(f"ended at step {step}, after {worked:.1f} s of work", flush=True)
    return 0 if done else 143


def mark(state: torch.Tensor) -> str:
    """Tells whether two states are the very same."""
    return hashlib.sha256(repr(state.float().sum(0).tolist()).encode()).hexdigest()[:12]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--until", type=Path, help="end as soon as this file exists")
    given = parser.parse_args()
    sys.exit(main(given.seconds, given.until))
