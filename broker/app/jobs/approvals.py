"""Approval requests: list, grant and refuse them; standing grants (approvals given in advance)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker.app.jobs.approval_reevaluation import answer, reevaluated
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

_MOST_JOBS = 200  # jobs whose approval requests a full list contains, at most


class ApprovalState(StrEnum):
    """The state of a request. ``WITHDRAWN``: the job ended before anybody decided."""

    WAITING = "waiting"
    APPROVED = "approved"
    REFUSED = "refused"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class TrackedApproval:
    """One approval request: the job as it is now, the request, its state; who decided when (UTC), and why
    (``note``)."""

    view: JobView
    asked: RequestedApproval
    state: ApprovalState
    decided_at: datetime | None = None
    decided_by: tuple[str, ...] = ()
    note: str = ""


def requests(
    broker: Broker, *, all_of_them: bool = False, teams: Collection[str] | None = None
) -> list[TrackedApproval]:
    """The open approval requests, oldest first; with ``all_of_them`` also those of the last 200 jobs that are decided.
    ``teams``: only requests of their jobs."""
    now = broker.clock.now()
    with broker.store.reading() as look:
        if not all_of_them:
            waiting = [view for view in look.unclosed(teams) if view.asked is not None]
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
    """Every request of one job, from the approval events of its stream."""
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
    if asked is not None and view.state.final:
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
    """Approve the open request of a job, for the rules that ``by`` may answer. Once every rule is answered, the job
    continues, or gets the requested limits. The policies in force decide who must approve; a rule that no longer asks
    needs no answer. ``reason``: kept with the approval.

    ``reference``: as `broker.app.jobs.jobs.find` takes it. Raises `UnknownName`; `NotAllowed` if there is no request,
    it has expired, ``by`` is not an approver of it or has approved it already, or the policies in force deny it.
    """
    view = find(broker, reference)
    with broker.store.writing() as tx:
        current, asked = _waits(broker, tx, view)
        now = broker.clock.now()
        anew = reevaluated(tx, broker.policy(tx), current, now)
        if anew is not None and anew.denials:
            denials = "; ".join(f"{one.name}: {one.message} ({one.source})" for one in anew.denials)
            raise NotAllowed(
                f"the policies in force deny the request of {current.user} for {current.id}, so that nobody can approve"
                f" it: {denials}",
                hint=f"`gpubroker approvals refuse {current.id}`, or change the policies and approve it then",
            )
        asked = anew.under_rules(asked, current) if anew else asked
        mine = _answerable(by, current, asked) if asked.open else ()
        rules = tuple(question.rule for question in mine)
        return answer(tx, current, anew, now, by=by.identity, rules=rules, note=reason)


def refuse(broker: Broker, reference: str, reason: str = "", *, by: Actor) -> JobView:
    """Refuse the open request of a job. The money held for the request is released. A job that never ran ends, a
    waiting one is paused, a running one continues with its present limits. Raises as `grant`, but also refuses a
    request that the policies in force deny."""
    view = find(broker, reference)
    with broker.store.writing() as tx:
        current, asked = _waits(broker, tx, view)
        try:
            anew = reevaluated(tx, broker.policy(tx), current, broker.clock.now())
        except InvalidInput:  # an unreadable policy must not prevent the release of money
            anew = None
        still = asked if anew is None or anew.denials else anew.under_rules(asked, current)
        _answerable(by, current, still if still.open else asked)
        return refuse_in(tx, current, broker.clock.now(), by=by.identity, note=reason)


def _waits(broker: Broker, tx: Writing, view: JobView) -> tuple[JobView, RequestedApproval]:
    """The job as it is now, and its open request. Raises `NotAllowed` if there is none, or it has expired."""
    current = tx.job(view.id) or view
    asked = current.asked
    if asked is None:
        where = current.state.value.replace("_", " ")
        raise NotAllowed(
            f"{current.id} waits for no approval; it is {where}", hint="`gpubroker approvals list` lists open requests"
        )
    if asked.expires_at is not None and asked.expired(broker.clock.now()):
        raise NotAllowed(
            f"too late: the request of {current.user} for {current.id} expired at "
            f"{asked.expires_at:%Y-%m-%d %H:%M} UTC",
            hint="submit it again, or `gpubroker jobs extend` it again",
        )
    return current, asked


def _answerable(by: Actor, current: JobView, asked: RequestedApproval) -> tuple[Question, ...]:
    """The requests of single rules that ``by`` may answer. Raises `NotAllowed` if there are none."""
    who = by.identity
    if mine := asked.answerable_by(who, current.user):
        return mine
    if any(named(question.approvers, who) for question in asked.open):
        raise NotAllowed(
            f"{current.id} is your own request, which another person must approve", hint=_others(asked, who)
        )
    if any(name == who for _, name in asked.yes):
        raise NotAllowed(f"you have approved {current.id} already", hint=_others(asked, who))
    raise NotAllowed(f"you are {who}, and not among those who approve {current.id}", hint=_others(asked, who))


def _others(asked: RequestedApproval, who: str) -> str:
    """A hint that names the other approvers."""
    names = [name for name in asked.approvers if name != who]
    return f"ask {' or '.join(names)}" if names else "the policy names nobody else: `gpubroker policy show`"


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """A standing grant before it is given. ``total``: USD over all jobs that use it; ``until``: UTC. ``rules``: empty:
    all that the approver may answer. A job must match each of ``users``, ``teams`` and ``projects`` that is not
    empty."""

    total: Money
    until: datetime
    rules: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    note: str = ""


def give_standing(broker: Broker, wanted: GrantRequest, *, by: Actor) -> StandingGrant:
    """Give a standing grant: matching jobs need no further approval, up to its total. Not idempotent: each call gives
    another grant.

    Raises `InvalidInput` if it names nobody, or its total or time is not positive; `UnknownName` for a rule that asks
    for no approval, or a team that the policies do not list; `NotAllowed` if ``by`` may not answer a rule, or names
    themselves while no rule allows approving own requests.
    """
    now, who = broker.clock.now(), by.identity
    if not (wanted.users or wanted.teams or wanted.projects):
        raise InvalidInput("no user, team or project is named", hint="add --for-user, --for-team or --for-project")
    if wanted.total <= Money.ZERO:
        raise InvalidInput(f"expected more than $0 in total; got {wanted.total}", where="--total")
    if wanted.until <= now:
        raise InvalidInput(f"expected a time in the future; got {wanted.until:%Y-%m-%d %H:%M} UTC", where="--until")
    policy = broker.policy()
    for team in wanted.teams:
        if policy.teams and not any(named((team,), listed) for listed in policy.teams):
            raise UnknownName("team", team, policy.teams)
    asking = {rule.name: policy.approvers(rule.name) for rule in policy.rules if policy.approvers(rule.name)}
    for name in wanted.rules:
        if name not in asking:
            raise UnknownName("rule that asks for approval", name, asking)
        if not named(asking[name], who):
            raise NotAllowed(f"the approvers of {name} are {', '.join(asking[name])}, and you are {who}")
    rules = wanted.rules or tuple(name for name, approvers in asking.items() if named(approvers, who))
    if not rules:
        raise NotAllowed(f"{who} is not an approver in the active policy", hint="see `gpubroker policy show`")
    if who in wanted.users and not any(_own_requests(policy, name) for name in rules):
        others = sorted({name for rule in rules for name in asking[rule]} - {who})
        raise NotAllowed(
            f"people may not approve their own requests, so the grant would never apply to {who}",
            hint=f"ask {' or '.join(others)}" if others else "a rule may allow it: `own_requests: true`",
        )
    given = StandingGrant(
        0, who, now, wanted.until, wanted.total, rules, wanted.users, wanted.teams, wanted.projects, wanted.note
    )
    with broker.store.writing() as tx:
        return tx.give_standing(given)


def _own_requests(policy: PolicySet, rule: str) -> bool:
    """Whether a rule allows people to approve their own requests: ``own_requests`` next to its name or in its terms."""
    written = policy.written(rule)
    terms = [written, *(value for value in written.values() if isinstance(value, Mapping))]
    return any(one.get("own_requests") is True for one in terms)


def unknown_grantees(broker: Broker, wanted: GrantRequest) -> list[str]:
    """A warning for each name in the grant that may be misspelled: users with neither a job, nor an account on this
    machine, nor an approver's role; teams and projects without a job. Patterns are not checked."""
    policy = broker.policy()
    with broker.store.reading() as look:
        seen = look.names_in_jobs()
    people = {name for rule in policy.rules for name in policy.approvers(rule.name)} | seen["user"]
    found = [
        f"no job of user {name!r} is known{did_you_mean(name, people)}"
        for name in wanted.users
        if _is_name(name) and name not in people and not has_account(name)
    ]
    groups = [("team", wanted.teams, seen["team"] | policy.teams), ("project", wanted.projects, seen["project"])]
    for kind, names, known in groups:
        strange = (name for name in names if _is_name(name) and name not in known)
        found += [f"no job of {kind} {name!r} is known{did_you_mean(name, known)}" for name in strange]
    return found


def _is_name(text: str) -> bool:
    return not set("*?[").intersection(text)


def standing_grants(broker: Broker, *, all_of_them: bool = False) -> list[StandingGrant]:
    """The standing grants that are valid now; with ``all_of_them`` also earlier ones, oldest first."""
    now = broker.clock.now()
    with broker.store.reading() as look:
        return list(look.standing_grants(None if all_of_them else now))


def revoke(broker: Broker, number: int, *, by: Actor) -> StandingGrant:
    """Revoke a standing grant; jobs launched under it continue. Raises `UnknownName`, and `NotAllowed` for another
    person's grant unless ``by`` is an administrator."""
    with broker.store.writing() as tx:
        theirs = next((one.by for one in tx.standing_grants() if one.number == number), by.identity)
        if not by.may_act_for(theirs):
            raise NotAllowed(f"standing grant {number} is {theirs}'s, and you are {by.identity}", hint=f"ask {theirs}")
        return tx.revoke_standing(number, by=by.identity, at=broker.clock.now())
