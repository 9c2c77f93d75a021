"""A search with Optuna: it chooses the parameters, gpubroker runs the trials, several at once. Run:

    pip install optuna
    python examples/sweeps/with_optuna.py --trials 12 --at-once 4

Each trial is a job: planned, judged by the policies, held for and recorded. One that fails tells Optuna so.
"""

import argparse
import json
import tempfile
from pathlib import Path

import optuna
from gpubroker import Client, Job, JobDetails, SubmittedJob

HERE = Path(__file__).parent


def submitted(client: Client, job: Job, trial: optuna.Trial) -> SubmittedJob[JobDetails]:
    """The job of one trial, with the parameters that Optuna suggests."""
    chosen = {
        "LR": trial.suggest_float("LR", 1e-4, 1e-1, log=True),
        "MOMENTUM": trial.suggest_float("MOMENTUM", 0.0, 0.99),
    }
    envs = {**job.envs, **{name: repr(value) for name, value in chosen.items()}}
    return client.submit(job.model_copy(update={"name": f"trial-{trial.number}", "envs": envs}))


def loss_of(running: SubmittedJob[JobDetails]) -> float | None:
    """The trial's loss once it is over; None if it did not do well."""
    if not running.result().succeeded:
        return None
    with tempfile.TemporaryDirectory() as folder:
        (file,) = running.fetch(Path(folder), "result.json")
        return float(json.loads(file.read_text())["loss"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    said = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="minimize", sampler=optuna.samplers.TPESampler(seed=said.seed))
    with Client() as client:
        job = client.read_job(HERE / "trial.yaml")
        for first in range(0, said.trials, said.at_once):
            trials = [study.ask() for _ in range(min(said.at_once, said.trials - first))]
            for trial, running in [(trial, submitted(client, job, trial)) for trial in trials]:
                loss = loss_of(running)
                state = optuna.trial.TrialState.FAIL if loss is None else None
                study.tell(trial, loss, state=state)
                print(f"{running.id}: {'failed' if loss is None else f'loss {loss:.6g}'}", flush=True)
    print(f"best of {len(study.trials)}: loss {study.best_value:.6g} with {study.best_params}")


if __name__ == "__main__":
    main()
