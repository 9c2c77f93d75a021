"""Train a small character language model, in plain Python: no packages, no downloads, one CPU core.

The text is the language reference that comes inside Python itself. The model guesses the next character from the four
before it: embedding -> hidden layer -> softmax, plain SGD on minibatches. What matters here is not the model but the
few lines marked CHECKPOINT: they are all that a program needs to survive losing its machine.

The same seed gives the same numbers, however often the run is interrupted in between.
"""
# Not typed: it stands for anybody's training program.
# mypy: ignore-errors
# ruff: noqa: B905 (zip stops at the shorter list on purpose: rows carry a bias behind their weights)

import argparse
import importlib
import inspect
import json
import math
import os
import random
import re
import signal
import sys
import time
from operator import mul
from pathlib import Path

CONTEXT, EMBEDDING, HIDDEN = 4, 6, 32
ALPHABET = "\n abcdefghijklmnopqrstuvwxyz.,()'_"


def text():
    """English prose about Python, reduced to 34 characters."""
    try:
        from pydoc_data.topics import topics

        raw = "\n".join(topics[name] for name in sorted(topics))
    except ImportError:  # a build without its documentation: the docstrings of the library then
        names = ["argparse", "asyncio", "decimal", "logging", "random", "subprocess", "tarfile", "unittest.mock"]
        things = [thing for name in names for _, thing in sorted(vars(importlib.import_module(name)).items())]
        raw = "\n".join(filter(None, (inspect.getdoc(thing) for thing in things if callable(thing))))
    return [ALPHABET.index(c) for c in re.sub(" +", " ", raw.lower()) if c in ALPHABET]


class Network:
    """Weights as lists of rows; every row is a list of floats."""

    def __init__(self, seed):
        dice = random.Random(seed)

        def matrix(rows, columns):
            return [[dice.gauss(0, columns**-0.5) for _ in range(columns)] for _ in range(rows)]

        self.embedding = matrix(len(ALPHABET), EMBEDDING)
        self.hidden = matrix(HIDDEN, CONTEXT * EMBEDDING + 1)
        self.output = matrix(len(ALPHABET), HIDDEN + 1)

    def forward(self, context):
        x = [value for c in context for value in self.embedding[c]]
        x.append(1.0)
        h = [math.tanh(sum(map(mul, row, x))) for row in self.hidden]
        h.append(1.0)
        scores = [sum(map(mul, row, h)) for row in self.output]
        top = max(scores)
        powers = [math.exp(score - top) for score in scores]
        total = sum(powers)
        return x, h, [power / total for power in powers]

    def learn(self, context, target, rate):
        """One example: its loss, and a step of gradient descent."""
        x, h, p = self.forward(context)
        loss = -math.log(max(p[target], 1e-12))
        p[target] -= 1.0
        back = [0.0] * HIDDEN
        for error, row in zip(p, self.output):
            if abs(error) > 1e-4:
                back = [b + error * w for b, w in zip(back, row)]
                step = rate * error
                row[:] = [w - step * value for w, value in zip(row, h)]
        into = [0.0] * (CONTEXT * EMBEDDING)
        for error, value, row in zip(back, h, self.hidden):
            error *= 1.0 - value * value
            into = [b + error * w for b, w in zip(into, row)]
            step = rate * error
            row[:] = [w - step * value for w, value in zip(row, x)]
        for place, c in enumerate(context):
            gradient = into[place * EMBEDDING : (place + 1) * EMBEDDING]
            self.embedding[c] = [w - rate * g for w, g in zip(self.embedding[c], gradient)]
        return loss

    def loss(self, data, places):
        """Mean loss in nats a character, at those places of the data."""
        return sum(-math.log(max(self.forward(data[i - CONTEXT : i])[2][data[i]], 1e-12)) for i in places) / len(places)


def train(arguments):
    folder = Path(os.environ.get("GPUBROKER_CHECKPOINT_DIR", "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    data = text()
    edge = len(data) * 9 // 10
    learned_from, held_out = data[:edge], data[edge:]
    asked = random.Random("held out").sample(range(CONTEXT, len(held_out)), 400)
    model, done = Network(arguments.seed), 0

    # CHECKPOINT: go on from the newest one, if there is any.
    newest = max(folder.glob("step_*.json"), default=None)
    if newest:
        saved = json.loads(newest.read_text())
        vars(model).update(saved["model"])
        done = saved["step"]
        print(f"resumed from step {done}", flush=True)

    def save():
        # CHECKPOINT: write to a name that nobody takes for a checkpoint, then rename; it is there whole or not at all.
        draft = folder / ".draft"
        draft.write_text(json.dumps({"step": done, "model": vars(model)}))
        draft.replace(folder / f"step_{done:06d}.json")
        for old in sorted(folder.glob("step_*.json"))[:-2]:
            old.unlink()

    # CHECKPOINT: told to stop (the machine is taken away), save and leave.
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))

    print(f"{len(learned_from):,} characters to learn from; step {done} of {arguments.steps}", flush=True)
    began, since = time.monotonic(), done
    running = None
    while done < arguments.steps and not told:
        dice = random.Random(f"{arguments.seed}/{done}")  # so that a resumed run draws what the first would have
        rate = arguments.rate * (1 - 0.9 * done / arguments.steps)
        losses, started = [], time.monotonic()
        for _ in range(arguments.batch):
            i = dice.randrange(CONTEXT, len(learned_from))
            losses.append(model.learn(learned_from[i - CONTEXT : i], learned_from[i], rate))
        running = sum(losses) / len(losses) if running is None else 0.95 * running + 0.05 * sum(losses) / len(losses)
        done += 1
        tell(done, arguments.steps)
        time.sleep(max(0.0, arguments.pace - (time.monotonic() - started)))  # so that one can watch it
        if done % arguments.checkpoint_every == 0 or done == arguments.steps:
            save()
            speed = (done - since) / max(time.monotonic() - began, 1e-9)
            unseen = model.loss(held_out, asked)
            print(f"step {done:5d}  loss {running:.3f}  held-out loss {unseen:.3f}  {speed:.0f} steps/s", flush=True)
    if told and done < arguments.steps:
        save()
        print(f"told to stop; saved step {done}", flush=True)
        return 143
    return 0


def tell(step, total):
    """Say how far it is, where `gpubroker status` looks for it."""
    place = os.environ.get("GPUBROKER_PROGRESS_FILE")
    if place:
        draft = Path(place + ".new")
        draft.write_text(json.dumps({"step": step, "total": total}))
        draft.replace(place)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500, help="minibatches to train (default %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="examples in a minibatch (default %(default)s)")
    parser.add_argument("--checkpoint-every", type=int, default=100, help="steps (default %(default)s)")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate at the start (default %(default)s)")
    parser.add_argument("--pace", type=float, default=0, help="seconds that a step takes at least, for demonstrations")
    parser.add_argument("--seed", type=int, default=1)
    sys.exit(train(parser.parse_args()))
