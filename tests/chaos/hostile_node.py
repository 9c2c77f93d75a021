"""The command of a hostile job: it writes over every document that its node can reach, and may kill its own agent.

Wrong, too large, too old, of another job, with another's signature or none: into its own run folder, and over specs and
leases of other jobs, as a node could whose credentials reach the whole bucket. Standard library only.

    python -m tests.chaos.hostile_node RUNS SEED SECONDS MARKS

``MARKS``: a folder for the notes of what it did; a forged command leaves ``hijacked`` there.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

OWN = (
    "exit.json",
    "heartbeat.json",
    "journal.json",
    "claim-0.json",
    "lease.json",
    "spec.json",
    "outputs.json",
    "metrics.jsonl",
    "logs/0-000000.log",
    "exit-1.json",
    "claim-7.json",
)
ODD_VALUES: tuple[Any, ...] = (
    None,
    "abc",
    -1,
    2**70,
    1e308,
    float("nan"),
    float("inf"),
    [],
    {},
    True,
    "0001-01-01T00:00:00+00:00",
    "9999-12-31T23:59:59+00:00",
    "2020-01-01T00:00:00+00:00",
    "\ud800",
    "x" * 100_000,
)
CAUSES = (
    "completed",
    "preempted",
    "exit_status",
    "cancelled_by_user",
    "no_capacity",
    "agent_died",
    "max_cost",
    "nobody",
)
PAUSE = (0.05, 0.4)  # seconds between two writes
LARGE = 12 << 20  # bytes: more than the broker reads


class HostileNode:
    """``runs``: where the run folders of all jobs are; ``marks``: as above."""

    def __init__(self, runs: Path, chance: random.Random, marks: Path) -> None:
        self._runs, self._chance, self._marks = runs, chance, marks
        self._job = runs / os.environ["GPUBROKER_JOB_ID"]
        self._attempt = self._job / "attempts" / os.environ["GPUBROKER_ATTEMPT"]
        self._agent = self._pid_of_the_agent()

    def strike(self) -> None:
        """One document, or the agent."""
        kinds: list[tuple[Callable[[], None], int]] = [
            (self._own, 60),
            (self._checkpoint, 10),
            (self._of_others, 12),
            (self._mixed_up, 12),
            (self._gone, 4),
            (self._kill_the_agent, 1),
        ]
        (what,) = self._chance.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
        with suppress(OSError, ValueError):
            what()
            with (self._marks / "hostile").open("a") as notes:
                notes.write(what.__name__.strip("_") + "\n")

    def end(self) -> int:
        """The exit status; the folder may be gone by then."""
        if self._chance.random() < 0.3:
            shutil.rmtree(self._attempt, ignore_errors=True)
        return self._chance.choice([0, 0, 1, 9])

    def _own(self) -> None:
        name = self._chance.choice(OWN)
        self._put(self._attempt / name, self._damaged(self._attempt / name))

    def _checkpoint(self) -> None:
        step = self._chance.choice([1, 7, 10**12 - 1])
        place = self._job / "checkpoints" / f"{self._chance.choice([1, 9999]):04d}-{step:012d}-000000-bad"
        file = {"path": "../../x", "object": "rank-0/../../y", "size": self._chance.choice(ODD_VALUES), "sha256": "0"}
        manifest = {"id": place.name, "name": "bad", "attempt": 1, "step": step, "at": "2026-01-01T00:00:00+00:00"}
        whole = {**manifest, "nodes": 1, "files": [file]}
        self._put(place / "manifest.json", self._chance.choice([to_bytes(whole), self._damaged(place)]))

    def _of_others(self) -> None:
        """Specs and leases of other jobs, and of its own next attempt, with a command of its own."""
        others = [*self._runs.glob("*/attempts/*"), self._job / "attempts" / str(int(self._attempt.name) + 1)]
        place = self._chance.choice(others)
        found = json.loads((place / "spec.json").read_bytes()) if (place / "spec.json").exists() else {}
        forged = {**found, "command": f"touch {self._marks / 'hijacked'}", "setup": None, "sources": None}
        if self._chance.random() < 0.5:
            self._put(place / "spec.json", to_bytes(forged))
        else:
            stop = self._chance.choice([None, "cancelled_by_user", "nobody"])
            lease = {"paid_until": None, "stop": stop, "signature": self._chance.choice(["00" * 32, None, 1])}
            self._put(place / "lease.json", to_bytes(lease))

    def _mixed_up(self) -> None:
        """A document of another job, or an old one of its own attempt, as its own."""
        name = self._chance.choice([one for one in OWN if "/" not in one])
        others = list(self._runs.glob(f"*/attempts/*/{name}"))
        self._put(self._attempt / name, self._chance.choice(others).read_bytes())

    def _gone(self) -> None:
        (self._attempt / self._chance.choice(OWN)).unlink()

    def _kill_the_agent(self) -> None:
        about = Path(f"/proc/{self._agent}/cmdline")
        if self._agent is not None and str(self._attempt.parent.parent.name) in about.read_text():
            os.kill(self._agent, signal.SIGKILL)

    def _damaged(self, place: Path) -> bytes:
        kind = self._chance.randrange(7)
        if kind == 0:
            return self._chance.choice([b"", b"{", b"[]", b"null", b"\xff\xfe", b'"text"', b"[" * 50_000])
        if kind == 1:
            return b'{"entries": [' + b" " * LARGE + b"]}"
        try:
            document = json.loads(place.read_bytes())
        except (OSError, ValueError):
            document = {}
        if not isinstance(document, dict):
            document = {}
        if place.name.startswith("exit") or not document:
            document = {"cause": self._chance.choice(CAUSES), "at": "2026-11-25T12:00:00+00:00", **document}
        if place.name == "journal.json":
            entries = document.get("entries")
            odd = {"kind": "checkpoint_saved", "at": self._chance.choice(ODD_VALUES), "step": -1, "size": 2**70}
            document["entries"] = [*(entries if isinstance(entries, list) else []), odd]
            return to_bytes(document)
        for name in self._chance.sample(sorted(document), min(len(document), 2)):
            document[name] = self._chance.choice(ODD_VALUES)
        return to_bytes(document)

    def _put(self, place: Path, content: bytes) -> None:
        """At once, as an object store does it; now and then half of it."""
        if self._chance.random() < 0.2:
            content = content[: len(content) // 2]
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f"{place.name}#{os.getpid()}")
        draft.write_bytes(content)
        draft.replace(place)

    def _pid_of_the_agent(self) -> int | None:
        try:
            return int(json.loads((self._attempt / "claim-0.json").read_bytes())["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


def to_bytes(document: Any) -> bytes:
    return json.dumps(document).encode()


def main(arguments: list[str]) -> int:
    runs, seed, seconds, marks = arguments
    Path(marks).mkdir(parents=True, exist_ok=True)
    chance = random.Random(f"{seed} {os.environ['GPUBROKER_JOB_ID']} {os.environ['GPUBROKER_ATTEMPT']}")
    node = HostileNode(Path(runs), chance, Path(marks))
    until = time.monotonic() + float(seconds) * chance.uniform(0.5, 1.5)
    while time.monotonic() < until:
        node.strike()
        time.sleep(chance.uniform(*PAUSE))
    return node.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
