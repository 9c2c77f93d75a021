"""An approval covers what it was asked about, through a whole life: asked, approved, launched, preempted, moved."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.app.jobs import approvals
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.extension import extend
from broker.app.jobs.reasons import wait_text
from broker.app.jobs.submit import submit
from broker.app.service import passes
from broker.app.wiring import Broker
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.placement.planner import PlanInputs
from broker.placement.pricing.conditions import Conditions
from broker.settings import Settings
from cli import registries
from tests.actors import ANN, EVERYBODYS, OLGA, with_clock
from tests.empty_store import empty_store
from tests.reconciler.rehearsal import StageEngine, StageMailbox

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)
MONEY = "version: 1\npolicy: t\nbudgets: [{name: all, amount: '$100,000', period: month}]\n"
ASKS = "action: ask, approvers: [olga], expires: 6h"
JOB = """\
name: train
run: 'true'
resources: {accelerators: 'H100:8', capacity_types: [on_demand, spot]}
max_duration: 5h
work: 4h
data: {location: gcp/eu-1, size: 0GB, sensitive: true}
"""


def offer(provider: str, region: str, price: str, capacity: CapacityType = CapacityType.SPOT) -> Offer:
    return Offer(
        provider, region, None, "box", "H100", 8, capacity, Money.usd(price), NOW, "test", cpus=64, memory_gib=512,
        availability=Availability.AVAILABLE, engine="stage", interruption_rate=0.01,
    )  # fmt: skip


HOME = offer("gcp", "eu-1", "98")  # $12.25 per GPU-hour


class ApprovalSite:
    """A broker on a clock set by hand, one engine in memory, and the offers that a test says."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock(NOW)
        self.broker = with_clock(broker, self.clock)
        self.engine, self.mailbox = StageEngine(self.clock), StageMailbox(self.clock)
        self.offers = [HOME]

        def market(*_: Any, **__: Any) -> PlanInputs:
            now = self.clock.now()
            offers = [replace(one, as_of=now) for one in self.offers]
            return PlanInputs(offers, Conditions(engines={"stage": frozenset({"several_nodes"})}), {})

        for place in ("jobs.preview", "jobs.queue", "service.passes"):
            monkeypatch.setattr(f"broker.app.{place}.market_for", market)
        monkeypatch.setattr("broker.app.service.passes.run_folders", lambda broker: self.mailbox)
        monkeypatch.setattr(self.mailbox.__class__, "usage", lambda *_: (), raising=False)
        monkeypatch.setattr(Broker, "engine", lambda _, name: self.engine)

    def guard(self, entry: str, budget: str = "$100,000") -> None:
        files = {"t.yaml": f"{MONEY.replace('$100,000', budget)}guardrails: [{{name: g, {entry}, {ASKS}}}]\n"}
        self.broker.store.activate_policy(files, by="test")

    def submitted(self) -> JobView:
        return submit(self.broker, parse_job(JOB, file="job.yaml", now=self.clock.now()), by=ANN)

    def approve(self, job_id: str) -> None:
        approvals.grant(self.broker, job_id, by=OLGA)

    def look(self, times: int = 1, by: timedelta = timedelta(seconds=20)) -> JobView:
        reconciler = passes.reconciler(self.broker)
        for _ in range(times):
            self.clock.advance(by)
            reconciler.tick()
        (view,) = self.views()
        return view

    def views(self) -> list[JobView]:
        with self.broker.store.reading() as look:
            return list(look.jobs())

    def runs(self) -> JobView:
        """Asked, approved, launched; the command runs."""
        view = self.submitted()
        assert view.state is JobState.AWAITING_APPROVAL
        self.approve(view.id)
        view = self.look()
        assert view.latest is not None
        assert self.engine.submitted == [view.latest.key]
        self.mailbox.starts(view.latest.key)
        view = self.look()
        assert view.state is JobState.RUNNING
        return view

    def preempted(self) -> None:
        self.engine.take_back(self.engine.submitted[-1])


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApprovalSite]:
    sqlite = request.param == "sqlite"
    url = empty_store(tmp_path / "store.db") if sqlite else str(request.getfixturevalue("new_postgres_store")())
    broker = Broker(Settings(home=tmp_path, store=url, runs=(tmp_path / "runs").as_uri()), registries(), EVERYBODYS)
    yield ApprovalSite(broker, monkeypatch)
    broker.store.close()


PLACES = {
    "location": "allowed_locations: {providers: [owned]}",
    "sensitive data": "sensitive_data: on_premises",
    "residency": "data_residency: {run_in: 'owned/*'}",
    "price": "max_price_per_gpu_hour: $4",
    "condition": "max_job_cost: $5, when: 'offer.region != \"nowhere\"'",
}


@pytest.mark.parametrize("entry", PLACES.values(), ids=PLACES)
def test_another_place_after_a_preemption_is_asked_again(site: ApprovalSite, entry: str) -> None:
    site.guard(entry)
    view = site.runs()
    site.preempted()
    site.offers = [offer("aws", "cn-1", "98")]
    view = site.look(3)
    assert view.state is JobState.AWAITING_APPROVAL
    assert len(site.engine.submitted) == 1, "not before somebody says so"
    assert view.asked is not None
    (asked,) = approvals.requests(site.broker)
    question, granted = asked.asked.questions[0], view.grants[0].facts
    assert granted is not None
    assert question.facts not in granted.values(), "it is about another place"

    site.approve(view.id)
    assert site.look(2).attempts[-1].placement.offer.provider == "aws"
    assert len(site.engine.submitted) == 2


