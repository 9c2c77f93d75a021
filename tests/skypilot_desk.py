"""A user with a job for machines that SkyPilot starts: submits it with the real program, and reads the results.

`tests.kubernetes` sets up the machines.
"""

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.program import body_of, counted, eventually, kill, processes, rows, run, start

JOB = "count"


@dataclass
class SkyDesk:
    """``folder``: its own folder. ``environment``: that of every process that it starts."""

    folder: Path
    environment: Mapping[str, Any]
    _cli: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def store(self) -> Path:
        return self.home / "gpubroker.db"

    def gpubroker(self, *words: str, timeout: float = 120) -> str:
        done = run(*words, home=self.home, timeout=timeout, **self.environment)
        assert done.returncode == 0, f"gpubroker {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, policy: str, job: str) -> None:
        """Apply that policy and submit that job; the program runs until the job's end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "policy.yaml").write_text(policy)
        (self.folder / "job.yaml").write_text(job)
        self.gpubroker("policy", "apply", str(self.folder / "policy.yaml"))
        words = ("submit", str(self.folder / "job.yaml"), "--yes")
        self._cli = [start(*words, home=self.home, **self.environment)]

    def until(self, kind: str, at_least: int = 1, seconds: float = 300) -> None:
        """Wait for that many events of a kind; fails if the program ends without them."""
        happened = counted(self.home, kind, at_least)
        self.wait(lambda: happened() or self._over(), f"{at_least} × {kind}", seconds)
        assert happened(), f"the program ended before {at_least} × {kind}: {self._said()}"

    def wait(self, happened: Callable[[], Any], what: str, seconds: float) -> None:
        """Wait until ``happened`` is true, for at most ``seconds``."""
        eventually(happened, what, seconds)

    def ended(self, seconds: float = 400) -> str:
        """The state of the job once the program has ended and the job is closed."""
        self.wait(self._over, "the program ends", seconds)
        out, err = self._cli[0].communicate(timeout=60)
        assert counted(self.home, "launch_requested")() or self._cli[0].returncode == 0, f"{out}{err}"
        eventually(counted(self.home, "job_closed"), f"the job is closed: {out}{err}", 120)
        document = json.loads(self.gpubroker("status", JOB, "--json"))
        assert (self._cli[0].returncode == 0) == (document["state"] == "succeeded"), (document["state"], out, err)
        return str(document["state"])

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The bodies of the events of a kind, with the attempt's number."""
        found = rows(self.store, "SELECT attempt, body FROM attempt_event WHERE kind = ? ORDER BY seq", kind)
        return [{"attempt": number, **body_of(body)} for number, body in found]

    def causes(self) -> list[str]:
        return [str(one["cause"]) for one in self.events("attempt_ended")]

    def steps_done(self) -> list[int]:
        """The steps that rank 0 did, in order, over all attempts."""
        said = self.gpubroker("logs", JOB)
        return [int(number) for number in re.findall(r"^(?:\[0\] )?step (\d+)$", said, re.MULTILINE)]

    def verify_bill(self, prices: Mapping[str, str]) -> None:
        """Check that no process and no hold is left, every movement balances, and each attempt is billed from the time
        when its machine was up until it was gone. ``prices``: USD per hour by machine type.
        """
        eventually(lambda: not processes(self.home), "every process of the broker is gone", 60)
        entries = rows(self.store, "SELECT movement_id, account, micros, attempt FROM ledger_entry")
        assert sum(micros for _, account, micros, _ in entries if account == "held") == 0
        for movement in {movement for movement, *_ in entries}:
            assert sum(micros for one, _, micros, _ in entries if one == movement) == 0
        for requested in self.events("launch_requested"):
            number, offer = requested["attempt"], requested["placement"]["offer"]
            spent = sum(micros for _, account, micros, of in entries if account == "spent" and of == number)
            since = [moment(one["since"]) for one in self.events("machine_up") if one["attempt"] == number]
            gone = [moment(one["gone_at"]) for one in self.events("machine_gone") if one["attempt"] == number]
            if not since:
                assert spent == 0, "billed without a machine"
                continue
            (began,), (until,) = since, gone
            assert Fraction(offer["price"]) >= Fraction(prices[offer["instance_type"]]), "the machine, and its disk"
            hourly = round(Fraction(offer["price"]) * 1_000_000)
            late = Fraction(spent, hourly) * 3600 - Fraction(until - began).limit_denominator(10**6)
            assert Fraction(-1, 100) < late < Fraction(101, 100), "billed in steps of a second, to micro-dollars"

    def kill(self) -> None:
        """Kill all remaining processes of the program."""
        kill(processes(self.home))
        for cli in self._cli:
            cli.kill()

    def _over(self) -> bool:
        return bool(self._cli) and self._cli[0].poll() is not None

    def _said(self) -> str:
        out, err = self._cli[0].communicate(timeout=10)
        return f"{out[-2000:]}{err[-2000:]}"


def moment(text: str) -> float:
    """The time of an event in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()
