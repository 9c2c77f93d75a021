"""Asking somebody first: what is asked of whom, who may answer, and what an approval covers. Pure.

An ask puts one question for each rule that wants to be asked; all of them must be answered with yes, one no ends it.
What was approved is kept as a `Grant` with its limits: so that the same question is not put again when the job moves,
and is put again when it wants more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from pydantic import BaseModel, ConfigDict

from broker.core.market.offers import MoneyKind
from broker.core.policy.facts import Aspect, Fact, covers
from broker.core.policy.policy import Action, ActionKind, Answer, Grant, Verdict
from broker.core.values.money import Money

# How long a rule that does not say so waits for an answer.
DEFAULT_EXPIRY = timedelta(hours=24)


class Question(BaseModel):
    """One rule's question: its name, who may answer (names or patterns), whether also those who ask, why, and where
    the rule stands. ``facts``: what it looked at, which a yes covers; None for a question of before that was kept."""

    model_config = ConfigDict(frozen=True, defer_build=True)
    rule: str
    approvers: tuple[str, ...] = ()
    own_requests: bool = False
    because: str = ""
    source: str = ""
    facts: tuple[Fact, ...] | None = None

    def may_answer(self, who: str, requester: str) -> bool:
        """Whether that user may say yes or no. Nobody approves their own request unless the rule lets them."""
        return (self.own_requests or who != requester) and named(self.approvers, who)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a job waits to hear. Amounts are USD.

    ``total``: what the job may come to in all if it is approved; ``held``: what was set aside for this ask alone.
    ``max_cost``, ``max_duration``: the job's limits as they will be, where more was asked for while it ran; an
    ``extension`` leaves what runs as it is until it is approved. ``yes``: who answered which rule's question. ``by``:
    who asked for more; empty for a submission, and where the broker itself found that more is needed.
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
        """Whether it is too late for an answer."""
        return self.expires_at is not None and now >= self.expires_at

    @property
    def open(self) -> tuple[Question, ...]:
        """The questions that nobody has answered yet."""
        answered = {rule for rule, _ in self.yes}
        return tuple(question for question in self.questions if question.rule not in answered)

    @property
    def approvers(self) -> tuple[str, ...]:
        """Everybody who may answer something that is still open."""
        return tuple(sorted({name for question in self.open for name in question.approvers}))

    def whom(self, requester: str) -> str:
        """Whom the requester may ask, as a sentence names them: ``ann or bob``, and where several rules need a yes of
        different people, ``ann or bob, and carl``."""
        asked = []
        for question in self.open:
            names = [name for name in question.approvers if question.may_answer(name, requester)]
            asked.append(" or ".join(sorted(names or question.approvers)))
        return ", and ".join(dict.fromkeys(asked))

    def answerable_by(self, who: str, requester: str) -> tuple[Question, ...]:
        """The open questions that this user may answer."""
        return tuple(question for question in self.open if question.may_answer(who, requester))

    def answered(self, who: str, rules: Iterable[str]) -> Asked:
        """With these rules' questions answered with yes."""
        return replace(self, yes=(*self.yes, *((rule, who) for rule in rules)))

    def grants(self) -> tuple[Grant, ...]:
        """What everybody's yes comes to: one grant for each who said it."""
        rules: dict[str, list[str]] = {}
        for rule, who in self.yes:
            if who:  # what nobody asks any more was approved by nobody
                rules.setdefault(who, []).append(rule)
        known = {question.rule: question.facts for question in self.questions}
        return tuple(
            Grant(who, tuple(theirs), self.total, self.lasts, self.gpus or None, facts=_facts_of(theirs, known))
            for who, theirs in rules.items()
        )


def _facts_of(
    rules: Iterable[str], known: Mapping[str, tuple[Fact, ...] | None]
) -> Mapping[str, tuple[Fact, ...]] | None:
    """The facts of these rules' questions; None where they were not kept."""
    found = {rule: facts for rule in rules if (facts := known.get(rule)) is not None}
    return found or None


@dataclass(frozen=True, slots=True)
class StandingGrant:
    """An approval ahead: for whom (names or patterns; empty: anybody), for which ``rules``, how much in ``total`` (USD,
    over all jobs that use it) and until when (UTC). ``used``: what those jobs have spent and hold. ``revoked_at``: when
    it was taken back; what was launched under it goes on."""

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
        """Whether it may be used now."""
        return self.revoked_at is None and self.at <= now < self.until

    def is_for(self, action: Action) -> bool:
        """Whether the user and the job of an action are meant."""
        job = action.job
        return all(
            not patterns or (name is not None and named(patterns, name))
            for patterns, name in ((self.users, action.user), (self.teams, job.team), (self.projects, job.project))
        )

    def grant(self, own: Money) -> Grant:
        """It as a grant for one job, of which ``own`` is used already. The same limit as for everybody together."""
        left = max(self.total - self.used + own, Money.ZERO)
        return Grant(self.by, self.rules, left, standing=self.number, until=self.until)


