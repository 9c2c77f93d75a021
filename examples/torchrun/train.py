"""Data-parallel training under torchrun: every process a share of each batch, gradients averaged after each step.

The processes of a machine are told of an interruption one by one, at different steps, so they agree on it before they
act: after each step they ask each other whether anybody was told. One of them saves; all of them go on from what it
saved, also with another number of processes. Nothing is downloaded: they learn a function that is made here.

The lines marked CHECKPOINT show all there is to it. By hand, from this folder:

    PYTHONPATH=../../broker/agent torchrun --standalone --nproc-per-node=2 train.py
"""

import argparse
import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from gpubroker_checkpoint import progress, resume, save, should_checkpoint
except ImportError:
    sys.exit("run this as a job (gpubroker submit), or put broker/agent on PYTHONPATH to try it by hand")


def share(step, rank, processes, size=64):
    """This process's part of the batch of a step: the same whole batch, whoever takes part."""
    dice = torch.Generator().manual_seed(step)
    inputs = torch.rand(size, 8, generator=dice) * 2 - 1
    outputs = torch.sin(3 * inputs[:, :4]).sum(1, keepdim=True) * inputs[:, 4:].prod(1, keepdim=True)
    return inputs[rank::processes], outputs[rank::processes]


def anybody(told):
    """Whether any of the processes says so; all of them get the same answer."""
    flag = torch.tensor([float(told)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def main(arguments):
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    rank, processes = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1)))
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = 0

    # CHECKPOINT: go on from the newest one, if there is any. Every process reads it.
    found = resume()
    if found:
        state = torch.load(found, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        step = state["step"]
    if rank == 0:
        print(f"{processes} processes, {f'resumed from step {step}' if found else 'from the start'}", flush=True)

    stop = anybody(should_checkpoint())  # CHECKPOINT: begins to listen for the end
    while step < arguments.steps and not stop:
        inputs, outputs = share(step, rank, processes)
        loss = nn.functional.mse_loss(model(inputs), outputs)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        step += 1
        time.sleep(arguments.pace)  # so that one can watch it
        stop = anybody(should_checkpoint())  # CHECKPOINT: all stop after the same step
        if rank == 0:
            progress(step, arguments.steps)
            if stop or step % arguments.checkpoint_every == 0 or step == arguments.steps:
                with save(f"step_{step:06d}.pt", step) as path:  # CHECKPOINT: one saves, whole or not at all
                    torch.save(
                        {"step": step, "model": model.module.state_dict(), "optimiser": optimiser.state_dict()}, path
                    )
                print(f"step {step:5d}  loss {loss.item():.4f}", flush=True)
    dist.barrier()  # nobody leaves before it is saved
    if rank == 0:
        weights = repr([part.tolist() for part in model.module.state_dict().values()])
        print(f"weights {hashlib.sha256(weights.encode()).hexdigest()}", flush=True)
    dist.destroy_process_group()
    return 143 if step < arguments.steps else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--checkpoint-every", type=int, default=500, help="steps (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to wait after each step, to watch it")
    status = main(parser.parse_args())
    sys.stdout.flush()
    os._exit(status)  # gloo's threads may outlive the group for a while
