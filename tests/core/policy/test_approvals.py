"""What is asked of whom, who may answer, and what an approval covers."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.policy.approvals import (
    Question,
    RequestedApproval,
    StandingGrant,
    apply_grants,
    expiry,
    max_run_time,
    questions,
    standing_grant_uses,
    total_of,
)
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, Answer, Grant, Source, Verdict
from broker.core.values.money import Money

NOW = datetime(2026, 11, 21, tzinfo=UTC)
HOUR = timedelta(hours=1)
GPUS = Offer(
    "aws", "us-east-1", None, "p5", "H100", 8, CapacityType.ON_DEMAND, Money.usd(40), NOW, "test"
)  # fmt: skip
TWO_NODES = Placement(GPUS, 2, Money.usd(80), Money.usd(80), (), None, None, 1.0, 1.0, 0.0)


REGION = (Fact(aspect=Aspect.REGION, value="us-east-1"),)


def asks(name: str = "dear", **more: Any) -> Verdict:
    values: dict[str, Any] = {"name": name, "approvers": ("bob",)}
    return Verdict(Answer.ASK, "approve_above", "above", f"{name} asks", Source("team.yaml", 3), **values | more)


def action(hold: str = "100", *, user: str = "alice", **more: Any) -> Action:
    values: dict[str, Any] = {"placement": TWO_NODES, "hold": {MoneyKind.CASH: Money.usd(hold)}}
    values |= {"window": (NOW, NOW + 10 * HOUR)}
    return Action(ActionKind.LAUNCH, Job(name="j", run="x"), user, **values | more)


# --- whom to ask ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("approvers", "own", "whom"),
    [
        (("alice", "bob"), False, "bob"),
        (("alice", "bob"), True, "alice or bob"),
        (("lead-*",), False, "lead-*"),
        (
            ("alice",),
            False,
            "nobody (alice may not decide their own request unless the rule says `own_requests: true`)",
        ),
    ],
)
def test_nobody_is_told_to_ask_themselves(approvers: tuple[str, ...], own: bool, whom: str) -> None:
    question = Question(rule="dear", approvers=approvers, because="dear", own_requests=own)
    asked = RequestedApproval(datetime(2026, 11, 21, tzinfo=UTC), (question,))
    assert asked.whom("alice") == whom


def test_where_several_must_say_yes_all_of_them_are_named() -> None:
    rules = {"dear": ("bob", "alice"), "big": ("carl", "bob"), "long": ("bob",)}
    asked = RequestedApproval(
        datetime(2026, 11, 21, tzinfo=UTC), tuple(Question(rule=r, approvers=a) for r, a in rules.items())
    )
    assert asked.whom("alice") == "bob, and bob or carl"
    assert asked.answered("bob", ["dear"]).whom("alice") == "bob or carl, and bob"
    assert asked.answered("bob", ["dear", "big"]).whom("dora") == "bob"


@pytest.mark.parametrize(
    ("approvers", "own", "who", "may"),
    [
        (("bob",), False, "bob", True),
        (("bob",), False, "carl", False),
        (("lead-*",), False, "lead-7", True),
        (("Lead-*",), False, "lead-7", False),
        (("alice", "bob"), False, "alice", False),
        (("alice", "bob"), True, "alice", True),
        (("bob",), True, "alice", False),  # that own requests may be approved makes nobody an approver
        ((), True, "alice", False),
    ],
)
def test_who_may_answer_a_request_of_alice(approvers: tuple[str, ...], own: bool, who: str, may: bool) -> None:
    question = Question(rule="dear", approvers=approvers, own_requests=own)
    assert question.may_answer(who, "alice") is may
    assert RequestedApproval(NOW, (question,)).questions_for(who, "alice") == ((question,) if may else ())


def test_nobody_is_an_approver_of_a_question_that_does_not_say_so() -> None:
    question = Question(rule="dear")
    assert question.model_dump(mode="json")["own_requests"] is False
    assert not question.may_answer("alice", "alice")
    assert (question.approvers, question.because, question.source) == ((), "", "")


def test_what_is_answered_is_open_no_more() -> None:
    dear, big = Question(rule="dear", approvers=("bob", "ann")), Question(rule="big", approvers=("carl", "ann"))
    asked = RequestedApproval(NOW, (dear, big))
    assert (asked.open, asked.approvers) == ((dear, big), ("ann", "bob", "carl"))
    answered = asked.answered("bob", ["dear"])
    assert (answered.open, answered.approvers) == ((big,), ("ann", "carl"))
    assert answered.questions_for("ann", "alice") == (big,)
    assert answered.answered("carl", ["big"]).open == ()


def test_a_question_is_open_until_its_last_moment() -> None:
    asked = RequestedApproval(NOW, (), expires_at=NOW + HOUR)
    assert not asked.expired(NOW + HOUR - timedelta(microseconds=1))
    assert asked.expired(NOW + HOUR)
    assert not RequestedApproval(NOW, ()).expired(NOW + 10_000 * HOUR), "without an end it waits"


def test_nothing_is_approved_and_held_by_an_ask_that_does_not_say_so() -> None:
    asked = RequestedApproval(NOW, ())
    assert (asked.total, asked.held, asked.gpus, asked.lasts) == (Money.ZERO, {}, 0, None)
    assert (asked.extension, asked.max_cost, asked.max_duration, asked.yes, asked.by) == (False, None, None, (), "")


@pytest.mark.parametrize(("expires", "later"), [(2 * HOUR, 7_200_000_000), (None, 86_400_000_000)])
def test_an_end_that_was_looked_at_is_later_by_the_time_that_an_answer_may_take(
    expires: timedelta | None, later: int
) -> None:
    facts = tuple(
        Fact(aspect=aspect, value=value)
        for aspect, value in ((Aspect.ENDS_BY, 5), (Aspect.ENDS_BY, None), (Aspect.GPUS, 7))
    )
    (question,) = questions([asks(looked_at=facts, expires=expires)])
    assert [fact.value for fact in question.facts] == [5 + later, None, 7]


@pytest.mark.parametrize(
    ("kind", "facts", "covered"),
    [
        (ActionKind.LAUNCH, {}, False),
        (ActionKind.CONTINUE, {}, False),
        (ActionKind.CONTINUE, {"dear": REGION}, True),
        (ActionKind.LAUNCH, {"dear": REGION}, True),
    ],
)
def test_an_approval_covers_the_facts_that_it_was_given_for(
    kind: ActionKind, facts: dict[str, tuple[Fact, ...]], covered: bool
) -> None:
    given = Grant("bob", ("dear",), Money.usd(1000), facts=facts)
    (verdict,) = apply_grants([asks(looked_at=REGION)], replace(action(), kind=kind), [given], NOW)
    assert (verdict.answer is Answer.ALLOW) is covered


def test_everybody_grants_what_they_said_yes_to_within_what_was_asked() -> None:
    asked = RequestedApproval(
        NOW, tuple(Question(rule=rule) for rule in ("dear", "big", "long", "old")),
        total=Money.usd(500), gpus=16, lasts=10 * HOUR,
    )  # fmt: skip
    answered = asked.answered("bob", ["dear", "long"]).answered("carl", ["big"]).answered("", ["old"])
    assert [(g.by, g.rules, g.up_to, g.max_duration, g.gpus, g.standing) for g in answered.grants()] == [
        ("bob", ("dear", "long"), Money.usd(500), 10 * HOUR, 16, None),
        ("carl", ("big",), Money.usd(500), 10 * HOUR, 16, None),
    ]
    (none,) = RequestedApproval(NOW, (), total=Money.usd(1)).answered("bob", ["dear"]).grants()
    assert (none.gpus, none.max_duration) == (None, None), "what was not told is not limited"


def test_each_rule_that_asks_puts_its_own_question() -> None:
    allowed = Verdict(Answer.ALLOW, "budget", "room", "there is room", Source("team.yaml", 9), name="nlp")
    (dear, big) = questions([asks(), allowed, asks("big", approvers=("carl",), own_requests=True)])
    assert (dear.rule, dear.approvers, dear.own_requests) == ("dear", ("bob",), False)
    assert (dear.because, dear.source) == ("dear asks", "team.yaml:3")
    assert (big.rule, big.approvers, big.own_requests) == ("big", ("carl",), True)


def test_an_answer_is_waited_for_as_long_as_the_most_impatient_rule_says() -> None:
    short, longer = asks(expires=2 * HOUR), asks("big", expires=5 * HOUR)
    allowed = Verdict(Answer.ALLOW, "x", "x", "x", Source("f", 1), expires=HOUR)
    assert expiry([longer, short, allowed, asks("any")], NOW) == NOW + 2 * HOUR
    assert expiry([asks(), allowed], NOW) == NOW + 24 * HOUR


# --- what a job comes to --------------------------------------------------------------------------------------------


def test_a_job_comes_to_what_it_spent_holds_and_asks_for_but_for_what_was_paid_before() -> None:
    hold = {MoneyKind.CASH: Money.usd(10), MoneyKind.SANDBOX: Money.usd(5), MoneyKind.AMORTISED: Money.usd(100)}
    asked = Action(ActionKind.EXTEND, Job(name="j", run="x"), "alice", hold=hold, spent=Money.usd(3), held=Money.usd(2))
    assert total_of(asked) == Money.usd(20)
    assert total_of(Action(ActionKind.CONTINUE, Job(name="j", run="x"), "alice", spent=Money.usd(3))) == Money.usd(3)


def test_a_job_lasts_as_long_as_it_ran_and_is_meant_to_run_on() -> None:
    assert max_run_time(action(elapsed=3 * HOUR)) == 13 * HOUR
    assert max_run_time(action(elapsed=3 * HOUR, window=(NOW, NOW - HOUR))) == 3 * HOUR, "no time is not less than none"
    assert max_run_time(action(elapsed=3 * HOUR, window=None)) is None


# --- what an approval covers ----------------------------------------------------------------------------------------


def granted(grant: Grant, asked: Action, verdict: Verdict | None = None, now: datetime = NOW) -> bool:
    (judged,) = apply_grants([verdict or asks()], asked, [grant], now)
    return judged.answer is Answer.ALLOW


@pytest.mark.parametrize(
    ("hold", "covered"), [("100", True), ("100.000001", False), ("99", True)]
)  # fmt: skip
def test_an_approval_covers_the_amount_that_was_asked_for(hold: str, covered: bool) -> None:
    assert (
        granted(Grant("bob", ("dear",), Money.usd(130)), action(hold, spent=Money.usd(20), held=Money.usd(10)))
        is covered
    )


def test_an_approval_covers_its_own_rules() -> None:
    grant = Grant("bob", ("big", "dear"), Money.usd(100))
    assert granted(grant, action())
    assert not granted(grant, action(), asks("long"))
    assert not granted(Grant("carl", ("dear",), Money.usd(100)), action()), "carl is no approver any more"
    runs = replace(action(), kind=ActionKind.CONTINUE)
    assert granted(Grant("carl", ("dear",), Money.usd(100)), runs), "what runs was launched when he was"


def test_an_approval_covers_the_time_that_was_asked_for() -> None:
    def within(longest: timedelta | None, **more: Any) -> bool:
        return granted(Grant("bob", ("dear",), Money.usd(100), max_duration=longest), action(**more))

    assert within(10 * HOUR)
    assert not within(10 * HOUR - timedelta(microseconds=1))
    assert not within(10 * HOUR, elapsed=timedelta(microseconds=1))
    assert within(None)
    assert within(HOUR, window=None), "how long it lasts is not known where single places are judged"


def test_an_approval_covers_the_gpus_that_were_asked_for() -> None:
    def within(gpus: int | None, **more: Any) -> bool:
        return granted(Grant("bob", ("dear",), Money.usd(100), gpus=gpus), action(**more))

    assert within(16)
    assert not within(15)
    assert within(None)
    assert within(0, placement=None)


def test_what_is_approved_says_by_whom_and_up_to_what() -> None:
    (judged,) = apply_grants([asks(figures={"cost": "100"})], action(), [Grant("bob", ("dear",), Money.usd(130))], NOW)
    assert (judged.answer, judged.code, judged.rule, judged.name) == (Answer.ALLOW, "approved", "approve_above", "dear")
    assert judged.message == "approved by bob: dear asks"
    assert judged.figures == {"cost": "100", "approved_by": "bob", "up_to": Money.usd(130).as_json()}
    standing = Grant("bob", ("dear",), Money.usd(130), standing=7)
    (judged,) = apply_grants([asks()], action(), [Grant("carl", ("big",), Money.usd(999)), standing], NOW)
    assert judged.message == "approved by bob (standing grant 7): dear asks"
    assert judged.figures == {"approved_by": "bob", "up_to": Money.usd(130).as_json(), "standing": "7"}


def test_only_what_asks_is_approved() -> None:
    denied = Verdict(Answer.DENY, "freeze", "frozen", "a freeze", Source("team.yaml", 5), name="dear")
    allowed = Verdict(Answer.ALLOW, "budget", "room", "there is room", Source("team.yaml", 9), name="dear")
    grant = Grant("bob", ("dear",), Money.usd(1000))
    judged = apply_grants([denied, asks(), allowed, asks("big")], action(), [grant], NOW)
    assert [one.answer for one in judged] == [Answer.DENY, Answer.ALLOW, Answer.ALLOW, Answer.ASK]
    assert (judged[0], judged[2], judged[3]) == (denied, allowed, asks("big"))
    unchanged = [denied, allowed]
    assert apply_grants(unchanged, action(), [grant], NOW) is unchanged
    asking = [asks()]
    assert apply_grants(asking, action(), [], NOW) is asking


# --- approvals ahead ------------------------------------------------------------------------------------------------


def test_an_approval_ahead_is_good_until_its_end_and_while_its_giver_may_still_approve() -> None:
    def good(*, now: datetime = NOW, by: str = "bob", user: str = "alice", own: bool = False) -> bool:
        grant = Grant(by, ("dear",), Money.usd(100), standing=7, until=NOW + HOUR)
        return granted(grant, action(user=user), asks(approvers=("bob", "ann"), own_requests=own), now)

    assert good()
    assert good(now=NOW + HOUR - timedelta(microseconds=1))
    assert not good(now=NOW + HOUR)
    assert not good(by="carl"), "carl is no approver any more"
    assert not good(user="bob"), "nobody approves their own"
    assert good(user="bob", own=True)
    forever = Grant("bob", ("dear",), Money.usd(100), standing=7)
    assert granted(forever, action(), now=NOW + 9999 * HOUR)


def standing(**more: Any) -> StandingGrant:
    values: dict[str, Any] = {"number": 7, "by": "bob", "at": NOW, "until": NOW + HOUR, "total": Money.usd(100)}
    return StandingGrant(**values | {"rules": ("dear",)} | more)


def test_when_an_approval_ahead_may_be_used() -> None:
    moment = timedelta(microseconds=1)
    assert [standing().active(at) for at in (NOW - moment, NOW, NOW + HOUR - moment, NOW + HOUR)] == [
        False, True, True, False,
    ]  # fmt: skip
    assert not standing(revoked_at=NOW + HOUR).active(NOW)


@pytest.mark.parametrize(
    ("limits", "meant"),
    [
        ({}, True),
        ({"users": ("alice",)}, True),
        ({"users": ("bob",)}, False),
        ({"teams": ("n*",)}, True),
        ({"teams": ("vision",)}, False),
        ({"projects": ("*",)}, False),  # the job has none
        ({"users": ("al*",), "teams": ("vision", "nlp")}, True),
        ({"users": ("alice",), "teams": ("vision",)}, False),
    ],
)
def test_for_whom_an_approval_ahead_is_meant(limits: dict[str, tuple[str, ...]], meant: bool) -> None:
    asked = Action(ActionKind.LAUNCH, Job(name="j", run="x", team="nlp"), "alice")
    assert standing(**limits).applies_to(asked) is meant


def test_a_project_that_an_approval_ahead_names_is_meant() -> None:
    asked = Action(ActionKind.LAUNCH, Job(name="j", run="x", project="llm"), "alice")
    assert standing(projects=("llm",)).applies_to(asked)
    assert not standing(projects=("vision",)).applies_to(asked)


@pytest.mark.parametrize(
    ("used", "own", "left"), [("0", "0", "100"), ("70", "0", "30"), ("70", "20", "50"), ("170", "20", "0")]
)
def test_an_approval_ahead_is_for_all_jobs_together(used: str, own: str, left: str) -> None:
    grant = standing(used=Money.usd(used)).grant(Money.usd(own))
    assert (grant.by, grant.rules, grant.up_to) == ("bob", ("dear",), Money.usd(left))
    assert (grant.standing, grant.until, grant.max_duration, grant.gpus) == (7, NOW + HOUR, None, None)


def test_a_new_approval_ahead_is_unused_for_everybody_and_not_revoked() -> None:
    new = standing()
    assert (new.users, new.teams, new.projects, new.note, new.used) == ((), (), (), "", Money.ZERO)
    assert (new.revoked_at, new.revoked_by) == (None, "")


def test_which_approvals_ahead_let_something_through() -> None:
    seven, nine = (Grant(by, rules, Money.usd(100), standing=number) for by, rules, number in (
        ("bob", ("dear", "long"), 7), ("ann", ("big",), 9),
    ))  # fmt: skip
    once = Grant("carl", ("once",), Money.usd(100))
    asking = [asks(name, approvers=("bob", "ann", "carl")) for name in ("dear", "big", "long", "once", "open")]
    judged = apply_grants(asking, action(), [seven, nine, once], NOW)
    assert standing_grant_uses(judged) == {7: ("bob", ("dear", "long")), 9: ("ann", ("big",))}
    assert standing_grant_uses(asking) == {}
    refused = Verdict(Answer.DENY, "x", "refused", "x", Source("f", 1), figures={"standing": "7", "approved_by": "bob"})
    assert standing_grant_uses([refused]) == {}
