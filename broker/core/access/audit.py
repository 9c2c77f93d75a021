"""The audit log: who did what, from where, and the values before and after."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class AuditOutcome(StrEnum):
    """The outcome of an action. A change of jobs or money is recorded as ``begun`` before it is made and as ``done`` or
    ``refused`` afterwards, so a change during which the server died is on record."""

    BEGUN = "begun"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One line of the log. ``at``: UTC. ``origin``: the entry point, with the network address if there is one;
    ``token``: the id of the token used; ``action`` on ``subject``; ``reason``: the code of a refusal. Never contains a
    secret."""

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
