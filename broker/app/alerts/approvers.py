"""Telling people that somebody is asked: each request once, to every target of ``GPUBROKER_NOTIFY__<NAME>``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC

from broker.app.alerts import notify
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.notices import Notice, Severity
from broker.core.policy.coverage_words import covered
from broker.store.outbox import Dispatch

log = logging.getLogger(__name__)

# Of jobs that run while they ask, so many are looked at: those about which something was asked last.
_MOST_JOBS = 200


def tell(broker: Broker, view: JobView) -> list[notify.Delivery]:
    """Tell of what a job waits to hear, now; nothing where nobody is asked, or nobody is to be told.

    Never raises a `BrokerError`: no request fails for want of a mail server. What could not be delivered is kept and
    tried again by whoever looks after jobs; what was told is not told again.
    """
    notice, targets = _notice(view), broker.settings.notify
    if notice is None or not targets:
        return []
    try:
        sent = notify.notify(broker.store, broker.clock, notice, targets)
    except BrokerError as error:
        log.warning("nobody could be told that %s waits for approval: %s (%s)", view.id, error, error.hint)
        return []
    return [one for one in sent if one.key == notice.key]


def check(broker: Broker) -> list[Notice]:
    """Put the requests of all jobs on their way, as far as they are new; returns these: of those that wait for an
    answer, and of those that run meanwhile. Sends nothing: see `notify.deliver`. Any number of processes may do this at
    once. Raises `StoreProblem`."""
    targets = tuple(broker.settings.notify)
    if not targets:
        return []
    with broker.store.reading() as look:
        asking = [*look.jobs(states=(JobState.AWAITING_APPROVAL.value,)), *look.views(look.asked_about(_MOST_JOBS))]
    notices = [notice for view in {view.id: view for view in asking}.values() if (notice := _notice(view))]
    return [one for one in notices if broker.store.outbox.add(one, targets, broker.clock.now())]


def told_of(broker: Broker, view: JobView) -> Sequence[Dispatch]:
    """Who was told of the requests of a job, or could not be told yet, newest first."""
    return broker.store.outbox.under(f"approval/{view.id}/")


def _notice(view: JobView) -> Notice | None:
    asked = view.asked
    if asked is None:
        return None
    key = f"approval/{view.id}/{asked.at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    because = "; ".join(f"{question.because} ({question.source})" for question in asked.questions)
    until = f" before {asked.expires_at:%Y-%m-%d %H:%M} UTC" if asked.expires_at else ""
    who = asked.whom(view.user)
    # Nobody asks in person for what runs and comes to the end of its money.
    runs_out = asked.extension and not asked.by
    wants = f"{view.user} needs" if runs_out else f"{asked.by or view.user} asks for"
    what = f"{view.job.name} to go on" if runs_out else view.job.name
    title = f"{wants} {asked.total} for {what}: {who} may approve"
    how = f"To say yes{until}: gpubroker approvals grant {view.id}; or no: approvals refuse {view.id}."
    body = f"{because}. A yes covers: {covered(asked)}. {how}"
    return Notice(key, title, body, Severity.WARNING)