def named(patterns: Iterable[str], who: str) -> bool:
    """Whether a user is among these names or shell-style patterns, capitals counting."""
    return any(fnmatchcase(who, pattern) for pattern in patterns)


def questions(verdicts: Iterable[Verdict]) -> tuple[Question, ...]:
    """What is to be asked, a question for each rule that asks."""
    return tuple(
        Question(
            rule=verdict.name,
            approvers=verdict.approvers,
            own_requests=verdict.own_requests,
            because=verdict.message,
            source=str(verdict.source),
            facts=tuple(_until_answered(fact, verdict.expires or DEFAULT_EXPIRY) for fact in verdict.looked_at),
        )
        for verdict in verdicts
        if verdict.answer is Answer.ASK
    )


def _until_answered(fact: Fact, expires: timedelta) -> Fact:
    """The fact as it may be once somebody answers in time: an end that is put off by waiting may be put off so long."""
    if fact.aspect is not Aspect.ENDS_BY or not isinstance(fact.value, int):
        return fact
    return fact.model_copy(update={"value": fact.value + round(expires.total_seconds() * 1_000_000)})


def expiry(verdicts: Iterable[Verdict], now: datetime) -> datetime:
    """Until when an answer is waited for: the shortest time that a rule gives."""
    given = [verdict.expires for verdict in verdicts if verdict.answer is Answer.ASK and verdict.expires]
    return now + min(given, default=DEFAULT_EXPIRY)


def total_of(action: Action) -> Money:
    """What the job may come to in all: spent, held and asked for. What was paid before does not count."""
    asked = (amount for kind, amount in (action.hold or {}).items() if kind is not MoneyKind.AMORTISED)
    return sum(asked, action.spent + action.held)


def lasts(action: Action) -> timedelta | None:
    """How long the job may run in all; None where that is not known."""
    if action.window is None:
        return None
    return action.elapsed + max(action.window[1] - action.window[0], timedelta(0))


def with_grants(
    verdicts: Sequence[Verdict], action: Action, grants: Sequence[Grant], now: datetime
) -> Sequence[Verdict]:
    """The verdicts, with those that ask allowing what was approved. A denial stays what it is."""
    if not grants or all(verdict.answer is not Answer.ASK for verdict in verdicts):
        return verdicts
    return [_with(verdict, action, grants, now) for verdict in verdicts]


def _with(verdict: Verdict, action: Action, grants: Sequence[Grant], now: datetime) -> Verdict:
    if verdict.answer is not Answer.ASK:
        return verdict
    found = next((grant for grant in grants if _covers(grant, verdict, action, now)), None)
    if found is None:
        return verdict
    how = f"approved by {found.by}"
    if found.standing is not None:
        how += f" (standing grant {found.standing})"
    figures = dict(verdict.figures) | {"approved_by": found.by, "up_to": found.up_to.as_json()}
    if found.standing is not None:
        figures["standing"] = str(found.standing)
    return replace(verdict, answer=Answer.ALLOW, code="approved", message=f"{how}: {verdict.message}", figures=figures)


def _covers(grant: Grant, verdict: Verdict, action: Action, now: datetime) -> bool:
    if verdict.name not in grant.rules or total_of(action) > grant.up_to:
        return False
    longest, gpus = lasts(action), action.placement.gpus if action.placement else 0
    if grant.max_duration is not None and longest is not None and longest > grant.max_duration:
        return False
    if grant.gpus is not None and gpus > grant.gpus:
        return False
    if grant.standing is None:
        return _covers_facts(grant, verdict, action)
    # Made ahead of the request: whoever made it must still be somebody who could approve this very one.
    in_time = grant.until is None or now < grant.until
    return in_time and Question(
        rule=verdict.name, approvers=verdict.approvers, own_requests=verdict.own_requests
    ).may_answer(grant.by, action.user)


def _covers_facts(grant: Grant, verdict: Verdict, action: Action) -> bool:
    """Whether what the rule looked at was approved. Of an approval of before facts were kept nobody knows what it was
    about; what runs was let through by it, and goes on."""
    if grant.facts is None and action.kind is ActionKind.CONTINUE:
        return True
    return covers((grant.facts or {}).get(verdict.name, ()), verdict.looked_at)


def standing_used(verdicts: Iterable[Verdict]) -> dict[int, tuple[str, tuple[str, ...]]]:
    """Which standing grants let something through: by number, who gave it and the rules that it answered."""
    found: dict[int, tuple[str, tuple[str, ...]]] = {}
    for verdict in verdicts:
        if verdict.code == "approved" and "standing" in verdict.figures:
            number = int(verdict.figures["standing"])
            _, rules = found.get(number, ("", ()))
            found[number] = (verdict.figures["approved_by"], (*rules, verdict.name))
    return found
