"""One trial: a real program would train here. Takes LR and MOMENTUM from its environment and writes `result.json`.

Minimises an ill-conditioned quadratic by gradient descent with momentum; the loss after 60 steps is what a search is
about.
"""

import json
import os
from pathlib import Path

STEPS, CURVATURE = 60, (1.0, 30.0)


def loss_after(rate: float, momentum: float) -> float:
    """The loss after all steps, at most 1e6."""
    place, speed = [1.0, 1.0], [0.0, 0.0]
    for _ in range(STEPS):
        for axis, curve in enumerate(CURVATURE):
            speed[axis] = momentum * speed[axis] - rate * curve * place[axis]
            place[axis] += speed[axis]
    return min(sum(curve * x * x / 2 for curve, x in zip(CURVATURE, place, strict=True)), 1e6)


if __name__ == "__main__":
    found = loss_after(float(os.environ["LR"]), float(os.environ["MOMENTUM"]))
    Path("result.json").write_text(json.dumps({"loss": found}))
    print(f"loss {found:.6g}")
