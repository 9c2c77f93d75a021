"""Idle rules of the lease, judged from the accelerators' recent utilization without a broker.

Only maxima matter: a sample is dropped once a later one is at least as high.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from broker.agent.clock import from_text
from broker.agent.formats import LeaseIdleLimit

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Idleness:
    """The accelerators of one node. Times are seconds on one clock, of which only differences matter."""

    def __init__(self) -> None:
        # Samples in decreasing order: the utilization, and the time until the next sample.
        self._looks: tuple[tuple[float, float], ...] = ()
        self._first = self._last = 0.0

    def add_sample(self, percent: float, at: float) -> None:
        """Record the utilization of the busiest accelerator at a time later than all earlier samples."""
        maxima = self._looks
        self._first, self._last = (self._first if maxima else at), at
        if maxima:
            maxima = (*maxima[:-1], (maxima[-1][0], at))
        self._looks = (*(maximum for maximum in maxima if maximum[0] > percent), (percent, at))

    def most(self, limit: LeaseIdleLimit) -> float | None:
        """The maximum utilization, if it was below the limit during the limit's whole time; else None.

        Gaps in the samples do not count as idle.
        """
        maxima = self._looks
        since = max((until for percent, until in maxima if percent >= limit.below), default=self._first)
        if not maxima or maxima[-1][0] >= limit.below or self._last - since < limit.seconds:
            return None
        return max(percent for percent, _ in maxima if percent < limit.below)


def busiest(gpus: Iterable[Mapping[str, Any]]) -> float | None:
    """The highest utilization (percent) among one sample's accelerators; None if one of them did not report it."""
    percents: list[Any] = [gpu.get("utilisation") for gpu in gpus]
    return None if None in percents else max(map(float, percents), default=None)


def idleness_of_samples(text: bytes) -> Idleness:
    """The utilization from a node's samples (``metrics.jsonl``); malformed ones are skipped."""
    idleness = Idleness()
    for line in text.splitlines():
        try:
            sample = json.loads(line)
            percent = busiest(sample["gpus"])
            if percent is not None:
                idleness.add_sample(percent, (from_text(sample["at"]) - _EPOCH).total_seconds())
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return idleness


def idle_message(nodes: Sequence[Idleness], limits: Sequence[LeaseIdleLimit]) -> str | None:
    """The message for the first limit that all nodes have reached, or None."""
    for limit in limits:
        maxima = [node.most(limit) for node in nodes]
        idle_maxima = [maximum for maximum in maxima if maximum is not None]
        if idle_maxima and len(idle_maxima) == len(maxima):
            return f"accelerator utilization was at most {max(idle_maxima):g}% {limit.told}"
    return None
