"""What each node is granted, as its ``lease.json`` should say; written when it changes, and renewed in time where the
node counts how long nobody looked after it."""

from __future__ import annotations

import logging
from datetime import datetime

from broker.core.errors import BrokerError
from broker.core.outcomes import Cause
from broker.core.views import AttemptView, JobView
from broker.launch.mailbox import Lease, Mailbox
from broker.launch.progress import billed_time
from broker.launch.settlement import lease_of
from broker.launch.worklist import Worklist

log = logging.getLogger(__name__)


class Leases:
    """``mailbox``: where they are written. ``worklist``: what the jobs hold and spent."""

    def __init__(self, mailbox: Mailbox, worklist: Worklist) -> None:
        self._mailbox = mailbox
        self._worklist = worklist
        self._written: dict[str, Lease] = {}

    def granted(self, view: JobView, attempt: AttemptView, now: datetime) -> Lease:
        """What the attempt's node is granted now."""
        sums = self._worklist.sums(view.id)
        return lease_of(view, attempt, sums, self._worklist.price_series, billed_time(view, now), now)

    def paid_until(self, view: JobView, now: datetime) -> datetime | None:
        """When the money of the running attempt ends."""
        latest = view.latest
        return self.granted(view, latest, now).paid_until if latest and not latest.state.final else None

    def keep(self, view: JobView, attempt: AttemptView, now: datetime) -> None:
        """Keep the node's lease as it should be; one of an attempt that has ended tells its machine to stop. What
        cannot be written is logged, and tried again with the next look."""
        if attempt.state.final:
            self.withdraw(view, attempt)
        else:
            self._write(view, attempt, self.granted(view, attempt, now))

    def withdraw(self, view: JobView, attempt: AttemptView) -> None:
        """Tell whatever machine the attempt may still have to stop."""
        self._write(view, attempt, Lease(stop=attempt.cause or Cause.FENCED))

    def _write(self, view: JobView, attempt: AttemptView, lease: Lease) -> None:
        if self._written.get(attempt.key) == lease:
            return
        try:
            # Reading what an earlier process wrote is a fraction of writing it once more.
            if attempt.key in self._written or self._mailbox.lease(view, attempt) != lease:
                self._mailbox.write_lease(view, attempt, lease)
        except BrokerError as error:
            log.warning("job %s, attempt %s: the lease cannot be written: %s", view.id, attempt.number, error)
        else:
            self._written[attempt.key] = lease

    def forget(self, key: str) -> None:
        """The attempt's job is closed."""
        self._written.pop(key, None)
