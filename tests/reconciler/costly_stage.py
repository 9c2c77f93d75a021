"""A stage on which launches are delayed, and judged right before they are made."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from broker.core.errors import Unreachable
from broker.core.events.outcomes import AttemptState, Cause
from broker.core.job.jobs import Job, Work
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Answer
from broker.core.ports import Launch
from broker.core.values.burns import Burn
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags
from broker.reconciler.admission.launch_check import Validity
from broker.reconciler.admission.records import hold_entries
from broker.store import Store
from policies.loader import load
from tests.reconciler.rehearsal import MINUTE, Stage, StageEngine, offer

DAY = timedelta(days=1)
HOLD = "102"  # an hour at $98, and what stopping takes
BUDGET = "budgets: [{name: money, amount: $AMOUNT, period: month}]\n"
FREEZE = "guardrails: [{name: winter, freeze: {from: 2026-01-01, to: 2027-01-01}}]\n"
ELSEWHERE = "guardrails: [{name: place, allowed_locations: {providers: {deny: stage}}}]\n"


def policy(said: str = "", amount: str = "1000") -> str:
    return "version: 1\npolicy: t\n" + BUDGET.replace("AMOUNT", amount) + said


@dataclass
class Recording(StageEngine):
    """Keeps the launches that reached it without a judgement that still counts: by the policies in force at that
    moment, and recent enough."""

    store: Store | None = None
    in_force: Callable[[], str] = lambda: ""
    unjudged: list[str] = field(default_factory=list)

    def submit(self, launch: Launch) -> str:
        assert self.store is not None
        job_id, number = launch.key.rsplit("-", 1)
        with self.store.reading() as look:
            last = look.last_judged(job_id, int(number))
        recent = last is not None and timedelta(0) <= self.clock.now() - last.at <= Validity().judgement
        if last is None or not recent or (last.answer, last.policy_version) != (Answer.ALLOW, self.in_force()):
            self.unjudged.append(launch.key)
        return super().submit(launch)


class CostlyStage(Stage):
    """One machine at $98 an hour, policies from files, and an engine that records how it is called."""

    engine: Recording

    def __init__(self, store: Store, clock: ManualClock) -> None:
        super().__init__(store, clock)
        self.engine = Recording(clock, store=store, in_force=lambda: self.policy.version)
        self.offers = [offer(clock.now(), "od", price="98")]
        self.apply(policy())

    def apply(self, text: str) -> None:
        self.policy = load({"t.yaml": text})

    def requested(self) -> None:
        job = Job(name="j", run="x", work=Work(duration=timedelta(hours=1)), max_duration=timedelta(hours=1))
        self.submit(job, hold=HOLD, hours=1)

    def costs(self, price: str) -> None:
        self.offers = [offer(self.clock.now(), "od", price=price)]

    def another_job_holds(self, amount: str) -> None:
        """Some other job holds so much of the month in which the stage's clock stands."""
        now = self.clock.now()
        burn = Burn.evenly(Money.usd(amount), (now, now + timedelta(hours=1)))
        with self.store.writing() as tx:
            tx.post(hold_entries(Tags("other", "bob"), {}, {MoneyKind.CASH: burn}, Movement.HOLD, 1))

    @property
    def causes(self) -> list[Cause | None]:
        return [attempt.cause for attempt in self.view.attempts]


def engine_away(market: CostlyStage) -> None:
    market.engine.silent = Unreachable("time-out")


def folder_away(market: CostlyStage) -> None:
    market.mailbox.broken = Unreachable("503")


def back(market: CostlyStage) -> None:
    market.engine.silent = market.mailbox.broken = None


@dataclass(frozen=True)
class Delay:
    """For how long the launch is delayed, by what, and whether the broker is another process then."""

    of: timedelta
    by: Callable[[CostlyStage], None] = engine_away
    restart: bool = False

    def begin(self, market: CostlyStage) -> None:
        self.by(market)
        market.requested()
        view = market.pass_time()
        assert view.attempts[0].state is AttemptState.REQUESTED

    def end(self, market: CostlyStage) -> None:
        """The time passes, what was away is back, and the broker looks as often as it likes."""
        market.pass_time(self.of)
        assert market.engine.submitted == []
        back(market)
        if self.restart:
            market.restart()
        market.offers = [replace(one, as_of=market.clock.now()) for one in market.offers]
        market.pass_time(timedelta(seconds=5), times=6)


DELAYS = {
    "minutes": Delay(5 * MINUTE),
    "minutes, restarted": Delay(5 * MINUTE, restart=True),
    "minutes, run folder": Delay(5 * MINUTE, folder_away),
    "20 days": Delay(20 * DAY),
    "20 days, restarted": Delay(20 * DAY, restart=True),
    "20 days, run folder": Delay(20 * DAY, folder_away, restart=True),
}
