"""A controller looks after one concern of a job. Its answer says when it is asked again; `Agenda` keeps that for all.

So no controller remembers when it was asked last, how often something failed in a row, or what a clock showed before it
was set back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from broker.core.errors import BrokerError
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.market.offers import MoneyKind
from broker.ledger.entries import Balance
from broker.ledger.journal import NoLongerCurrent


@dataclass(frozen=True, slots=True)
class JobContext:
    """What a controller is asked about: a job as it was read, its balances and the time (UTC). ``attempt``: the one in
    question, where the concern is one attempt's; ``cause``: why that is to be let go, None where it is to go on."""

    view: JobView
    now: datetime
    money: Mapping[MoneyKind, Balance] = field(default_factory=dict)
    attempt: AttemptView | None = None
    cause: Cause | None = None

    @property
    def key(self) -> str:
        return self.view.id if self.attempt is None else self.attempt.key


class Trouble(Enum):
    """Why something is tried again later."""

    NO_PLACE = "no place for the job was found"
    NOT_ENDED = "an engine fails to end a machine"
    DEFECT = "the controller failed as nobody expects"


@dataclass(frozen=True, slots=True)
class BackOff:
    """How long to wait after one failure, and at most; each further failure in a row doubles it. Broker time."""

    first: timedelta
    longest: timedelta

    def after(self, failures: int) -> timedelta:
        """The wait after so many failures in a row."""
        return min(self.first * (1 << min(failures - 1, 16)), self.longest)


BACK_OFFS: Mapping[Trouble, BackOff] = {
    Trouble.NO_PLACE: BackOff(timedelta(seconds=15), timedelta(seconds=15)),
    Trouble.NOT_ENDED: BackOff(timedelta(seconds=5), timedelta(minutes=5)),
    Trouble.DEFECT: BackOff(timedelta(seconds=5), timedelta(minutes=5)),
}


@dataclass(frozen=True, slots=True)
class AtRest:
    """Nothing to do before ``until`` (UTC; None: for ever), unless what the controller goes by changes."""

    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class NextLook:
    """To be asked again with the next look."""


@dataclass(frozen=True, slots=True)
class TryLater:
    """It failed; to be tried again after the back-off of that trouble."""

    trouble: Trouble


@dataclass(frozen=True, slots=True)
class DecideAnew:
    """The job's events changed, or must be read again: what to do next is decided anew at once. ``rests_until``: before
    that the controller need not be asked again (UTC; None: it may be asked at once)."""

    rests_until: datetime | None = None


ControllerResult = AtRest | NextLook | TryLater | DecideAnew


class Controller(Protocol):
    """One concern of a job."""

    def goes_by(self, about: JobContext) -> Hashable | None:
        """What the answer depends on beside the time: where it changes, the controller is asked at once. None: the job
        is no concern of it. Quick, as it is called with each look at each job."""
        ...

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Do what is to be done by now. Raises `NoLongerCurrent`, and `BrokerError` for what may work with the next
        look."""
        ...

    def forget(self, key: str) -> None:
        """The job or attempt of that key is over."""
        return


@dataclass(frozen=True, slots=True)
class _Entry:
    goes_by: Hashable
    since: datetime
    until: datetime | None
    failures: int = 0

    def rests(self, goes_by: Hashable, now: datetime) -> bool:
        """Whether it is too early to ask again. A clock that was set back ends the rest: nobody waits for the time that
        it showed before."""
        return self.goes_by == goes_by and self.since <= now and (self.until is None or now < self.until)


class Agenda:
    """When each controller is asked again about each job or attempt. Remembered by this process only: a new process
    asks at once."""

    def __init__(self, back_offs: Mapping[Trouble, BackOff] = BACK_OFFS) -> None:
        self._back_offs = back_offs
        self._entries: dict[Controller, dict[str, _Entry]] = defaultdict(dict)

    def ask(self, controller: Controller, about: JobContext) -> bool:
        """Ask where it is time; whether to decide anew what to do next with the job. Raises what the controller
        raises."""
        entries, key, now = self._entries[controller], about.key, about.now
        goes_by = controller.goes_by(about)
        if goes_by is None:
            entries.pop(key, None)
            return False
        before = entries.get(key)
        if before is not None and before.rests(goes_by, now):
            return False
        failures = 1 + (before.failures if before is not None else 0)
        # This stands where a defect raises something.
        entries[key] = self._later(Trouble.DEFECT, goes_by, now, failures)
        try:
            answer = controller.reconcile(about)
        except (BrokerError, NoLongerCurrent):
            del entries[key]
            raise
        match answer:
            case AtRest(until) | DecideAnew(datetime() as until):
                entries[key] = _Entry(goes_by, now, until)
            case TryLater(trouble):
                entries[key] = self._later(trouble, goes_by, now, failures)
            case NextLook() | DecideAnew():
                del entries[key]
        return isinstance(answer, DecideAnew)

    def _later(self, trouble: Trouble, goes_by: Hashable, now: datetime, failures: int) -> _Entry:
        return _Entry(goes_by, now, now + self._back_offs[trouble].after(failures), failures)

    def forget(self, key: str) -> None:
        """The job or attempt of that key is over."""
        for controller, entries in self._entries.items():
            entries.pop(key, None)
            controller.forget(key)
