"""What people are asked, what standing grants let through, and what is given back when the answer is no."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import ApprovalEnded
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.policy.approvals import Question, RequestedApproval
from broker.core.policy.decisions import Decision
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, Answer, Source, Verdict
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Balance, Movement, Tags
from broker.reconciler.admission.admission import Admission
from broker.reconciler.admission.approvals import (
    approve_by_standing_grants,
    ask,
    is_record_of,
    mark_as_request,
    refuse,
    usable_balances,
)
from broker.reconciler.admission.records import hold_entries
from broker.store import Store
from tests.reconciler.test_admission_by_hand import at, life, sold

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
CASH = MoneyKind.CASH
JOB = Job(name="j", run="x")
PLACE = at(sold(), 2)  # sixteen accelerators
REGION = (Fact(aspect=Aspect.REGION, value="east"),)
PROVIDER = (Fact(aspect=Aspect.PROVIDER, value="aws"),)


def said(answer: Answer, name: str, **more: Any) -> Verdict:
    return Verdict(answer, "rule", "said", f"{name} says so", Source("team.yaml", 3), name, **more)


def found(*verdicts: Verdict, timed: bool = True) -> Admission:
    """$5 more for a job that has run for an hour, spent $3, and holds $2; two more hours."""
    action = Action(
        ActionKind.EXTEND, JOB, "ann", placement=PLACE, hold={CASH: Money.usd(5)}, elapsed=HOUR,
        spent=Money.usd(3), held=Money.usd(2), window=(NOW, NOW + 2 * HOUR) if timed else None,
    )  # fmt: skip
    return Admission(Answer.ASK, action, PLACE, {CASH: Money.usd(5)}, verdicts)


FINE = said(Answer.ALLOW, "fine", approvers=("nobody",))
FIRST = said(Answer.ASK, "first", approvers=("olga", "bob"), expires=3 * HOUR, looked_at=REGION)
SECOND = said(Answer.ASK, "second", approvers=("bob", "carl"), expires=2 * HOUR, own_requests=True)


def test_those_are_asked_whom_the_rules_name_that_ask() -> None:
    questions = (
        Question(rule="first", approvers=("olga", "bob"), because="first says so", source="team.yaml:3", facts=REGION),
        Question(
            rule="second", approvers=("bob", "carl"), own_requests=True, because="second says so",
            source="team.yaml:3", facts=(),
        ),
    )  # fmt: skip
    assert ask(found(FIRST, FINE, SECOND), NOW) == ev.ApprovalAsked(
        approvers=("bob", "carl", "olga"),
        because="first says so; second says so",
        expires_at=NOW + 2 * HOUR,
        questions=questions,
        total=Money.usd(10),
        held={CASH: Money.usd(5)},
        gpus=16,
        lasts_seconds=3 * 3600.0,
    )


@pytest.mark.parametrize(("max_cost", "total"), [(None, 10), (9, 10), (50, 50)])
def test_who_approves_a_limit_approves_spending_up_to_it(max_cost: int | None, total: int) -> None:
    limit = None if max_cost is None else Money.usd(max_cost)
    asked = ask(found(FIRST), NOW, by="ann", extension=True, max_cost=limit, max_duration=4 * HOUR)
    assert (asked.by, asked.extension, asked.max_cost, asked.max_duration_seconds) == ("ann", True, limit, 4 * 3600.0)
    assert asked.total == Money.usd(total)
    assert ask(found(FIRST, timed=False), NOW).lasts_seconds is None


def test_a_record_of_an_ask_is_known_by_its_moment_in_any_time_zone() -> None:
    record = Decision(NOW, ActionKind.LAUNCH, "ann", "j", Answer.ASK, "v", "h", seen={"offers_seen": 3})
    marked = mark_as_request(record, NOW.astimezone(timezone(5 * HOUR)))
    assert marked == replace(record, seen={"offers_seen": 3, "asked_at": "2026-03-02T12:00:00+00:00"})
    asked = RequestedApproval(NOW.astimezone(timezone(-HOUR)), ())
    assert is_record_of(marked, asked)
    assert not is_record_of(marked, replace(asked, at=NOW + HOUR))
    assert not is_record_of(record, asked)


@dataclass
class NotedUse:
    """A transaction that notes which standing grants are used, for whom."""

    used: list[tuple[int, str]] = field(default_factory=list)

    def use_standing(self, number: int, job_id: str, total: Money = Money.ZERO) -> None:
        self.used.append((number, job_id))


def test_what_standing_grants_let_through_is_given_with_its_facts_and_counted() -> None:
    def through(name: str, number: int, by: str, facts: tuple[Fact, ...]) -> Verdict:
        figures = {"approved_by": by, "standing": str(number)}
        return replace(said(Answer.ALLOW, name, looked_at=facts), code="approved", figures=figures)

    tx: Any = NotedUse()
    some = through("a", 7, "olga", REGION), FINE, through("b", 9, "carl", ()), through("c", 7, "olga", PROVIDER)
    given = approve_by_standing_grants(tx, found(*some), "j-1")
    about: dict[str, Any] = {"total": Money.usd(10), "gpus": 16, "lasts_seconds": 3 * 3600.0}
    assert given == [
        ev.ApprovalGiven(
            by="olga", note="standing grant 7", rules=("a", "c"), standing=7, facts={"a": REGION, "c": PROVIDER},
            **about,
        ),
        ev.ApprovalGiven(by="carl", note="standing grant 9", rules=("b",), standing=9, facts={"b": ()}, **about),
    ]  # fmt: skip
    assert tx.used == [(7, "j-1"), (9, "j-1")]
    assert approve_by_standing_grants(tx, found(*some[:1], timed=False), "j-1")[0].lasts_seconds is None
    assert approve_by_standing_grants(tx, found(FINE), "j-1") == []


def test_what_waits_for_an_answer_may_not_be_used() -> None:
    view = replace(life(), asked=RequestedApproval(NOW, (), extension=True, held={CASH: Money.usd(5)}))
    balance = {kind: Balance(Money.usd(-40), Money.usd(30), Money.usd(10)) for kind in (CASH, MoneyKind.SANDBOX)}
    assert usable_balances(view, balance) == {
        CASH: Balance(Money.usd(-40), Money.usd(25), Money.usd(10)),
        MoneyKind.SANDBOX: balance[MoneyKind.SANDBOX],
    }
    assert usable_balances(replace(view, asked=None), balance) == balance


# --- the answer is no -----------------------------------------------------------------------------------------------


def submitted(store: Store) -> None:
    """A job that holds $30."""
    with store.writing() as tx:
        tx.append("j-1", [(None, ev.Submitted(job=JOB, user="ann", max_duration_seconds=36000))], NOW)
        burns = {CASH: Burn(Money.usd(30), NOW, NOW + HOUR, Money.usd(30))}
        tx.post(hold_entries(Tags("j-1", "ann"), {}, burns, Movement.HOLD, 0))


def appended(store: Store, *bodies: tuple[int | None, ev.EventBody]) -> JobView:
    with store.writing() as tx:
        return tx.append("j-1", bodies, NOW)


def refused(store: Store, view: JobView, **about: str) -> tuple[JobView, Mapping[MoneyKind, Balance]]:
    with store.writing() as tx:
        after = refuse(tx, view, NOW + HOUR, **about)
        assert tx.job("j-1") == after
        return after, tx.balance("j-1")


def asks(**more: Any) -> ev.ApprovalAsked:
    return ev.ApprovalAsked(approvers=("olga",), questions=(Question(rule="big", approvers=("olga",)),), **more)


def test_a_job_that_never_ran_ends_with_the_answer_and_gives_all_back(store: Store) -> None:
    submitted(store)
    view = appended(store, (None, asks(held={CASH: Money.usd(4)})))
    assert view.state is JobState.AWAITING_APPROVAL
    after, balance = refused(store, view, by="olga", note="not now")
    assert (after.state, after.asked) == (JobState.CANCELLED, None)
    with store.reading() as look:
        ended = look.events("j-1")[-2:]
    assert [event.body for event in ended] == [
        ev.ApprovalRefused(by="olga", note="not now"),
        ev.JobEnded(state=JobState.CANCELLED, reason=ApprovalEnded(by="olga", note="not now")),
    ]
    assert [event.at for event in ended] == [NOW + HOUR] * 2
    assert balance == {CASH: Balance()}


UP: list[tuple[int | None, EventBody]] = [
    (1, ev.LaunchRequested(key="j-1-1", engine="stage", placement=PLACE)),
    (1, ev.Launched(handle="h")),
    (1, ev.MachineUp(since=NOW)),
]


def test_a_job_that_runs_goes_on_and_gives_back_what_was_held_for_the_answer(store: Store) -> None:
    submitted(store)
    view = appended(store, *UP, (None, asks(extension=True, held={CASH: Money.usd(4)})))
    after, balance = refused(store, view, by="olga")
    assert (after.state, after.asked) == (view.state, None)
    assert balance == {CASH: Balance(Money.usd(-26), Money.usd(26), Money.ZERO)}


def test_a_job_that_has_run_is_paused_when_nobody_answers(store: Store) -> None:
    submitted(store)
    over = (1, ev.AttemptEnded(cause=Cause.PREEMPTED)), (1, ev.MachineGone(gone_at=NOW))
    view = appended(store, *UP, *over, (None, asks(held={CASH: Money.usd(4)})))
    assert view.state is JobState.AWAITING_APPROVAL
    after, balance = refused(store, view)
    assert after.state is JobState.PAUSED_BUDGET
    assert after.waiting == ApprovalEnded(by="", note="")
    assert balance == {CASH: Balance()}