@pytest.mark.parametrize("entry", PLACES.values(), ids=PLACES)
def test_the_same_place_after_a_preemption_is_not_asked_again(site: ApprovalSite, entry: str) -> None:
    site.guard(entry)
    site.runs()
    site.preempted()
    view = site.look(3)
    assert view.asked is None
    assert len(site.engine.submitted) == 2


def test_what_was_approved_is_taken_before_a_better_place_that_was_not(site: ApprovalSite) -> None:
    site.guard(PLACES["location"])
    site.runs()
    site.preempted()
    site.offers = [offer("aws", "cn-1", "50"), HOME]
    view = site.look(3)
    assert view.asked is None
    assert view.attempts[-1].placement.offer.provider == "gcp"


def test_a_higher_price_is_asked_again(site: ApprovalSite) -> None:
    """Approved at $12.25 per GPU-hour, $120 after a preemption, in the same place and within the amount."""
    site.guard(PLACES["price"])
    view = site.runs()
    assert covered_by(view) >= {"at most $12.25 per GPU-hour", "gcp/eu-1"}
    site.preempted()
    site.offers = [offer("gcp", "eu-1", "960")]
    view = site.look(3)
    assert len(site.engine.submitted) == 1
    assert view.asked is not None or view.state is JobState.PAUSED_BUDGET


def covered_by(view: JobView) -> set[str]:
    from broker.core.policy.coverage import facts_in_words

    return {said for grant in view.grants for facts in (grant.facts or {}).values() for said in facts_in_words(facts)}


def test_a_rule_about_money_lets_it_move(site: ApprovalSite) -> None:
    site.guard("max_job_cost: $5")
    site.runs()
    site.preempted()
    site.offers = [offer("aws", "cn-1", "90")]
    view = site.look(3)
    assert view.asked is None
    assert view.attempts[-1].placement.offer.provider == "aws"


def test_what_waited_for_its_engine_is_asked_again_at_another_price(site: ApprovalSite) -> None:
    """Approved and requested; then the engine is away, and the price rises."""
    from broker.core.errors import Unreachable

    site.guard(PLACES["price"])
    view = site.submitted()
    site.approve(view.id)
    site.engine.silent = Unreachable("time-out")
    site.look()
    site.offers = [offer("gcp", "eu-1", "98.08")]
    site.engine.silent = None
    view = site.look(3, by=timedelta(minutes=2))
    assert site.engine.submitted == []
    assert view.attempts[0].cause is Cause.REQUEST_EXPIRED
    assert view.asked is not None


def test_a_standing_grant_covers_other_places_until_it_is_taken_back(site: ApprovalSite) -> None:
    site.guard(PLACES["location"])
    until = site.clock.now() + timedelta(days=3)
    given = approvals.give_standing(
        site.broker, approvals.GrantRequest(Money.usd(5000), until, ("g",), users=("ann",)), by=OLGA
    )
    view = site.submitted()
    site.look()
    site.mailbox.starts(site.engine.submitted[0])
    site.look()
    site.preempted()
    site.offers = [offer("aws", "us-1", "98")]
    assert site.look(3).attempts[-1].placement.offer.provider == "aws"

    approvals.revoke(site.broker, given.number, by=OLGA)
    site.mailbox.starts(site.engine.submitted[1])
    assert site.look(3).state is JobState.RUNNING, "what was launched under it goes on"
    site.preempted()
    assert site.look(3).attempts[-1].placement.offer.provider == "aws", "where it was let through it may go on"
    site.mailbox.starts(site.engine.submitted[2])
    site.look()
    site.preempted()
    site.offers = [offer("gcp", "cn-1", "98")]
    view = site.look(3)
    assert (view.state, len(site.engine.submitted)) == (JobState.AWAITING_APPROVAL, 3)


def test_money_that_waits_for_an_answer_pays_for_no_other_place(site: ApprovalSite) -> None:
    """More is asked for a job that runs; it is preempted before anybody answers, and only dearer machines are left."""
    site.guard("max_job_duration: 5h", budget="$900")
    view = site.submitted()
    site.look()
    site.mailbox.starts(site.engine.submitted[0])
    view = site.look()
    extend(site.broker, view, JobLimits(max_duration=timedelta(hours=9)), by=ANN)
    site.preempted()
    site.offers = [offer("gcp", "eu-1", "170")]  # $850 for five hours: $493 is held, and $390 waits for an answer
    view = site.look(3)
    assert len(site.engine.submitted) == 1
    assert view.asked is not None, "still nobody answered"
    assert "more money is needed and was refused: budget all of $900" in wait_text(view.waiting)


def test_a_standing_grant_that_lets_a_delayed_launch_through_is_used(site: ApprovalSite) -> None:
    from broker.core.errors import Unreachable

    site.guard("max_job_cost: $100000")
    site.submitted()
    site.engine.silent = Unreachable("time-out")
    site.look()
    site.guard(PLACES["location"])
    until = site.clock.now() + timedelta(days=3)
    approvals.give_standing(
        site.broker, approvals.GrantRequest(Money.usd(5000), until, ("g",), users=("ann",)), by=OLGA
    )
    site.engine.silent = None
    view = site.look()
    assert len(site.engine.submitted) == 1
    assert [(grant.by, grant.rules) for grant in view.grants] == [("olga", ("g",))]
    (standing,) = approvals.standing_grants(site.broker)
    assert standing.used > Money.usd(400)
