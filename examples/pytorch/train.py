"""Train a small convolutional network on drawn digits, with PyTorch, on a GPU where there is one and else on the CPU.

The data is made here: the ten digits in a 5 × 7 font, scaled, shifted, tilted and covered with noise, so nothing is
downloaded. `gpubroker_checkpoint` is importable in every job; the lines marked CHECKPOINT show all there is to it.
"""

import argparse
import hashlib
import random
import sys
import time

import torch
from torch import nn
from torch.nn import functional

try:
    from gpubroker_checkpoint import progress, resume, save, should_stop
except ImportError:
    sys.exit("run this as a job (gpubroker submit), or put broker/agent on PYTHONPATH to try it by hand")

FONT = {  # rows from top to bottom, five bits each
    0: (14, 17, 19, 21, 25, 17, 14), 1: (4, 12, 4, 4, 4, 4, 14), 2: (14, 17, 1, 2, 4, 8, 31),
    3: (31, 2, 4, 2, 1, 17, 14), 4: (2, 6, 10, 18, 31, 2, 2), 5: (31, 16, 30, 1, 1, 17, 14),
    6: (6, 8, 16, 30, 17, 17, 14), 7: (31, 1, 2, 4, 8, 8, 8), 8: (14, 17, 17, 14, 17, 17, 14),
    9: (14, 17, 17, 15, 1, 2, 12),
}  # fmt: skip
GLYPHS = torch.tensor([[[float(row >> (4 - x) & 1) for x in range(5)] for row in FONT[d]] for d in range(10)])


def digits(number, seed):
    """So many images of 1 × 16 × 16 and their labels; the same seed draws the same ones."""
    dice = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (number,), generator=dice)
    small = functional.pad(GLYPHS[labels].unsqueeze(1), (2, 2, 1, 1))
    large = functional.interpolate(small, size=(16, 16), mode="bilinear", align_corners=False)
    angle = (torch.rand(number, generator=dice) - 0.5) * 0.6
    scale = 0.8 + 0.5 * torch.rand(number, generator=dice)
    shift = (torch.rand(number, 2, generator=dice) - 0.5) * 0.3
    turn = torch.stack([angle.cos() * scale, -angle.sin() * scale, angle.sin() * scale, angle.cos() * scale], 1)
    theta = torch.cat([turn.view(-1, 2, 2), shift.unsqueeze(2)], 2)
    grid = functional.affine_grid(theta, list(large.shape), align_corners=False)
    moved = functional.grid_sample(large, grid, align_corners=False)
    return moved + 0.35 * torch.randn(moved.shape, generator=dice), labels


def main(arguments):
    torch.manual_seed(arguments.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
    ).to(device)  # fmt: skip
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = (part.to(device) for part in digits(2000, seed=0))
    step = 0

    # CHECKPOINT: go on from the newest one, if there is any.
    found = resume()
    if found:
        state = torch.load(found, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        step = state["step"]
        print(f"resumed from step {step}", flush=True)

    print(f"on {device}; step {step} of {arguments.steps}", flush=True)
    stop = should_stop()  # CHECKPOINT: begins to listen for the end
    while step < arguments.steps and not stop:
        batch, wanted = (
            part.to(device) for part in digits(64, seed=random.Random(f"{arguments.seed}/{step}").getrandbits(60))
        )
        loss = functional.cross_entropy(model(batch), wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        step += 1
        progress(step, arguments.steps)
        time.sleep(arguments.pace)  # so that one can watch it
        stop = should_stop()  # CHECKPOINT: save now and then, and when the machine is taken away
        if stop or step % arguments.checkpoint_every == 0 or step == arguments.steps:
            with save(f"step_{step:06d}.pt", step=step) as path:  # CHECKPOINT: whole or not at all
                torch.save({"step": step, "model": model.state_dict(), "optimiser": optimiser.state_dict()}, path)
            with torch.no_grad():
                right = (model(images).argmax(1) == labels).float().mean().item()
            print(f"step {step:5d}  loss {loss.item():.3f}  right on unseen digits {right:.1%}", flush=True)
    print(f"weights {fingerprint(model)}", flush=True)
    return 143 if step < arguments.steps else 0


def fingerprint(model):
    """Tells whether two models have learnt the very same."""
    return hashlib.sha256(repr([part.tolist() for part in model.state_dict().values()]).encode()).hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--checkpoint-every", type=int, default=100, help="steps (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to wait after each step, to watch it")
    sys.exit(main(parser.parse_args()))
