"""Tickets identify the broker's own launches at gates that query the broker, so that a launch is not judged and its
money not held twice."""

from __future__ import annotations

import hmac

from broker.app.jobs.runs_root import attempt_keys
from broker.app.wiring import Broker
from broker.core.errors import NotAllowed, UnreadableJob
from broker.core.events.views import AttemptView, JobView
from broker.runfolder.signing import launch_ticket


def ticket_holder(broker: Broker, key: str, ticket: str) -> AttemptView:
    """The attempt whose launch carries the ticket. Raises `NotAllowed` for a ticket that was not signed here, for an
    attempt that is over, and for one whose machine has already reported, because a ticket starts only one machine."""
    job_id, _, number = key.rpartition("-")
    with broker.store.reading() as look:
        try:
            view = look.job(job_id)
        except UnreadableJob:
            view = None
    attempt = None if view is None or not number.isdecimal() else _attempt(view, int(number))
    expected = launch_ticket(attempt_keys(broker).of(key), key)
    if attempt is None or attempt.key != key or not hmac.compare_digest(expected.encode(), ticket.encode()):
        raise NotAllowed("the ticket of the launch is not valid", hint="launch it with `gpubroker submit`")
    if attempt.state.final or attempt.claimed_at is not None or attempt.stop_requested is not None:
        raise NotAllowed(f"the ticket of {key} is used up", hint="launch it with `gpubroker submit`")
    return attempt


def _attempt(view: JobView, number: int) -> AttemptView | None:
    return next((one for one in view.attempts if one.number == number), None)
