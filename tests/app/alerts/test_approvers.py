"""Whoever is to be told hears that somebody is asked: once, whoever looks, and again until it is delivered."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from pydantic import SecretStr

from broker.app.alerts import approvers, notify
from broker.app.jobs import approvals, jobs
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.extension import extend
from broker.app.jobs.submit import submit
from broker.app.service.passes import reconciler
from broker.app.wiring import Broker
from broker.core.errors import NotAllowed
from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.notices import Notice
from broker.core.policy.approvals import Question
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from tests.actors import ANN, OLGA, person, with_clock

POLICY = """\
version: 1
budgets: [{name: pretend, amount: $100, period: month, counts: [sandbox]}]
guardrails: [{name: dear, max_job_cost: $2, action: ask, approvers: [olga], expires: 6h}]
"""


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """Time stands still."""
    return with_clock(broker, ManualClock(broker.clock.now()))


@pytest.fixture
def sent(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[Notice]:
    """What was told."""
    told: list[Notice] = []

    def send(notice: Notice, address: object) -> str:
        told.append(notice)
        return ""

    monkeypatch.setattr(notify, "_send", send)
    broker.settings.notify = {"ops": SecretStr("json://nobody")}
    broker.store.activate_policy({"t.yaml": POLICY}, by="test")
    return told


def start(broker: Broker, cost: str = "$3") -> JobView:
    text = f"name: big\nrun: 'true'\nresources: {{cpus: 1}}\nmax_duration: 10h\nwork: 2h\nmax_cost: {cost}\n"
    job = parse_job(f"{text}constraints: {{providers: [sandbox]}}\n", file="job.yaml", now=broker.clock.now())
    return submit(broker, job, by=ANN)


def test_who_asks_for_what_and_what_to_type_is_told_once(
    broker: Broker, new_broker: Callable[[], Broker], sent: list[Notice]
) -> None:
    view = start(broker)
    (done,) = approvers.notify_approvers(broker, view)

    assert (done.ok, done.target) == (True, "ops")
    (notice,) = sent
    assert notice.title == "ann asks for $3.00 for big: olga may approve"
    assert "the job may cost $3.00; the limit is $2.00 per job" in notice.body
    assert "(t.yaml:3)" in notice.body
    assert f"gpubroker approvals grant {view.id}" in notice.body
    restarted = new_broker()
    restarted.settings.notify = broker.settings.notify
    assert approvers.notify_approvers(restarted, view) == []
    assert approvers.queue_notices(restarted) == []
    assert len(sent) == 1


def test_what_is_let_through_is_told_to_nobody(broker: Broker, sent: list[Notice]) -> None:
    assert approvers.notify_approvers(broker, start(broker, "$2")) == []
    assert approvers.queue_notices(broker) == []
    assert sent == []


def test_what_nobody_was_told_of_is_found_by_whoever_looks_after_jobs(broker: Broker, sent: list[Notice]) -> None:
    view = start(broker)
    assert [notice.key.rpartition("/")[0] for notice in approvers.queue_notices(broker)] == [f"approval/{view.id}"]
    assert approvers.queue_notices(broker) == []
    notify.deliver(broker.store, broker.clock, broker.settings.notify)
    assert len(sent) == 1


def test_more_that_is_asked_for_later_is_told_as_well(
    broker: Broker, sent: list[Notice], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = start(broker)
    approvers.notify_approvers(broker, view)
    approvals.grant(broker, view.id, by=OLGA)
    reconciler(broker).tick()
    clock = broker.clock
    assert isinstance(clock, ManualClock)
    clock.advance(timedelta(minutes=1))
    asked = extend(
        broker,
        jobs.find(broker, view.id),
        JobLimits(max_cost=Money.usd(9), max_duration=timedelta(hours=48)),
        by=ANN,
    )
    approvers.notify_approvers(broker, asked)
    assert [notice.title for notice in sent] == [
        "ann asks for $3.00 for big: olga may approve", "ann asks for $9.00 for big: olga may approve",
    ]  # fmt: skip


def test_more_that_what_runs_asks_for_by_itself_is_told_to_those_who_may_approve_it(
    broker: Broker, sent: list[Notice]
) -> None:
    view = start(broker, "$2")
    need = Question(rule="dear", because="it may cost $2.50", source="t.yaml:3", approvers=("olga",))
    runs_on = ev.ApprovalAsked(questions=(need,), total=Money.usd("2.5"), extension=True, because=need.because)
    with broker.store.writing() as tx:
        assert tx.append(view.id, [(None, runs_on)], broker.clock.now()).state is not JobState.AWAITING_APPROVAL

    (notice,) = approvers.queue_notices(broker)
    assert notice.title == "ann needs $2.50 for big to go on: olga may approve"
    assert f"gpubroker approvals grant {view.id}" in notice.body
    assert approvers.queue_notices(broker) == [], "once"
    with broker.store.writing() as tx:
        tx.append(view.id, [(None, ev.ApprovalGiven(by="olga", rules=("dear",)))], broker.clock.now())
    assert approvers.queue_notices(broker) == []


def test_a_mail_server_that_is_away_stops_nobody_and_is_tried_again(
    broker: Broker, sent: list[Notice], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = start(broker)
    with monkeypatch.context() as away:
        away.setattr(notify, "_send", lambda notice, address: "the service cannot be reached")
        (failed,) = approvers.notify_approvers(broker, view)
    assert (failed.ok, failed.error) == (False, "the service cannot be reached")
    (kept,) = approvers.notices_by_job(broker, [view])[view.id]
    assert (kept.tries, kept.delivered_at) == (1, None)
    clock = broker.clock
    assert isinstance(clock, ManualClock)
    clock.advance(timedelta(minutes=1))
    notify.deliver(broker.store, broker.clock, broker.settings.notify)
    assert len(sent) == 1
    (kept,) = approvers.notices_by_job(broker, [view])[view.id]
    assert kept.delivered_at is not None


def test_without_targets_nothing_is_kept(broker: Broker, sent: list[Notice]) -> None:
    broker.settings.notify = {}
    view = start(broker)
    assert approvers.notify_approvers(broker, view) == []
    assert approvers.notices_by_job(broker, [view]) == {}


def test_whom_a_pattern_matches_but_no_team_lists_is_not_asked_and_may_not_answer(
    broker: Broker, sent: list[Notice], monkeypatch: pytest.MonkeyPatch
) -> None:
    teams = "teams: {finance: {members: [olga, avery]}}\n"
    broker.store.activate_policy({"t.yaml": POLICY.replace("[olga]", "['av*']") + teams}, by="test")
    view = start(broker)
    approvers.notify_approvers(broker, view)
    assert sent[0].title.endswith("avery may approve")
    with pytest.raises(NotAllowed, match="you are avril, and not among those who approve") as refused:
        approvals.grant(broker, view.id, by=person("avril"))
    assert refused.value.hint == "ask avery"
    assert approvals.grant(broker, view.id, by=person("avery")).asked is None
