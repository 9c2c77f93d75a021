"""gpubroker on a machine with an NVIDIA GPU: `python -m tests.gpu FOLDER`, three minutes; writes down what it saw.

Three homes share the GPU, each with a register of its own: in one a job trains, is interrupted and resumes; the other
two hold a job and a session that compute nothing, which must live while the GPU is busy and end when it is not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from broker.agent import gpu
from broker.core.market.local_gpus import local_gpus
from tests.gpu.recording import RecordedNvml, ask, beside
from tests.program import eventually, kill, processes, run

TRAIN = Path(__file__).with_name("train.py")
POLICY = """\
version: 1
policy: gpu-trial
guardrails:
  - {name: idle, idle_shutdown: {below: 5%, for: 30s}}
"""
_PATIENCE = 150.0


class GpuTrial:
    """What was seen, and what of it is not as it should be. ``folder``: where it is written."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen = folder, dict[str, Any]()
        self.checks: list[tuple[str, bool, Any]] = []
        self._began = time.monotonic()

    def note(self, name: str, value: Any) -> None:
        self.seen[name] = value
        self.keep()

    def check(self, what: str, right: bool, seen: Any = None) -> None:
        self.checks.append((what, bool(right), seen))
        print(f"{time.monotonic() - self._began:6.1f} s  {'right' if right else 'WRONG'}  {what}: {seen}", flush=True)
        self.keep()

    def keep(self) -> None:
        told = [{"what": what, "right": right, "seen": seen} for what, right, seen in self.checks]
        text = json.dumps({"checks": told, "seconds": time.monotonic() - self._began, "seen": self.seen}, indent=1)
        (self.folder / "gpu.json").write_text(text, "utf-8")


