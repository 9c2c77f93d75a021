"""Alerts about approval requests: one per request, to every target of ``GPUBROKER_NOTIFY__<NAME>``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC

from broker.app.alerts import notify
from broker.app.alerts.routes import recipients
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.notices import Notice, Severity
from broker.core.policy.approvals import RequestedApproval
from broker.core.policy.coverage import covered
from broker.store.outbox import Dispatch

log = logging.getLogger(__name__)

_MOST_JOBS = 200  # running jobs with a request that are checked: those with the newest requests


def tell(broker: Broker, view: JobView) -> list[notify.Delivery]:
    """Send the notice of a job's open request now; nothing if there is no request or no target.

    Never raises a `BrokerError`, so that no request fails because of a mail server. A notice that could not be
    delivered is kept, and the reconciler tries again. Idempotent: a delivered notice is not sent again.
    """
    notice, settings = _notice(view), broker.settings
    if notice is None or not settings.notify:
        return []
    try:
        targets = {name: settings.notify[name] for name in recipients(settings, notice)}
        sent = notify.notify(broker.store, broker.clock, notice, targets)
    except BrokerError as error:
        log.warning("the notice that %s waits for approval could not be sent: %s (%s)", view.id, error, error.hint)
        return []
    return [one for one in sent if one.key == notice.key]


def check(broker: Broker) -> list[Notice]:
    """Queue the notices of new requests, of waiting and of running jobs; returns them. Sends nothing: see
    `notify.deliver`. Idempotent, also from several processes at once. Raises `StoreProblem`."""
    settings = broker.settings
    if not settings.notify:
        return []
    with broker.store.reading() as look:
        asking = [
            *look.jobs(states=(JobState.AWAITING_APPROVAL.value,), with_tasks=True),
            *look.views(look.asked_about(_MOST_JOBS)),
        ]
    notices = [notice for view in {view.id: view for view in asking}.values() if (notice := _notice(view))]
    outbox, now = broker.store.outbox, broker.clock.now()
    return [one for one in notices if outbox.add(one, recipients(settings, one), now)]


def told_of(broker: Broker, views: Sequence[JobView]) -> Mapping[str, Sequence[Dispatch]]:
    """The notices about the open requests of jobs, also those not delivered yet, by job, newest first. One query."""
    keys = {_key(view, view.asked): view.id for view in views if view.asked is not None}
    found: dict[str, list[Dispatch]] = {}
    for one in broker.store.outbox.of(keys) if keys else ():
        found.setdefault(keys[one.notice.key], []).append(one)
    return found


def _key(view: JobView, asked: RequestedApproval) -> str:
    return f"approval/{view.id}/{asked.at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _notice(view: JobView) -> Notice | None:
    asked = view.asked
    if asked is None:
        return None
    key = _key(view, asked)
    because = "; ".join(f"{question.because} ({question.source})" for question in asked.questions)
    until = f" before {asked.expires_at:%Y-%m-%d %H:%M} UTC" if asked.expires_at else ""
    who = asked.whom(view.user)
    # The broker itself requests approval for a running job whose held money is nearly used up.
    runs_out = asked.extension and not asked.by
    wants = f"{view.user} needs" if runs_out else f"{asked.by or view.user} asks for"
    what = f"{view.job.name} to go on" if runs_out else view.job.name
    title = f"{wants} {asked.total} for {what}: {who} may approve"
    how = f"To approve{until}: gpubroker approvals grant {view.id}; to refuse: gpubroker approvals refuse {view.id}."
    body = f"{because}. An approval covers: {covered(asked)}. {how}"
    teams = (view.job.team,) if view.job.team else ()
    return Notice(key, title, body, Severity.WARNING, f"approval/{view.id}", teams)
