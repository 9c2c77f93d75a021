"""More money or time for a job is judged, and what was said is on record with all it was said about: `policy explain`
shows it, and it can be judged again."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from broker.app.jobs import approvals, jobs
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.extension import extend
from broker.app.jobs.submit import submit
from broker.app.policy.replay import PolicyReplay, replay
from broker.app.wiring import Broker
from broker.core.errors import NotAllowed
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import MoneyEnded
from broker.core.job.file import parse_job
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from policies.loader import load
from tests.actors import ANN, BOB, with_clock
from tests.app.decisions import decisions_about

POLICY = """\
version: 1
policy: t
budgets: [{name: pretend, amount: "$9", period: fixed, from: 2020-01-01, to: 2099-12-31, counts: [sandbox]}]
guardrails:
  - {name: big, approve_above: {cost: $5, approvers: [bob]}}
"""
JOB = """\
name: small
run: 'true'
resources: {cpus: 1}
constraints: {providers: [sandbox]}
max_duration: 10h
max_cost: $2
"""
FIRST = (ActionKind.LAUNCH, Answer.ALLOW, 1)


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """Time stands still."""
    return with_clock(broker, ManualClock(broker.clock.now()))


@pytest.fixture
def view(broker: Broker) -> JobView:
    """Ann's job of $2, launched."""
    broker.store.activate_policy({"t.yaml": POLICY}, by="test")
    return submit(broker, parse_job(JOB, file="job.yaml", now=broker.clock.now()), by=ANN)


def more(broker: Broker, view: JobView, cost: str) -> JobView:
    broker.clock.advance(timedelta(minutes=1))  # type: ignore[attr-defined]  # the test's own clock
    longer = jobs.find(broker, view.id).max_duration + timedelta(hours=250)
    return extend(broker, view, JobLimits(max_cost=Money.usd(cost), max_duration=longer), by=ANN)


def said(found: Sequence[Decision]) -> list[tuple[ActionKind, Answer, int | None]]:
    return [(one.action, one.answer, one.attempt) for one in found]


def again(broker: Broker, view: JobView, policy: str = POLICY) -> PolicyReplay:
    with broker.store.reading() as look:
        return replay(decisions_about(broker, view.id), look.entries(), load({"t.yaml": policy}))


def test_what_is_given_asked_and_refused_is_on_record(broker: Broker, view: JobView) -> None:
    more(broker, view, "4")
    with pytest.raises(NotAllowed, match="budget pretend"):
        more(broker, view, "20")
    assert more(broker, view, "6").asked is not None

    found = decisions_about(broker, view.id)
    assert said(found) == [FIRST, *((ActionKind.EXTEND, Answer(one), 1) for one in ("allow", "deny", "ask"))]
    assert all(len(one.facts_hash) == 64 and one.policy_version == broker.policy().version for one in found)
    assert [one.seen["money"] for one in found[1:]] == [{"sandbox": str(cost)} for cost in ("2.00", "16.00", "2.00")]


def test_a_refused_extension_takes_nothing(broker: Broker, view: JobView) -> None:
    with broker.store.reading() as look:
        before = look.entries(view.id)
    with pytest.raises(NotAllowed):
        more(broker, view, "20")
    with broker.store.reading() as look:
        assert (look.entries(view.id), look.job(view.id)) == (before, view)


def test_a_yes_is_to_what_was_recorded(broker: Broker, view: JobView, monkeypatch: pytest.MonkeyPatch) -> None:
    more(broker, view, "6")
    assert approvals.grant(broker, view.id, by=BOB).max_cost == Money.usd(6)
    assert said(decisions_about(broker, view.id)) == [FIRST, (ActionKind.EXTEND, Answer.ASK, 1)]
    more(broker, view, "7")
    assert decisions_about(broker, view.id)[-1].answer is Answer.ASK, "more than was approved"


def test_time_alone_is_an_extension_too(broker: Broker, view: JobView) -> None:
    extend(broker, view, JobLimits(max_duration=timedelta(hours=11)), by=ANN)
    assert said(decisions_about(broker, view.id))[1:] == [(ActionKind.EXTEND, Answer.ALLOW, 1)]


def test_of_a_paused_job_what_is_asked_is_on_record_and_what_is_judged_again_is_not(
    broker: Broker, view: JobView
) -> None:
    with broker.store.writing() as tx:
        ended: list[tuple[int | None, ev.EventBody]] = [(1, ev.AttemptEnded(cause=Cause.MAX_COST))]
        ended.append((None, ev.Paused(reason=MoneyEnded(evidence="its money is used up"))))
        tx.append(view.id, ended, broker.clock.now())
    assert more(broker, view, "4").state is not JobState.AWAITING_APPROVAL
    assert said(decisions_about(broker, view.id)) == [FIRST], "the gate judges it when it is placed"
    asked = extend(broker, view, JobLimits(max_cost=Money.usd(6)), by=ANN)
    assert asked.asked is not None
    assert said(decisions_about(broker, view.id)) == [FIRST, (ActionKind.EXTEND, Answer.ASK, None)]


def test_extensions_are_judged_again_exactly(broker: Broker, view: JobView) -> None:
    more(broker, view, "4")
    with pytest.raises(NotAllowed):
        more(broker, view, "20")
    more(broker, view, "6")

    for policy in (POLICY, POLICY.replace("policy: t", "policy: other")):  # from the record; added up anew
        found = again(broker, view, policy)
        assert (len(found.outcomes), found.unknown, found.differences) == (4, 0, ())
        figures = [[(v.name, v.figures) for v in one.verdicts] for one in found.outcomes]
        assert figures == [[(v.name, v.figures) for v in one.decision.verdicts] for one in found.outcomes]


def test_judged_again_what_it_was_given_is_not_counted_before_it_was_given(broker: Broker, view: JobView) -> None:
    broker.store.activate_policy({"t.yaml": POLICY.replace("$5", "$50")}, by="test")
    more(broker, view, "8")
    assert again(broker, view, POLICY.replace("$5", "$60")).differences == ()


def test_a_policy_that_refuses_an_extension_leaves_the_job_what_it_had(broker: Broker, view: JobView) -> None:
    more(broker, view, "4")
    extend(broker, view, JobLimits(max_duration=timedelta(hours=700)), by=ANN)

    found = again(broker, view, POLICY.replace("$9", "$3"))
    assert [one.answer for one in found.outcomes] == [Answer.ALLOW, Answer.DENY, Answer.ALLOW], "it was not stopped"
