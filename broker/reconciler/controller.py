"""A controller handles one concern of a job. Its result determines when it runs again; `Agenda` schedules all of them.

So no controller keeps track of its last run, of failures in a row, or of clocks that are set back.
"""

import logging
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from broker.core.errors import BrokerError, StoreProblem
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.events.wait_reasons import WaitReason, same_reason
from broker.core.market.offers import MoneyKind
from broker.ledger.entries import Balance, Sum
from broker.ledger.journal import StaleJobView
from broker.ledger.meter import Meter
from broker.store.store import Store, append_if


def note_wait(journal: Store, view: JobView, reason: WaitReason, now: datetime) -> bool:
    """Record why the job waits, unless the reason is on record already. Returns False: a note alone changes no
    decision."""
    if not same_reason(reason, view.waiting):
        append_if(journal, view, [(None, ev.NothingFeasible(reason=reason))], now)
    return False


@dataclass(frozen=True, slots=True)
class KnownMoney:
    """A job's money on record: the sums of its entries, the meters of its attempts by number, and its balances with the
    dates of its hold."""

    sums: Sequence[Sum]
    meters: Mapping[int, Meter]
    balances: Mapping[MoneyKind, Balance]


@dataclass(frozen=True, slots=True)
class JobContext:
    """The input of a controller: a job's view, its balances and the time (UTC).

    ``attempt``: the attempt concerned, if any. ``cause``: why the attempt is to be abandoned; None if it is to
    continue. ``known``: the job's money as last read from the store; None if it has to be read.
    """

    view: JobView
    now: datetime
    money: Mapping[MoneyKind, Balance] = field(default_factory=dict)
    attempt: AttemptView | None = None
    cause: Cause | None = None
    known: KnownMoney | None = None

    @property
    def key(self) -> str:
        return self.view.id if self.attempt is None else self.attempt.key


class RetryReason(Enum):
    """Why a controller retries later."""

    NO_PLACE = "no place for the job was found"
    NOT_ENDED = "an engine fails to end a machine"
    DEFECT = "the controller failed unexpectedly"


@dataclass(frozen=True, slots=True)
class BackOff:
    """The wait after the first failure, doubled after each further one in a row up to ``longest``. Broker time."""

    first: timedelta
    longest: timedelta

    def after(self, failures: int) -> timedelta:
        """The wait after that many failures in a row."""
        return min(self.first * (1 << min(failures - 1, 16)), self.longest)


BACK_OFFS: Mapping[RetryReason, BackOff] = {
    RetryReason.NO_PLACE: BackOff(timedelta(seconds=15), timedelta(seconds=15)),
    RetryReason.NOT_ENDED: BackOff(timedelta(seconds=5), timedelta(minutes=5)),
    RetryReason.DEFECT: BackOff(timedelta(seconds=5), timedelta(minutes=5)),
}


@dataclass(frozen=True, slots=True)
class AtRest:
    """Nothing to do before ``until`` (UTC; None: never), unless the value of `Controller.goes_by` changes earlier."""

    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class NextLook:
    """Run again with the next tick."""


@dataclass(frozen=True, slots=True)
class TryLater:
    """The step failed; run it again after the back-off of that reason."""

    reason: RetryReason


@dataclass(frozen=True, slots=True)
class DecideAnew:
    """The job's events changed or must be read again: decide the next step again at once.

    The controller need not run before ``rests_until`` (UTC; None: it may run at once).
    """

    rests_until: datetime | None = None


ControllerResult = AtRest | NextLook | TryLater | DecideAnew


class Controller(Protocol):
    """One concern of a job."""

    def goes_by(self, about: JobContext) -> Hashable | None:
        """The value, besides time, on which the result depends: if it changes, the controller runs at once. None: the
        job does not concern it. Must be fast: it is called for each job in each tick."""

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Act. Raises `StaleJobView`, and `BrokerError` for failures that the next tick may overcome."""

    def forget(self, key: str) -> None:
        """Drop the state of the job or attempt with that key: it is over."""
        return


@dataclass(frozen=True, slots=True)
class _Entry:
    goes_by: Hashable
    since: datetime
    until: datetime | None
    failures: int = 0

    def rests(self, goes_by: Hashable, now: datetime) -> bool:
        """Whether it is too early to run again. If the clock was set back, it is not."""
        return self.goes_by == goes_by and self.since <= now and (self.until is None or now < self.until)


class Agenda:
    """Schedules when each controller runs again for each job or attempt. Kept in memory only: a new process runs all at
    once."""

    def __init__(self, back_offs: Mapping[RetryReason, BackOff] = BACK_OFFS) -> None:
        self._back_offs = back_offs
        self._entries: dict[Controller, dict[str, _Entry]] = defaultdict(dict)

    def ask(self, controller: Controller, about: JobContext) -> bool:
        """Run the controller if it is due; returns whether to decide the job's next step again. Raises what the
        controller raises."""
        entries, key, now = self._entries[controller], about.key, about.now
        goes_by = controller.goes_by(about)
        if goes_by is None:
            entries.pop(key, None)
            return False
        previous = entries.get(key)
        if previous is not None and previous.rests(goes_by, now):
            return False
        failures = 1 + (previous.failures if previous is not None else 0)
        # This entry remains if the controller raises an unexpected exception.
        entries[key] = self._later(RetryReason.DEFECT, goes_by, now, failures)
        try:
            result = controller.reconcile(about)
        except (BrokerError, StaleJobView):
            del entries[key]
            raise
        match result:
            case AtRest(until) | DecideAnew(datetime() as until):
                entries[key] = _Entry(goes_by, now, until)
            case TryLater(reason):
                entries[key] = self._later(reason, goes_by, now, failures)
            case NextLook() | DecideAnew():
                del entries[key]
        return isinstance(result, DecideAnew)

    def _later(self, reason: RetryReason, goes_by: Hashable, now: datetime, failures: int) -> _Entry:
        return _Entry(goes_by, now, now + self._back_offs[reason].after(failures), failures)

    def forget(self, key: str) -> None:
        """Drop the state of the job or attempt with that key: it is over."""
        for controller, entries in self._entries.items():
            entries.pop(key, None)
            controller.forget(key)


log = logging.getLogger(__name__)


@contextmanager
def isolate_errors(step: str) -> Iterator[None]:
    """Log an exception of the enclosed step and continue after it. ``step``: the step's name in the log.

    Passes on `StoreProblem`, as no step works without the store, and `StaleJobView`, as the decision was based on an
    earlier state of the job.
    """
    try:
        yield
    except (StoreProblem, StaleJobView):
        raise
    except BrokerError as error:
        log.warning("%s: %s", step, error)
    except Exception:  # a bug in one step, of gpubroker or a plug-in, must not prevent the others
        log.exception("%s: left for the next tick", step)
