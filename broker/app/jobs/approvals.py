"""Who asks, who answers: what waits for approval, granting and refusing it, and approvals ahead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker.app.jobs.approval_reevaluation import answer, judged_anew
from broker.app.jobs.jobs import find
from broker.app.policy.unknown_names import has_account
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput, NotAllowed, UnknownName, did_you_mean
from broker.core.events import events as ev
from broker.core.events.events import Event
from broker.core.events.lifecycle import request_after
from broker.core.events.views import JobView
from broker.core.policy.approvals import Question, RequestedApproval, StandingGrant, named
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from broker.ledger.journal import Writing
from broker.reconciler.admission.approvals import refuse as refuse_in

# How many jobs about which something was asked a list goes back to.
_MOST_JOBS = 200


class ApprovalState(StrEnum):
    """Where a request stands."""

    WAITING = "waiting"
    APPROVED = "approved"
    REFUSED = "refused"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class TrackedApproval:
    """One request for approval: the job as it is now, what was asked, where it stands; who decided when, and why."""

    view: JobView
    asked: RequestedApproval
    state: ApprovalState
    decided_at: datetime | None = None
    decided_by: tuple[str, ...] = ()
    note: str = ""


def requests(
    broker: Broker, *, all_of_them: bool = False, teams: Collection[str] | None = None
) -> list[TrackedApproval]:
    """What waits for approval, the oldest first; with ``all_of_them`` also what was decided, the newest last.
    ``teams``: only of their jobs."""
    now = broker.clock.now()
    with broker.store.reading() as look:
        if not all_of_them:
            waiting = [view for view in look.unclosed() if view.asked is not None]
            found = [request for view in waiting if (request := _waiting(view, now)) is not None]
        else:
            views = look.views(look.asked_about(_MOST_JOBS))
            words = look.approval_events([view.id for view in views])
            found = [request for view in views for request in _history(view, words.get(view.id, ()), now)]
    mine = [one for one in found if teams is None or one.view.job.team in teams]
    return sorted(mine, key=lambda request: (request.asked.at, request.view.id))


def _waiting(view: JobView, now: datetime) -> TrackedApproval | None:
    if view.asked is None:
        return None
    state = ApprovalState.EXPIRED if view.asked.expired(now) else ApprovalState.WAITING
    return TrackedApproval(view, view.asked, state)


def _history(view: JobView, events: Sequence[Event], now: datetime) -> list[TrackedApproval]:
    """Every request of one job, told by the events of its stream that are about approval."""
    found: list[TrackedApproval] = []
    asked: RequestedApproval | None = None
    notes: list[str] = []
    for event in events:
        after = request_after(asked, event)
        if isinstance(event.body, ev.ApprovalAsked):
            notes = []
        elif isinstance(event.body, ev.ApprovalGiven) and event.body.note:
            notes.append(event.body.note)
        if asked is not None and after is None:
            found.append(_decided(view, asked, event, notes))
        asked = after
    if asked is not None and view.state.final:  # it ended before anybody had decided
        found.append(TrackedApproval(view, asked, ApprovalState.WITHDRAWN, view.ended_at))
    last = _waiting(view, now)
    return [*found, last] if last else found


def _decided(view: JobView, asked: RequestedApproval, event: Event, notes: Sequence[str]) -> TrackedApproval:
    body = event.body
    if isinstance(body, ev.ApprovalRefused):
        state = ApprovalState.REFUSED if body.by else ApprovalState.EXPIRED
        return TrackedApproval(view, asked, state, event.at, (body.by,) if body.by else (), body.note)
    last = body.by if isinstance(body, ev.ApprovalGiven) else ""
    who = tuple(dict.fromkeys(filter(None, [*(name for _, name in asked.yes), last])))
    return TrackedApproval(view, asked, ApprovalState.APPROVED, event.at, who, "; ".join(notes))


def grant(broker: Broker, reference: str, reason: str = "", *, by: Actor) -> JobView:
    """Say yes to what a job waits for, as far as it is for the user to say. Once everybody has who is asked, the job
    goes on, or has the limits that were asked for. The policies of now say who is asked: what none of them asks any
    more needs nobody's yes.

    ``reference``: as `broker.app.jobs.jobs.find` takes it. Raises `UnknownName`, and `NotAllowed` when nothing is
    asked, it is too late, the user is not among those who may approve it, or the policies deny it by now.
    """
    view = find(broker, reference)
    with broker.store.writing() as tx:
        current, asked = _waits(broker, tx, view)
        now = broker.clock.now()
        anew = judged_anew(tx, broker.policy(tx), current, now)
        if anew is not None and anew.denials:
            words = "; ".join(f"{one.name}: {one.message} ({one.source})" for one in anew.denials)
            raise NotAllowed(
                f"the policies in force deny what {current.user} asks for {current.id}, and no approval is above them:"
                f" {words}",
                hint=f"`gpubroker approvals refuse {current.id}`, or let it wait until they are changed",
            )
        asked = anew.still(asked) if anew else asked
        mine = _answerable(by, current, asked) if asked.open else ()
        rules = tuple(question.rule for question in mine)
        return answer(tx, current, anew, now, by=by.identity, rules=rules, note=reason)


def refuse(broker: Broker, reference: str, reason: str = "", *, by: Actor) -> JobView:
    """Say no to what a job waits for. What was held for it is given back; one that never ran ends, one that waits is
    paused, what runs goes on with what it had. Raises as `grant` does."""
    view = find(broker, reference)
    with broker.store.writing() as tx:
        current, asked = _waits(broker, tx, view)
        try:
            anew = judged_anew(tx, broker.policy(tx), current, broker.clock.now())
        except InvalidInput:  # a policy that cannot be read keeps nobody from giving money back
            anew = None
        still = asked if anew is None or anew.denials else anew.still(asked)
        _answerable(by, current, still if still.open else asked)
        return refuse_in(tx, current, broker.clock.now(), by=by.identity, note=reason)


def _waits(broker: Broker, tx: Writing, view: JobView) -> tuple[JobView, RequestedApproval]:
    """The job as it is now, and what it waits for. Raises `NotAllowed` where that is nothing, or too late."""
    current = tx.job(view.id) or view
    asked = current.asked
    if asked is None:
        where = current.state.value.replace("_", " ")
        raise NotAllowed(f"{current.id} waits for no approval; it is {where}", hint="`gpubroker approvals list`")
    if asked.expires_at is not None and asked.expired(broker.clock.now()):
        raise NotAllowed(
            f"too late: the request of {current.user} for {current.id} expired at "
            f"{asked.expires_at:%Y-%m-%d %H:%M} UTC",
            hint="submit it again, or `gpubroker jobs extend` it again",
        )
    return current, asked


def _answerable(by: Actor, current: JobView, asked: RequestedApproval) -> tuple[Question, ...]:
    """What of that the user may answer. Raises `NotAllowed`."""
    who = by.identity
    # Neither whose job it is nor who asks on their behalf approves it.
    mine = tuple(q for q in asked.answerable_by(who, current.user) if q.may_answer(who, asked.by))
    if mine:
        return mine
    if any(named(question.approvers, who) for question in asked.open):
        raise NotAllowed(
            f"{current.id} is your own request, and nobody approves their own",
            hint=_others(asked, who),
        )
    if any(name == who for _, name in asked.yes):
        raise NotAllowed(f"you have approved {current.id} already", hint=_others(asked, who))
    raise NotAllowed(f"you are {who}, and not among those who approve {current.id}", hint=_others(asked, who))


def _others(asked: RequestedApproval, who: str) -> str:
    """Whom else to ask."""
    names = [name for name in asked.approvers if name != who]
    return f"ask {' or '.join(names)}" if names else "the policy names nobody else: `gpubroker policy show`"


@dataclass(frozen=True, slots=True)
class Ahead:
    """An approval ahead, as it is asked for: for whom (all that is named must match), for which rules (none named: all
    that the user may approve), how much in all (USD) and until when (UTC)."""

    total: Money
    until: datetime
    rules: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    note: str = ""


def grant_ahead(broker: Broker, ahead: Ahead, *, by: Actor) -> StandingGrant:
    """Approve ahead. What uses it is not asked again, up to its total over all jobs.

    Raises `InvalidInput` without anybody it is for, or without money or time, `UnknownName` for a rule that does not
    ask or a team that no file lists, and `NotAllowed` when the user may not approve what a rule asks, or would approve
    their own requests where no rule lets them.
    """
    now, who = broker.clock.now(), by.identity
    if not (ahead.users or ahead.teams or ahead.projects):
        raise InvalidInput("it must be said for whom", hint="say --for-user, --for-team or --for-project")
    if ahead.total <= Money.ZERO:
        raise InvalidInput(f"expected more than $0 in all; got {ahead.total}", where="--total")
    if ahead.until <= now:
        raise InvalidInput(f"expected a time to come; {ahead.until:%Y-%m-%d %H:%M} UTC is past", where="--until")
    policy = broker.policy()
    for team in ahead.teams:
        if policy.teams and not any(named((team,), listed) for listed in policy.teams):
            raise UnknownName("team", team, policy.teams)
    asking = {rule.name: policy.approvers(rule.name) for rule in policy.rules if policy.approvers(rule.name)}
    for name in ahead.rules:
        if name not in asking:
            raise UnknownName("rule that asks", name, asking)
        if not named(asking[name], who):
            raise NotAllowed(f"{name} asks {', '.join(asking[name])}, and you are {who}")
    rules = ahead.rules or tuple(name for name, approvers in asking.items() if named(approvers, who))
    if not rules:
        raise NotAllowed(f"no rule of the active policy asks {who}", hint="see `gpubroker policy show`")
    if who in ahead.users and not any(_own_requests(policy, name) for name in rules):
        others = sorted({name for rule in rules for name in asking[rule]} - {who})
        raise NotAllowed(
            f"nobody approves their own requests, ahead neither: it would never be used for {who}",
            hint=f"ask {' or '.join(others)}" if others else "a rule may allow it: `own_requests: true`",
        )
    given = StandingGrant(
        0, who, now, ahead.until, ahead.total, rules, ahead.users, ahead.teams, ahead.projects, ahead.note
    )
    with broker.store.writing() as tx:
        return tx.give_standing(given)


def _own_requests(policy: PolicySet, rule: str) -> bool:
    """Whether a rule lets those who ask approve their own requests; it says so beside its name, or among its terms."""
    said = policy.written(rule)
    terms = [said, *(value for value in said.values() if isinstance(value, Mapping))]
    return any(one.get("own_requests") is True for one in terms)


def unheard_of(broker: Broker, ahead: Ahead) -> list[str]:
    """Of those whom an approval ahead is for, who is not known here, misspelt perhaps: users with neither a job nor an
    account on this machine nor a rule that asks them, teams and projects without a job. Patterns are left out."""
    policy = broker.policy()
    with broker.store.reading() as look:
        seen = look.names_in_jobs()
    people = {name for rule in policy.rules for name in policy.approvers(rule.name)} | seen["user"]
    told = [
        f"no job here is by {name!r} so far{did_you_mean(name, people)}"
        for name in ahead.users
        if _is_name(name) and name not in people and not has_account(name)
    ]
    said = [("team", ahead.teams, seen["team"] | policy.teams), ("project", ahead.projects, seen["project"])]
    for what, names, known in said:
        strange = (name for name in names if _is_name(name) and name not in known)
        told += [f"no job here has said {what} {name!r} so far{did_you_mean(name, known)}" for name in strange]
    return told


def _is_name(text: str) -> bool:
    return not set("*?[").intersection(text)


def standing_grants(broker: Broker, *, all_of_them: bool = False) -> list[StandingGrant]:
    """Approvals ahead that are good now; with ``all_of_them`` also those that were, oldest first."""
    now = broker.clock.now()
    with broker.store.reading() as look:
        return list(look.standing_grants(None if all_of_them else now))


def revoke(broker: Broker, number: int, *, by: Actor) -> StandingGrant:
    """Take a standing grant back; what was launched under it goes on. Raises `UnknownName`, and `NotAllowed` for
    somebody else's, but for an administrator."""
    with broker.store.writing() as tx:
        theirs = next((one.by for one in tx.standing_grants() if one.number == number), by.identity)
        if not by.may_act_for(theirs):
            raise NotAllowed(f"standing grant {number} is {theirs}'s, and you are {by.identity}", hint=f"ask {theirs}")
        return tx.revoke_standing(number, by=by.identity, at=broker.clock.now())
