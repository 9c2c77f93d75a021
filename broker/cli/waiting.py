"""Why a job waits, as text. Events and JSON carry the reason codes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from broker.core.reasons import Reason

_MOST = 3
# The job itself excludes these offers; such reasons are left out while there is another one.
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
_ITS_TURN = "queued, too few owned machines are free"
_COUNTED = re.compile(r"([0-9]+) × ([a-z_]+)")


def in_words(reasons: Mapping[str, int]) -> str:
    """Counted reasons as text; reasons that may pass with time come first."""
    known = {Reason(code): count for code, count in reasons.items() if code in set(Reason)}
    telling = {reason: count for reason, count in known.items() if reason not in _NOT_WANTED} or known
    by_weight = sorted(telling.items(), key=lambda item: (item[0] is not Reason.TOO_FEW_MACHINES, -item[1]))
    parts = [
        _ITS_TURN if reason is Reason.TOO_FEW_MACHINES else f"{count:,} × {reason.text}"
        for reason, count in by_weight[:_MOST]
    ]
    return "; ".join(parts) or "no offers are known"


def because(text: str) -> str:
    """The ``waiting_because`` of a job's view as text; counted reason codes become words."""
    parts = [_COUNTED.fullmatch(part) for part in text.split(", ")]
    if not text or any(part is None for part in parts):
        return text
    return in_words({part[2]: int(part[1]) for part in parts if part is not None})
