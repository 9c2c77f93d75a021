"""Approval requests: their approvers, decisions and coverage. Pure.

A request has one question per rule that requires an approval; all must be approved, one rejection ends it. An approval
is kept as a `Grant` with its limits: a move within them needs no new approval, a larger request does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from broker.core.market.offers import MoneyKind
from broker.core.policy.facts import Aspect, Fact, covers
from broker.core.policy.policy import Action, ActionKind, Answer, Grant, Verdict
from broker.core.records import Record
from broker.core.values.money import Money

# Default expiry of a request.
DEFAULT_EXPIRY = timedelta(hours=24)


class Question(Record):
    """One rule's question: its name, approvers (names or patterns), whether requesters may approve, the reason, and the
    rule's place. ``facts``: the facts the rule read, which an approval covers.
    """

    rule: str
    approvers: tuple[str, ...] = ()
    own_requests: bool = False
    because: str = ""
    source: str = ""
    facts: tuple[Fact, ...] = ()

    def may_answer(self, person: str, requester: str) -> bool:
        """Whether that user may decide. Nobody approves their own request unless the rule allows it."""
        return (self.own_requests or person != requester) and matches_any(self.approvers, person)


@dataclass(frozen=True, slots=True)
class RequestedApproval:
    """A pending request. Amounts are USD.

    ``total``: maximum total cost of the job if approved; ``held``: held for this request alone. ``max_cost``,
    ``max_duration``: the job's new limits, if more was requested while it ran; an ``extension`` leaves a running job
    unchanged until it is approved. ``yes``: approver by rule. ``by``: who requested more; empty for a submission, and
    for needs of the broker.
    """

    at: datetime
    questions: tuple[Question, ...]
    expires_at: datetime | None = None
    total: Money = Money.ZERO
    held: Mapping[MoneyKind, Money] = field(default_factory=dict)
    gpus: int = 0
    lasts: timedelta | None = None
    extension: bool = False
    max_cost: Money | None = None
    max_duration: timedelta | None = None
    yes: tuple[tuple[str, str], ...] = ()
    by: str = ""

    def expired(self, now: datetime) -> bool:
        """Whether the time to answer has passed."""
        return self.expires_at is not None and now >= self.expires_at

    @property
    def open(self) -> tuple[Question, ...]:
        """Questions without a decision."""
        answered = {rule for rule, _ in self.yes}
        return tuple(question for question in self.questions if question.rule not in answered)

    @property
    def approvers(self) -> tuple[str, ...]:
        """The approvers of all open questions (names or patterns)."""
        return tuple(sorted({name for question in self.open for name in question.approvers}))

    def whom(self, requester: str) -> str:
        """The approvers in words: ``ann or bob``; for several rules with different approvers, ``ann or bob, and carl``;
        ``nobody`` with the reason if the requester is the only one.
        """
        alone = f"nobody ({requester} may not decide their own request unless the rule says `own_requests: true`)"
        groups = []
        for question in self.open:
            names = [name for name in question.approvers if question.may_answer(name, requester)]
            default = alone if question.approvers else "nobody (the rule names no approvers)"
            groups.append(" or ".join(sorted(names)) or default)
        return ", and ".join(dict.fromkeys(groups))

    def questions_for(self, person: str, requester: str) -> tuple[Question, ...]:
        """The open questions that this user may answer: neither as the job's owner nor as the requester."""
        return tuple(q for q in self.open if q.may_answer(person, requester) and q.may_answer(person, self.by))

    def answered(self, who: str, rules: Collection[str]) -> RequestedApproval:
        """The request with these rules' questions approved by ``who``, instead of anybody else."""
        other_answers = (answer for answer in self.yes if answer[0] not in rules)
        return replace(self, yes=(*other_answers, *((rule, who) for rule in rules)))

    def replace_questions(self, repeat: RequestedApproval) -> RequestedApproval:
        """The request after ``repeat``, whose questions replace those of the same rules and drop their approvals."""
        rules = {question.rule for question in repeat.questions}
        other_questions = tuple(question for question in self.questions if question.rule not in rules)
        answers = tuple(answer for answer in self.yes if answer[0] not in rules)
        return replace(repeat, questions=(*other_questions, *repeat.questions), yes=answers)

    def under_rules(self, questions: Mapping[str, Question], requester: str) -> RequestedApproval:
        """The request under rules that ask these ``questions`` (by rule), with the approvals that count."""
        request = replace(self, questions=tuple(questions.values()), yes=())
        return replace(
            request,
            yes=tuple(
                (rule, approver)
                for rule, approver in self.yes
                if any(question.rule == rule for question in request.questions_for(approver, requester))
            ),
        )

    def grants(self) -> tuple[Grant, ...]:
        rules: dict[str, list[str]] = {}
        for rule, approver in self.yes:
            if approver:  # empty if the approval is no longer required
                rules.setdefault(approver, []).append(rule)
        facts_by_rule = {question.rule: question.facts for question in self.questions}
        return tuple(
            Grant(
                approver,
                tuple(approved_rules),
                self.total,
                self.lasts,
                self.gpus or None,
                facts={rule: facts_by_rule.get(rule, ()) for rule in approved_rules},
            )
            for approver, approved_rules in rules.items()
        )


