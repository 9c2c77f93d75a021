"""The health of a service: the state of each of its duties, for people, load balancers and Prometheus."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class DutyState(StrEnum):
    """The state of a duty. ``STANDING_BY``: another process has it. ``IN_TROUBLE``: its last run failed."""

    STARTING = "starting"
    LEADING = "leading"
    STANDING_BY = "standing_by"
    IN_TROUBLE = "in_trouble"


@dataclass(frozen=True, slots=True)
class Pulse:
    """One duty. ``at``: its last report (monotonic clock, seconds); ``seconds``: the duration of its last run.
    ``looks``, ``failures``, ``steps``: counts since the service began."""

    standing: DutyState
    at: float
    looks: int = 0
    failures: int = 0
    steps: int = 0
    seconds: float = 0.0


class Pulses:
    """The last reports of the duties of one process. Thread-safe.

    ``patience``: seconds of the wall clock without a report after which a duty counts as stuck. ``monotonic``: the
    clock.
    """

    def __init__(self, patience: float = 120.0, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._monotonic = monotonic
        self._pulses: dict[str, Pulse] = {}
        self._lock = threading.Lock()

    def begins(self, name: str) -> None:
        """Register a duty that has not reported yet."""
        self._change(name, lambda pulse: replace(pulse, standing=DutyState.STARTING))

    def record_run(self, name: str, seconds: float, steps: int = 0) -> None:
        """Record a completed run of a duty that has the lead. ``seconds``: the duration of the run; ``steps``: the
        steps taken."""
        self._change(
            name,
            lambda pulse: replace(
                pulse, standing=DutyState.LEADING, looks=pulse.looks + 1, seconds=seconds, steps=pulse.steps + steps
            ),
        )

    def stands_by(self, name: str) -> None:
        """Record that another process has the duty."""
        self._change(name, lambda pulse: replace(pulse, standing=DutyState.STANDING_BY))

    def record_failure(self, name: str) -> None:
        """Record that the duty's last run failed; it will try again."""
        self._change(name, lambda pulse: replace(pulse, standing=DutyState.IN_TROUBLE, failures=pulse.failures + 1))

    def pulses(self) -> Mapping[str, Pulse]:
        """The report of every duty, by name."""
        with self._lock:
            return dict(self._pulses)

    def silent_for(self, name: str) -> float:
        """Seconds since the duty's last report."""
        return self._monotonic() - self.pulses()[name].at

    def ill(self) -> dict[str, str]:
        """The duties that failed or are stuck, each with the reason; empty if all work."""
        reasons = {}
        for name, pulse in self.pulses().items():
            silence = self._monotonic() - pulse.at
            if silence > self._patience:
                reasons[name] = f"silent for {silence:.0f} s"
            elif pulse.standing is DutyState.IN_TROUBLE:
                reasons[name] = "the store does not answer"
        return reasons

    def _change(self, name: str, change: Callable[[Pulse], Pulse]) -> None:
        with self._lock:
            previous = self._pulses.get(name, Pulse(DutyState.STARTING, 0.0))
            self._pulses[name] = replace(change(previous), at=self._monotonic())