class Home:
    def __init__(self, root: Path, trial: GpuTrial) -> None:
        self.root, self._trial = root, trial
        root.mkdir(mode=0o700)

    def gpubroker(self, *words: str, status: int = 0) -> str:
        done = run(*words, home=self.root, timeout=_PATIENCE)
        if done.returncode != status:
            raise RuntimeError(f"gpubroker {' '.join(words)} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def submit(self, name: str, command: str, gpus: int = 1, accelerator: str = "") -> None:
        job: dict[str, Any] = {
            "name": name, "run": command, "max_duration": "10m", "workdir": str(TRAIN.parent),
            "checkpoint": {"every": "10s", "size": "150MB", "restart": "20s"}, "retry": {"failures": 1},
            "resources": {"cpus": "1+", "memory": "2GB+"} | ({"accelerators": f"{accelerator}:{gpus}"} if gpus else {}),
        }  # fmt: skip
        file = self.root / f"{name}.yaml"
        file.write_text(json.dumps(job), "utf-8")
        self.gpubroker("submit", str(file), "--yes", "--detach")

    def show(self, name: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.gpubroker("status", name, "--json"))
        return shown

    def until(self, name: str, what: str, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        return eventually(lambda: shown if reached(shown := self.show(name)) else None, what, _PATIENCE)

    def samples(self) -> list[dict[str, Any]]:
        """Those that agents wrote, in order of their files."""
        files = sorted(self.root.rglob("metrics*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def end(self) -> None:
        kill(processes(self.root))


@contextmanager
def homes(trial: GpuTrial) -> Iterator[list[Home]]:
    with tempfile.TemporaryDirectory(prefix="gpubroker-gpu-") as folder:
        made = [Home(Path(folder) / name, trial) for name in ("training", "idle", "session")]
        try:
            yield made
        finally:
            for home in made:
                home.end()


def nvml(trial: GpuTrial) -> str:
    """The recording: what `local_gpus` asks, and its questions when something is missing. The accelerator's name."""
    recorded = RecordedNvml(import_module("pynvml"))
    found, skipped = local_gpus(recorded)
    recorded.nvmlInit()
    ask(recorded, "nvmlDeviceGetHandleByIndex", 99)
    ask(recorded, "nvmlDeviceGetNvLinkState", recorded.nvmlDeviceGetHandleByIndex(0), 99)
    versions = {"driver": recorded.nvmlSystemGetDriverVersion(), "nvml": recorded.nvmlSystemGetNVMLVersion()}
    recorded.nvmlShutdown()
    ask(recorded, "nvmlDeviceGetCount")  # after its end
    told = {"versions": versions, "answers": [one.to_json() for one in recorded.answers]}
    (trial.folder / "nvml.json").write_text(json.dumps(told, indent=1), "utf-8")
    trial.note("local_gpus", {"found": [repr(one) for one in found], "skipped": [repr(one) for one in skipped]})
    trial.check("NVML finds a GPU that the table knows", bool(found), [one.accelerator for one in found])
    return found[0].accelerator


def asked(fields: str) -> subprocess.CompletedProcess[str]:
    words = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def smi(trial: GpuTrial, when: str) -> None:
    """The agent's sample beside NVML's own words, and the raw text of `nvidia-smi`."""
    began = time.monotonic()
    raw = asked(gpu._FIELDS)  # the agent's very question
    took = time.monotonic() - began
    sampled, told = gpu.sample(), beside(import_module("pynvml"), 0)
    trial.note(f"nvidia-smi {when}", {"raw": raw.stdout, "rc": raw.returncode, "seconds": took, "nvml": told})
    one = sampled[0]
    trial.check(f"{when}: one sample a GPU, no figure missing", None not in one.to_json().values(), one.to_json())
    near = (
        abs((one.memory_total or 0) - told["memory_total"]) < 1
        and abs((one.memory_used or 0) - told["memory_used"]) < 1024
        and abs((one.power or 0) - told["power"]) < 150
        and abs((one.utilisation or 0) - told["utilisation"]) < 30
    )
    trial.check(f"{when}: the sample is what NVML says", near, told)


def part(trial: GpuTrial, home: Home, accelerator: str) -> None:
    """The machine as capacity."""
    doctor = json.loads(run("doctor", "--json", home=home.root).stdout)
    told = next((one for one in doctor["findings"] if one["area"] == "gpu"), None) if "findings" in doctor else doctor
    trial.note("doctor", told)
    offers = json.loads(home.gpubroker("offers", "--where", "provider=owned", "--json"))
    trial.note("offers", offers)
    trial.check(
        "doctor and offers name it", f"{accelerator}:1" in json.dumps(told) and accelerator in json.dumps(offers)
    )


def watch(trial: GpuTrial, accelerator: str) -> None:
    with homes(trial) as (training, idle, session):
        part(trial, training, accelerator)
        train = f"{sys.executable} train.py --seconds"
        training.submit("digits", f"{train} 600 --until {training.root}/enough", accelerator=accelerator)
        training.submit("second", f"{train} 1", accelerator=accelerator)
        training.submit("without", f"{train} 1", gpus=0)
        (idle.root / "policy.yaml").write_text(POLICY, "utf-8")
        idle.gpubroker("policy", "apply", str(idle.root / "policy.yaml"), "--yes")
        idle.submit("sleeper", "sleep 600", accelerator=accelerator)
        session.gpubroker("dev", "--gpu", accelerator, "--for", "10m", "--idle", "30s", "--yes", "--detach")
        session.until("dev", "the session is open", lambda told: told["state"] == "running")
        busy(trial, training, idle, session)
        let_go(trial, training, idle, session)


def busy(trial: GpuTrial, training: Home, idle: Home, session: Home) -> None:
    """While the GPU computes: samples, waiting for the part, the interruption."""
    training.until("digits", "it trains", lambda told: (told["step"] or 0) > 5)
    smi(trial, "busy")
    trial.check(
        "a job without a part waits",
        training.show("second")["state"] != "running",
        training.show("second")["waiting_because"],
    )
    trial.note("exec", training.gpubroker("exec", "digits", "--", "nvidia-smi", "-L"))
    eventually(lambda: len(training.samples()) >= 2 or None, "two samples", _PATIENCE)
    agents = [one for one in processes(training.root, "agent") if "digits" in " ".join(one.cmdline())]
    agents[0].terminate()
    shown = training.until(
        "digits", "it is interrupted and resumes", lambda told: told["attempts"][-1]["resumed_from"] is not None
    )
    eventually(lambda: len(idle.samples()) >= 3 or None, "a minute beside the load", _PATIENCE)
    ended = shown["attempts"][0]
    trial.check("interrupted", ended["cause"] == "preempted", [ended["cause"], ended["evidence"]])
    trial.check(
        "the idle job and the session live beside the load",
        idle.show("sleeper")["state"] == session.show("dev")["state"] == "running",
    )
    (training.root / "enough").touch()


def let_go(trial: GpuTrial, training: Home, idle: Home, session: Home) -> None:
    """The job ends, then what computes nothing."""
    done = training.until("digits", "it is done", lambda told: bool(told["closed"]))
    trial.note("status digits", done)
    trial.note("samples", training.samples())
    logs = training.gpubroker("logs", "digits")
    trial.note("logs digits", logs)
    last = done["attempts"][-1]
    trial.check(
        "resumed and succeeded",
        done["state"] == "succeeded" and last["resumed_from_step"] is not None,
        [done["state"], last["resumed_from_step"], done["step"], done["steps_redone"]],
    )
    states = [line.rsplit("state ", 1)[1] for line in logs.splitlines() if "state " in line]
    at_end = [line for line in logs.splitlines() if f"saved step {last['resumed_from_step']}," in line]
    trial.check(
        "the restored state is the saved one",
        bool(at_end) and states.count(at_end[0].rsplit("state ", 1)[1]) >= 2,
        at_end,
    )
    most = max(one["utilisation"] or 0 for sample in training.samples() for one in sample["gpus"])
    trial.check("samples show the load", most > 50, most)
    text = training.gpubroker("status", "digits")
    trial.note("status digits, text", text)
    second = training.until("second", "it ran then", lambda told: bool(told["closed"]))
    trial.check("the one that waited ran then", second["state"] == "succeeded", training.gpubroker("logs", "second"))
    blind = training.until("without", "it ran", lambda told: bool(told["closed"]))
    trial.check(
        "a job without a GPU sees none",
        blind["state"] == "succeeded" and "sees none" in training.gpubroker("logs", "without"),
    )
    trial.note("report units", json.loads(training.gpubroker("report", "units", "--json")))
    ended = session.until("dev", "the session ends", lambda told: bool(told["closed"]))
    trial.check(
        "the session ended as idle, after the load",
        [ended["state"], ended["attempts"][-1]["cause"]] == ["succeeded", "idle"],
        [ended["attempts"][-1]["evidence"], ended["attempts"][-1]["ended_at"], done["ended_at"]],
    )
    trial.check("and not before", ended["attempts"][-1]["ended_at"] > done["attempts"][-1]["ended_at"])
    slept = idle.until("sleeper", "the idle job is stopped", lambda told: told["state"] != "running")
    trial.check(
        "the idle job was stopped",
        slept["attempts"][-1]["cause"] == "stopped_by_policy",
        slept["attempts"][-1]["evidence"],
    )
    trial.note("idle samples", idle.samples())
    smi(trial, "afterwards")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where gpu.json and nvml.json are written")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.which("nvidia-smi") is None:
        print("no NVIDIA GPU here")
        return 1
    trial = GpuTrial(folder)
    try:
        accelerator = nvml(trial)
        smi(trial, "idle")
        trial.note(
            "a figure that it lacks, and one that there is not",
            [asked("index,fan.speed").stdout, asked("index,zeal").stdout],
        )
        watch(trial, accelerator)
    except Exception as error:  # noqa: BLE001  # what was seen until then is of use
        trial.check("the trial went to its end", False, repr(error))
    wrong = [what for what, right, _ in trial.checks if not right]
    print(f"{len(trial.checks)} checks, wrong: {wrong or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
