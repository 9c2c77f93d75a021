"""Why a job waits, for people: the words of the reasons that matter. Stored and JSON carry the codes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from broker.core.reasons import Reason

_MOST = 3
# Offers that the job itself does not want: they say nothing while there is another reason.
_NOT_WANTED = frozenset(
    {
        Reason.WRONG_ACCELERATOR,
        Reason.WRONG_CAPACITY_TYPE,
        Reason.WRONG_INSTANCE_TYPE,
        Reason.WRONG_PROVIDER,
        Reason.WRONG_REGION,
        Reason.NOT_A_CPU_OFFER,
        Reason.SANDBOX_NOT_ASKED_FOR,
        Reason.NEEDS_COMMITMENT,
    }
)
_ITS_TURN = "too few machines of our own are free, it waits for its turn"
_COUNTED = re.compile(r"([0-9]+) × ([a-z_]+)")


def in_words(reasons: Mapping[str, int]) -> str:
    """Counted reasons, those first that time may change."""
    known = {Reason(code): count for code, count in reasons.items() if code in set(Reason)}
    telling = {reason: count for reason, count in known.items() if reason not in _NOT_WANTED} or known
    by_weight = sorted(telling.items(), key=lambda item: (item[0] is not Reason.TOO_FEW_MACHINES, -item[1]))
    parts = [
        _ITS_TURN if reason is Reason.TOO_FEW_MACHINES else f"{count:,} × {reason.text}"
        for reason, count in by_weight[:_MOST]
    ]
    return "; ".join(parts) or "no offers are known"


def because(text: str) -> str:
    """What a job's view says it waits for; counted codes become words."""
    parts = [_COUNTED.fullmatch(part) for part in text.split(", ")]
    if not text or any(part is None for part in parts):
        return text
    return in_words({part[2]: int(part[1]) for part in parts if part is not None})
