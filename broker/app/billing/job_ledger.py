"""The ledger of one job: every entry that its cost is made of, with the price behind it."""

from __future__ import annotations

from broker.app.jobs.jobs import every_attempt
from broker.app.results.job_history import JobLedger
from broker.app.wiring import Broker
from broker.core.events.views import JobView
from broker.ledger.entries import Account


def job_ledger(broker: Broker, view: JobView) -> JobLedger:
    """The spending entries of the job, in posting order. Raises `UnreadableJob`."""
    with broker.store.reading() as reader:
        spending_entries = [entry for entry in reader.entries(view.id) if entry.account is Account.SPENT]
    attempts = {attempt.number: attempt for attempt in every_attempt(broker, view)}
    return JobLedger.of(view.id, view.job.name, spending_entries, attempts)
