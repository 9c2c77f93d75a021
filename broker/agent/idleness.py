"""What accelerators did lately, and whether that is too little: the idle rules of the lease, with no broker needed.

Of all that was seen only the heights matter: a look is forgotten once a later one was at least as high.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from broker.agent.clock import from_text
from broker.agent.formats import IdleLimit

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Idleness:
    """The accelerators of one node. Times are seconds on one clock, of which only differences matter."""

    def __init__(self) -> None:
        # Looks, later ones lower: how high, and until when nobody saw anything else.
        self._looks: tuple[tuple[float, float], ...] = ()
        self._first = self._last = 0.0

    def saw(self, percent: float, at: float) -> None:
        """``percent``: how busy the busiest accelerator was at that time, later than all before."""
        looks = self._looks
        self._first, self._last = (self._first if looks else at), at
        if looks:
            looks = (*looks[:-1], (looks[-1][0], at))
        self._looks = (*(look for look in looks if look[0] > percent), (percent, at))

    def most(self, limit: IdleLimit) -> float | None:
        """How busy they were at most, once they were below the limit for so long; None while they are not. What nobody
        looked at for so long is not known, and not idle."""
        looks = self._looks
        since = max((until for percent, until in looks if percent >= limit.below), default=self._first)
        if not looks or looks[-1][0] >= limit.below or self._last - since < limit.seconds:
            return None
        return max(percent for percent, _ in looks if percent < limit.below)


def busiest(gpus: Iterable[Mapping[str, Any]]) -> float | None:
    """Of the accelerators of one sample; None where none told."""
    told = [float(one["utilisation"]) for one in gpus if one.get("utilisation") is not None]
    return max(told, default=None)


def in_samples(text: bytes) -> Idleness:
    """What the samples of a node (``metrics.jsonl``) tell; what makes no sense is left out."""
    found = Idleness()
    for line in text.splitlines():
        try:
            sample = json.loads(line)
            percent = busiest(sample["gpus"])
            if percent is not None:
                found.saw(percent, (from_text(sample["at"]) - _EPOCH).total_seconds())
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def too_idle(nodes: Sequence[Idleness], limits: Sequence[IdleLimit]) -> str | None:
    """What is to be told of the first limit that all nodes have reached; None while there is none."""
    for limit in limits:
        mosts = [node.most(limit) for node in nodes]
        known = [most for most in mosts if most is not None]
        if known and len(known) == len(mosts):
            return f"accelerator utilisation was at most {max(known):g}% {limit.told}"
    return None
