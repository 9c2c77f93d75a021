"""What a view keeps of attempts that never had a machine: it stays small, and says the same as all of them would."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from pydantic import TypeAdapter

from broker.core.events import events as ev
from broker.core.events.agent_events import Claimed, CommandStarted
from broker.core.events.events import Event
from broker.core.events.lifecycle import MAX_EMPTY_ATTEMPTS, advance, every_attempt, fold
from broker.core.events.outcomes import Cause
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.money import Money
from broker.reconciler.pools import avoided_pools

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def placement(zone: str = "z") -> Placement:
    offer = Offer("p", "r", zone, "i", None, 0, CapacityType.SPOT, Money.usd("1"), NOW, "s")
    return Placement(offer, 1, Money.usd("1"), Money.usd("1"), (), None, None, 1.0, 1.0, 0.0)


class JobLife:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.at = NOW
        self.say(None, ev.Submitted(job=Job(name="j", run="x"), user="ann", max_duration_seconds=3600))

    def next(self) -> int:
        """The number of the next attempt."""
        return next((e.attempt + 1 for e in reversed(self.events) if e.attempt is not None), 1)

    def say(self, attempt: int | None, *bodies: ev.EventBody) -> None:
        for body in bodies:
            self.events.append(Event("j", len(self.events) + 1, self.at, attempt, body))

    def tries(self, times: int, cause: Cause = Cause.NO_CAPACITY, zone: str = "z", every: timedelta = MINUTE) -> None:
        """So many attempts that come to nothing."""
        for _ in range(times):
            number = self.next()
            self.say(number, ev.LaunchRequested(key=f"j-{number}", engine="e", placement=placement(zone)))
            self.say(number, ev.AttemptEnded(cause=cause, evidence="sold out"))
            self.at += every

    def runs(self, cause: Cause = Cause.PREEMPTED, zone: str = "z") -> None:
        """An attempt with a machine and an agent."""
        number = self.next()
        self.say(number, ev.LaunchRequested(key=f"j-{number}", engine="e", placement=placement(zone)))
        self.say(number, ev.Launched(handle="h"), ev.MachineUp(since=self.at), Claimed(), CommandStarted())
        self.at += MINUTE
        self.say(number, ev.AttemptEnded(cause=cause), ev.MachineGone(gone_at=self.at))

    @property
    def view(self) -> JobView:
        return fold(self.events)


def views(events: list[Event]) -> Iterator[JobView]:
    view = None
    for event in events:
        view = advance(view, event)
        yield view


def test_few_are_kept_in_full_and_the_rest_is_counted() -> None:
    life = JobLife()
    life.tries(3)
    life.runs()
    life.tries(200)
    view = life.view
    assert view.attempt_count == 204
    assert [a.number for a in view.attempts] == [4, *range(196, 205)], "what had a machine, and the newest others"
    assert view.folded == 204 - len(view.attempts)
    assert view.latest is not None
    assert view.latest.number == 204
    assert max(len(one.attempts) for one in views(life.events)) == MAX_EMPTY_ATTEMPTS + 2


def test_two_thousand_refusals_leave_a_view_of_some_kilobytes() -> None:
    life = JobLife()
    life.tries(2_000, every=5 * MINUTE)
    view = life.view
    assert view.attempt_count == 2_000
    assert len(TypeAdapter(JobView).dump_json(view)) < 16_000


def test_the_events_tell_of_every_attempt() -> None:
    life = JobLife()
    life.tries(30)
    life.runs()
    life.tries(30)
    found = every_attempt(life.events)
    assert [a.number for a in found] == list(range(1, 62))
    assert found[4].evidence == "sold out"
    assert found[30].cause is Cause.PREEMPTED


def test_what_may_have_a_machine_or_says_how_the_job_went_is_never_folded() -> None:
    life = JobLife()
    for cause in (Cause.EXIT_STATUS, Cause.PREEMPTED, Cause.MACHINE_LOST, Cause.UNATTENDED):
        life.runs(cause)
    life.say(5, ev.LaunchRequested(key="j-5", engine="e", placement=placement()), ev.Launched(handle="h"))
    life.say(5, ev.MachineUp(since=life.at), ev.AttemptEnded(cause=Cause.LAUNCH_FAILED))
    life.tries(50)
    assert [a.number for a in life.view.attempts][:5] == [1, 2, 3, 4, 5], "the fifth may still have a machine"
    life.say(5, ev.MachineGone(gone_at=life.at))
    assert [a.number for a in life.view.attempts][:5] == [1, 2, 3, 4, 5], "and that it had one is to be paid"
    assert (life.view.interruptions, life.view.failures) == (2, 1)


def test_a_pool_where_an_agent_spoke_is_as_good_as_new() -> None:
    life = JobLife()
    life.tries(3, every=61 * MINUTE)
    life.tries(1, zone="other", every=timedelta(0))
    life.runs()
    assert list(avoided_pools(life.view, life.at)) == ["p/r/other/i/spot"] or "other" in str(
        avoided_pools(life.view, life.at)
    )
    life.tries(1, every=timedelta(0))
    (rest,) = [one for one in life.view.rests if one.pool == placement().offer.pool]
    assert rest.times == 1


def test_what_refused_long_ago_is_forgotten() -> None:
    life = JobLife()
    for zone in range(100):
        life.tries(1, zone=str(zone), every=10 * MINUTE)
    assert len(life.view.rests) == 100, "all were tried since the job last ran"
    life.runs()
    life.tries(1, zone="99")
    assert len(life.view.rests) == 11


def test_launches_that_failed_in_a_row_are_counted_however_many_are_kept() -> None:
    life = JobLife()
    life.tries(3, Cause.LAUNCH_FAILED)
    life.tries(5, Cause.NO_CAPACITY)
    life.tries(20, Cause.LAUNCH_FAILED)
    life.tries(20, Cause.NO_CAPACITY)
    assert life.view.failed_launches == 22, "the first in a pool cost nothing"
    life.runs()
    assert life.view.failed_launches == 0
    life.tries(2, Cause.LAUNCH_FAILED)
    life.say(None, ev.Extended(by="ann"))
    assert life.view.failed_launches == 0
