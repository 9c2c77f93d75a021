"""`action: ask` of a guardrail, from the submission to the answer: the money is held meanwhile, yes lets it go on, and
no or no answer gives the money back."""

from datetime import timedelta

import pytest

from broker.app.jobs import approvals, jobs
from broker.app.jobs.preview import Preview, preview
from broker.app.jobs.reasons import end_text, wait_text
from broker.app.jobs.submit import submit
from broker.app.service.passes import reconciler
from broker.app.wiring import Broker
from broker.core.events.outcomes import JobState
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.policy.policy import Answer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from tests.actors import ANN, OLGA, mid_month, with_clock
from tests.app.jobs.approving import held

MONEY = "version: 1\npolicy: t\nbudgets: [{name: pretend, amount: $100, period: month, counts: [sandbox]}]\n"
ASKS = "action: ask, approvers: [olga], expires: 6h"
COST = Money.usd(3)


@pytest.fixture
def clock() -> ManualClock:
    return mid_month()


@pytest.fixture
def broker(broker: Broker, clock: ManualClock) -> Broker:
    return with_clock(broker, clock)


def guard(broker: Broker, entry: str) -> None:
    broker.store.activate_policy({"t.yaml": f"{MONEY}guardrails:\n  - {{name: g, {entry}}}\n"}, by="test")


def job(broker: Broker) -> Job:
    text = "name: j\nrun: 'true'\nresources: {cpus: 1}\nmax_duration: 10h\nwork: 2h\nmax_cost: $3\n"
    return parse_job(f"{text}constraints: {{providers: [sandbox]}}\n", file="job.yaml", now=broker.clock.now())


def previewed(broker: Broker, entry: str) -> Preview:
    guard(broker, entry)
    return preview(broker, job(broker), by=ANN)


@pytest.fixture
def asked(broker: Broker, clock: ManualClock) -> str:
    """A job about which somebody is asked."""
    guard(broker, f"max_job_cost: $2.99, {ASKS}")
    view = submit(broker, job(broker), by=ANN)
    assert (view.state, view.attempts, held(broker, view.id)) == (JobState.AWAITING_APPROVAL, (), COST)
    assert view.asked is not None
    assert view.asked.approvers == ("olga",)
    assert view.asked.expires_at == clock.now() + timedelta(hours=6)
    assert "the job may cost $3.00; the limit is $2.99 per job" in wait_text(view.waiting)
    return view.id


@pytest.mark.parametrize(
    ("entry", "exit_code"),
    [
        ("max_job_cost: $2.99", 3),
        (f"max_job_cost: $2.99, {ASKS}", 6),
        (f"max_job_cost: $3, {ASKS}", 0),
        (f"max_job_duration: 9h, {ASKS}", 6),
        ("allowed_locations: {providers: [aws]}", 3),
        (f"allowed_locations: {{providers: [aws]}}, {ASKS}", 6),
        (f"working_hours: {{from: '00:00', to: '00:01', days: [mon]}}, {ASKS}", 6),
        (f"freeze: {{from: '2000-01-01', to: '9000-01-01'}}, {ASKS}", 6),
    ],
)
def test_it_is_asked_about_where_it_would_be_denied(broker: Broker, entry: str, exit_code: int) -> None:
    broker = with_clock(broker, ManualClock(broker.clock.now().replace(hour=12)))

    assert previewed(broker, entry).exit_code == exit_code


def test_a_yes_launches_it_and_nobody_is_asked_again(
    broker: Broker, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    approvals.grant(broker, asked, "worth it", by=OLGA)
    reconciler(broker).tick()

    assert jobs.find(broker, asked).attempts
    assert held(broker, asked) == COST
    with broker.store.reading() as look:
        assert [one.answer for one in look.decisions(job_id=asked)] == [Answer.ALLOW, Answer.ASK]


def test_a_no_gives_the_money_back(broker: Broker, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    after = approvals.refuse(broker, asked, "not this month", by=OLGA)

    assert (after.state, end_text(after.ending)) == (JobState.CANCELLED, "refused by olga: not this month")
    assert held(broker, asked) == Money.ZERO


def test_no_answer_gives_the_money_back(broker: Broker, asked: str, clock: ManualClock) -> None:
    clock.advance(timedelta(hours=6))
    reconciler(broker).tick()

    assert jobs.find(broker, asked).state is JobState.CANCELLED
    assert held(broker, asked) == Money.ZERO


def test_nobody_is_asked_where_something_else_will_do(broker: Broker) -> None:
    best = previewed(broker, "max_job_cost: $3").admission
    assert best is not None
    place = f"{best.placement.offer.provider}/{best.placement.offer.region}"
    seen = previewed(broker, f"allowed_locations: {{regions: {{deny: ['{place}']}}}}, {ASKS}")

    assert seen.exit_code == 0
    assert seen.admission is not None
    assert seen.admission.placement.offer.region != best.placement.offer.region


def test_approved_ahead_it_is_not_asked_about(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    guard(broker, f"max_job_cost: $2.99, {ASKS}")
    until = broker.clock.now() + timedelta(days=1)
    approvals.give_standing(broker, approvals.GrantRequest(Money.usd(4), until, rules=("g",), users=("ann",)), by=OLGA)

    assert submit(broker, job(broker), by=ANN).attempts
    second = submit(broker, job(broker), by=ANN)
    assert second.state is JobState.AWAITING_APPROVAL, "what is left of the $4 does not cover it"
