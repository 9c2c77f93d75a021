"""The audit log: who did what, from where, what it was before and after."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class AuditOutcome(StrEnum):
    """What became of it. A change of jobs or money is ``begun`` before, and ``done`` or ``refused`` after, so that one
    during which the server died is on record, too."""

    BEGUN = "begun"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One line. ``at``: UTC. ``origin``: the entry point, and the address where there is one; ``token``: the id of the
    token that let them in; ``action``: what was asked, ``subject``: of what; ``reason``: why it was refused, as a code.
    No secret is ever part of it."""

    at: datetime
    person: str
    origin: str
    action: str
    subject: str
    outcome: AuditOutcome = AuditOutcome.DONE
    token: str = ""
    before: str = ""
    after: str = ""
    reason: str = ""
