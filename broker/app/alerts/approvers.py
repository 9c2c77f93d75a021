"""Alerts about approval requests: one per request, to every target of ``GPUBROKER_NOTIFY__<NAME>``."""

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
from broker.core.policy.coverage import coverage_text
from broker.store.outbox import Dispatch

log = logging.getLogger(__name__)

_MAX_JOBS = 200  # running jobs with a request that are checked: those with the newest requests


def notify_approvers(broker: Broker, view: JobView) -> list[notify.Delivery]:
    """Send the notice of a job's open request now; nothing if there is no request or no target.

    Never raises a `BrokerError`, so that no request fails because of a mail server. A notice that could not be
    delivered is kept, and the reconciler tries again. Idempotent: a delivered notice is not sent again.
    """
    notice, settings = _notice(view), broker.settings
    if notice is None or not settings.notify:
        return []
    try:
        targets = {name: settings.notify[name] for name in recipients(settings, notice)}
        deliveries = notify.notify(broker.store, broker.clock, notice, targets)
    except BrokerError as error:
        log.warning("the notice that %s waits for approval could not be sent: %s (%s)", view.id, error, error.hint)
        return []
    return [delivery for delivery in deliveries if delivery.key == notice.key]


def queue_notices(broker: Broker) -> list[Notice]:
    """Queue the notices of new requests, of waiting and of running jobs; returns them. Sends nothing: see
    `notify.deliver`. Idempotent, also from several processes at once. Raises `StoreProblem`."""
    settings = broker.settings
    if not settings.notify:
        return []
    with broker.store.reading() as reader:
        asking_views = [
            *reader.jobs(states=(JobState.AWAITING_APPROVAL.value,), with_tasks=True),
            *reader.views(reader.asked_about(_MAX_JOBS)),
        ]
    notices = [notice for view in {view.id: view for view in asking_views}.values() if (notice := _notice(view))]
    outbox, now = broker.store.outbox, broker.clock.now()
    return [queued for queued in notices if outbox.add(queued, recipients(settings, queued), now)]


def notices_by_job(broker: Broker, views: Sequence[JobView]) -> Mapping[str, Sequence[Dispatch]]:
    """The notices about the open requests of jobs, also those not delivered yet, by job, newest first. One query."""
    keys = {_key(view, view.asked): view.id for view in views if view.asked is not None}
    dispatches: dict[str, list[Dispatch]] = {}
    for dispatch in broker.store.outbox.of(keys) if keys else ():
        dispatches.setdefault(keys[dispatch.notice.key], []).append(dispatch)
    return dispatches


def _key(view: JobView, request: RequestedApproval) -> str:
    return f"approval/{view.id}/{request.at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _notice(view: JobView) -> Notice | None:
    request = view.asked
    if request is None:
        return None
    key = _key(view, request)
    reasons = "; ".join(f"{question.because} ({question.source})" for question in request.questions)
    deadline_text = f" before {request.expires_at:%Y-%m-%d %H:%M} UTC" if request.expires_at else ""
    approvers = request.whom(view.user)
    # The broker itself requests approval for a running job whose held money is nearly used up.
    runs_out_of_money = request.extension and not request.by
    request_text = f"{view.user} needs" if runs_out_of_money else f"{request.by or view.user} asks for"
    subject = f"{view.job.name} to go on" if runs_out_of_money else view.job.name
    title = f"{request_text} {request.total} for {subject}: {approvers} may approve"
    instructions = (
        f"To approve{deadline_text}: gpubroker approvals grant {view.id}; to refuse: gpubroker approvals refuse "
        f"{view.id}."
    )
    body = f"{reasons}. An approval covers: {coverage_text(request)}. {instructions}"
    teams = (view.job.team,) if view.job.team else ()
    return Notice(key, title, body, Severity.WARNING, f"approval/{view.id}", teams)
