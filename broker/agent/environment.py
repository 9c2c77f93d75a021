"""The environment of a job's command."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.agent.formats import Spec

VISIBLE_VARIABLE = "GPUBROKER_JOB_SEES"
"""The variable with the names of the variables that a job may see, separated by commas.

Engines set it if their agents inherit others, too.
"""


@dataclass(frozen=True)
class Scratch:
    """The agent's own folder on the node; of its content, only uploads survive the attempt."""

    root: Path

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def outputs(self) -> Path:
        return self.root / "outputs"

    @property
    def inputs(self) -> Path:
        return self.root / "inputs"

    @property
    def library(self) -> Path:
        return self.root / "lib"

    @property
    def output(self) -> Path:
        return self.root / "output.log"

    def script(self, number: int) -> Path:
        """The file that the shell reads as the attempt's command of that number."""
        return self.root / f"command-{number}.sh"

    @property
    def progress(self) -> Path:
        return self.root / "progress.json"

    @property
    def alive(self) -> Path:
        """Touched with every heartbeat."""
        return self.root / "alive"

    @property
    def witness(self) -> Path:
        """Written by the guard after the command's death: wall-clock seconds since 1970."""
        return self.root / "died"

    @property
    def home(self) -> Path:
        """The home folder of a session."""
        return self.root / "home"

    @property
    def record(self) -> Path:
        """The agent's identity and its end; for the engine on the same machine."""
        return self.root / "agent.json"

    def make(self) -> None:
        for folder in (self.checkpoints, self.work, self.outputs, self.inputs, self.library, self.home):
            folder.mkdir(parents=True, exist_ok=True)


def job_environment(
    spec: Spec, rank: int, addresses: Sequence[str], scratch: Scratch, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The inherited variables that ``VISIBLE_VARIABLE`` names (all if it is unset, except gpubroker's own settings,
    which may contain database addresses and keys), the job's, the agent's, and those that SkyPilot tasks expect."""
    own = {
        "GPUBROKER_JOB_ID": spec.job_id,
        "GPUBROKER_ATTEMPT": str(spec.attempt),
        "GPUBROKER_RANK": str(rank),
        "GPUBROKER_NODES": str(spec.nodes),
        "GPUBROKER_CHECKPOINT_DIR": str(scratch.checkpoints),
        "GPUBROKER_OUTPUT_DIR": str(scratch.outputs),
        "GPUBROKER_INPUT_DIR": str(scratch.inputs),
        "GPUBROKER_PROGRESS_FILE": str(scratch.progress),
    }
    names = inherited[VISIBLE_VARIABLE].split(",") if VISIBLE_VARIABLE in inherited else list(inherited)
    visible = {name: inherited[name] for name in names if name in inherited and not name.startswith("GPUBROKER_")}
    sky = {
        "SKYPILOT_NODE_RANK": str(rank),
        "SKYPILOT_NUM_NODES": str(spec.nodes),
        "SKYPILOT_NODE_IPS": "\n".join(addresses),
        "SKYPILOT_NUM_GPUS_PER_NODE": str(spec.gpus),
        "SKYPILOT_TASK_ID": spec.key,
        "SKYPILOT_JOB_RANK": "0",
        "SKYPILOT_NUM_JOBS": "1",
    }
    # If SkyPilot launched the agent, the values set by SkyPilot are correct.
    sky.update({name: value for name, value in visible.items() if name in sky})
    if (index := spec.envs.get("GPUBROKER_TASK_INDEX")) is not None:  # a task of an array, as a job of a pool there
        sky |= {"SKYPILOT_JOB_RANK": index, "SKYPILOT_NUM_JOBS": spec.envs.get("GPUBROKER_TASK_COUNT", "1")}
    if spec.session is not None:
        own |= {
            "HOME": str(scratch.home),
            "GPUBROKER_SESSION_DIR": str(scratch.home),
            "GPUBROKER_PYTHON": sys.executable,
            "JUPYTER_RUNTIME_DIR": str(scratch.root / "jupyter"),
        }
        if spec.session.jupyter:
            own["GPUBROKER_JUPYTER"] = "1"
    path = [*filter(None, [spec.envs.get("PYTHONPATH", visible.get("PYTHONPATH"))]), str(scratch.library)]
    return {**visible, **spec.envs, **sky, **own, "PYTHONPATH": os.pathsep.join(path)}