@dataclass(frozen=True, slots=True)
class StandingGrant:
    """An approval in advance: for users (names or patterns; empty: everybody), ``rules``, a ``total`` (USD, over all
    jobs that use it) and an end (UTC). ``used``: spent and held by those jobs. ``revoked_at``: when it was revoked;
    launched jobs continue.
    """

    number: int
    by: str
    at: datetime
    until: datetime
    total: Money
    rules: tuple[str, ...]
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    note: str = ""
    used: Money = Money.ZERO
    revoked_at: datetime | None = None
    revoked_by: str = ""

    def active(self, now: datetime) -> bool:
        """Whether it may be used at ``now`` (UTC)."""
        return self.revoked_at is None and self.at <= now < self.until

    def applies_to(self, action: Action) -> bool:
        job = action.job
        return all(
            not patterns or (name is not None and matches_any(patterns, name))
            for patterns, name in ((self.users, action.user), (self.teams, job.team), (self.projects, job.project))
        )

    def grant(self, own: Money) -> Grant:
        """The grant for one job that has already used ``own`` (USD). The limit applies to all jobs together."""
        left = max(self.total - self.used + own, Money.ZERO)
        return Grant(self.by, self.rules, left, standing=self.number, until=self.until)


def matches_any(patterns: Iterable[str], person: str) -> bool:
    """Whether a user matches one of these names or shell-style patterns, case-sensitive."""
    return any(fnmatchcase(person, pattern) for pattern in patterns)


def questions(verdicts: Iterable[Verdict]) -> tuple[Question, ...]:
    """One question for each rule that requires an approval."""
    return tuple(
        Question(
            rule=verdict.name,
            approvers=verdict.approvers,
            own_requests=verdict.own_requests,
            because=verdict.message,
            source=str(verdict.source),
            facts=tuple(_extend_to_expiry(fact, verdict.expires or DEFAULT_EXPIRY) for fact in verdict.looked_at),
        )
        for verdict in verdicts
        if verdict.answer is Answer.ASK
    )


def _extend_to_expiry(fact: Fact, expires: timedelta) -> Fact:
    """The fact as it may be when the request is answered at the latest: waiting for ``expires`` delays the end of the
    job by that time."""
    if fact.aspect is not Aspect.ENDS_BY or not isinstance(fact.value, int):
        return fact
    return fact.model_copy(update={"value": fact.value + round(expires.total_seconds() * 1_000_000)})


def expiry(verdicts: Iterable[Verdict], now: datetime) -> datetime:
    """When the request expires (UTC): after the shortest time that a rule gives."""
    times = [verdict.expires for verdict in verdicts if verdict.answer is Answer.ASK and verdict.expires]
    return now + min(times, default=DEFAULT_EXPIRY)


def total_of(action: Action) -> Money:
    """Maximum total cost of the job: spent, held and requested. Prepaid capacity does not count."""
    requested = (amount for kind, amount in (action.hold or {}).items() if kind is not MoneyKind.AMORTISED)
    return sum(requested, action.spent + action.held)


def max_run_time(action: Action) -> timedelta | None:
    """Maximum total run time of the job; None if unknown."""
    if action.window is None:
        return None
    return action.elapsed + max(action.window[1] - action.window[0], timedelta(0))


def apply_grants(
    verdicts: Sequence[Verdict], action: Action, grants: Sequence[Grant], now: datetime
) -> Sequence[Verdict]:
    """The verdicts, with approved questions turned into allowances. Denials stay."""
    if not grants or all(verdict.answer is not Answer.ASK for verdict in verdicts):
        return verdicts
    return [_apply_to_verdict(verdict, action, grants, now) for verdict in verdicts]


def _apply_to_verdict(verdict: Verdict, action: Action, grants: Sequence[Grant], now: datetime) -> Verdict:
    if verdict.answer is not Answer.ASK:
        return verdict
    covering = next((grant for grant in grants if _covers(grant, verdict, action, now)), None)
    if covering is None:
        return verdict
    approval = f"approved by {covering.by}"
    if covering.standing is not None:
        approval += f" (standing grant {covering.standing})"
    figures = dict(verdict.figures) | {"approved_by": covering.by, "up_to": covering.up_to.as_json()}
    if covering.standing is not None:
        figures["standing"] = str(covering.standing)
    return replace(
        verdict, answer=Answer.ALLOW, code="approved", message=f"{approval}: {verdict.message}", figures=figures
    )


def _covers(grant: Grant, verdict: Verdict, action: Action, now: datetime) -> bool:
    if verdict.name not in grant.rules or total_of(action) > grant.up_to:
        return False
    longest, gpus = max_run_time(action), action.placement.gpus if action.placement else 0
    if grant.max_duration is not None and longest is not None and longest > grant.max_duration:
        return False
    if grant.gpus is not None and gpus > grant.gpus:
        return False
    # Its author must still be an approver; what runs was launched when they were.
    question = Question(rule=verdict.name, approvers=verdict.approvers, own_requests=verdict.own_requests)
    if action.kind is not ActionKind.CONTINUE and not question.may_answer(grant.by, action.user):
        return False
    if grant.standing is None:
        return covers(grant.facts.get(verdict.name, ()), verdict.looked_at)
    return grant.until is None or now < grant.until


def standing_grant_uses(verdicts: Iterable[Verdict]) -> dict[int, tuple[str, tuple[str, ...]]]:
    """The standing grants that approved something: by number, who gave the grant and the rules it answered."""
    used: dict[int, tuple[str, tuple[str, ...]]] = {}
    for verdict in verdicts:
        if verdict.code == "approved" and "standing" in verdict.figures:
            number = int(verdict.figures["standing"])
            _, rules = used.get(number, ("", ()))
            used[number] = (verdict.figures["approved_by"], (*rules, verdict.name))
    return used
