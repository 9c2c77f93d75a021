"""Calls controllers as the reconciler does, and defines controllers for tests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import IdleLimit
from broker.ledger.entries import Balance
from broker.reconciler.controller import Agenda, Controller, ControllerResult, DecideAnew, JobContext, NextLook


@dataclass
class Asking:
    """Runs a controller for jobs if it is due; returns whether to decide the next step again."""

    controller: Controller
    now: Callable[[], datetime]
    agenda: Agenda = field(default_factory=Agenda)

    def __call__(self, view: JobView, money: Mapping[MoneyKind, Balance] | None = None) -> bool:
        return self.agenda.ask(self.controller, JobContext(view, self.now(), money or {}))


class AskedAlways(Controller):
    """A controller that runs in each tick. ``does``: returns whether it changed something."""

    def __init__(self, does: Callable[[JobView], bool]) -> None:
        self._does = does

    def goes_by(self, about: JobContext) -> bool:
        return True

    def reconcile(self, about: JobContext) -> ControllerResult:
        return DecideAnew() if self._does(about.view) else NextLook()


def noted(asked: list[str]) -> Callable[[JobView], bool]:
    """Records the job for which it is called, and changes nothing."""

    def note(view: JobView) -> bool:
        asked.append(view.id)
        return False

    return note


@dataclass
class FixedLimits:
    """Limits that nodes enforce, set by the test."""

    idle: Sequence[IdleLimit] = ()
    longest: timedelta | None = None

    def idle_limits(self, view: JobView) -> Sequence[IdleLimit]:
        return self.idle

    def max_unattended(self, job: Job) -> timedelta | None:
        return self.longest

    def future_period_edges(self, view: JobView, kind: MoneyKind) -> Sequence[datetime]:
        return ()
