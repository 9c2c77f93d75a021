"""A search with Ray Tune: its algorithm and scheduler run here, gpubroker runs the trials. Run:

    pip install "ray[tune]"
    python examples/sweeps/with_ray_tune.py --trials 12 --at-once 4

Ray starts no machine and needs none: each trial of it submits a job and waits for its result.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from gpubroker import Client
from ray import tune

HERE = Path(__file__).resolve().parent


def trial(config: dict[str, Any]) -> dict[str, float]:
    """Run one trial as a job; its loss. Runs in a process of Ray's own, so it has a client of its own."""
    with Client() as client:
        job = client.read_job(HERE / "trial.yaml")
        envs = {**job.envs, **{name: repr(float(value)) for name, value in config.items()}}
        running = client.submit(job.model_copy(update={"envs": envs}))
        result = running.result()
        if not result.succeeded:
            raise RuntimeError(f"{running.id} {result.state.value}")
        with tempfile.TemporaryDirectory() as folder:
            (file,) = running.fetch(Path(folder), "result.json")
            return {"loss": float(json.loads(file.read_text())["loss"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--at-once", type=int, default=4)
    said = parser.parse_args()
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 0.1}),
        param_space={"LR": tune.loguniform(1e-4, 1e-1), "MOMENTUM": tune.uniform(0.0, 0.99)},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", num_samples=said.trials, max_concurrent_trials=said.at_once
        ),
    )
    best = tuner.fit().get_best_result()
    print(f"best of {said.trials}: loss {best.metrics['loss']:.6g} with {best.config}")


if __name__ == "__main__":
    main()
