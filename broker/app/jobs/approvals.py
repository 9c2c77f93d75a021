"""Approval requests: list, grant and refuse them; standing grants (approvals given in advance)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker.app.jobs.approval_reevaluation import record_answer, reevaluate
from broker.app.jobs.jobs import find
from broker.app.jobs.unknown_names import has_account
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import Conflict, InvalidInput, NotAllowed, UnknownName, did_you_mean
from broker.core.events import events as ev
from broker.core.events.events import Event
from broker.core.events.lifecycle import request_after
from broker.core.events.views import JobView
from broker.core.policy.approvals import Question, RequestedApproval, StandingGrant, matches_any
from broker.core.values.money import Money
from broker.reconciler.admission.approvals import refuse as refuse_in
from broker.store.jobs.journal import StoreWriter

_MAX_JOBS = 200  # jobs whose approval requests a full list contains, at most


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
    broker: Broker, *, include_decided: bool = False, teams: Collection[str] | None = None
) -> list[TrackedApproval]:
    """The open approval requests, oldest first; with ``include_decided`` also those of the last 200 jobs that are
    decided. ``teams``: only requests of their jobs."""
    now = broker.clock.now()
    with broker.store.reading() as reader:
        if not include_decided:
            waiting = [view for view in reader.unclosed(teams) if view.asked is not None]
            tracked_requests = [request for view in waiting if (request := _open_request(view, now)) is not None]
        else:
            views = reader.views(reader.asked_about(_MAX_JOBS))
            events_by_job = reader.approval_events([view.id for view in views])
            tracked_requests = [
                request for view in views for request in _request_history(view, events_by_job.get(view.id, ()), now)
            ]
    team_requests = [approval for approval in tracked_requests if teams is None or approval.view.job.team in teams]
    return sorted(team_requests, key=lambda request: (request.asked.at, request.view.id))


def _open_request(view: JobView, now: datetime) -> TrackedApproval | None:
    if view.asked is None:
        return None
    state = ApprovalState.EXPIRED if view.asked.expired(now) else ApprovalState.WAITING
    return TrackedApproval(view, view.asked, state)


def _request_history(view: JobView, events: Sequence[Event], now: datetime) -> list[TrackedApproval]:
    """Every request of one job, from the approval events of its stream."""
    history: list[TrackedApproval] = []
    request: RequestedApproval | None = None
    notes: list[str] = []
    for event in events:
        next_request = request_after(request, event)
        if isinstance(event.body, ev.ApprovalAsked):
            notes = []
        elif isinstance(event.body, ev.ApprovalGiven) and event.body.note:
            notes.append(event.body.note)
        if request is not None and next_request is None:
            history.append(_decided_request(view, request, event, notes))
        request = next_request
    if request is not None and view.state.final:
        history.append(TrackedApproval(view, request, ApprovalState.WITHDRAWN, view.ended_at))
    open_request = _open_request(view, now)
    return [*history, open_request] if open_request else history


def _decided_request(view: JobView, request: RequestedApproval, event: Event, notes: Sequence[str]) -> TrackedApproval:
    body = event.body
    if isinstance(body, ev.ApprovalRefused):
        state = ApprovalState.REFUSED if body.by else ApprovalState.EXPIRED
        reasons = "; ".join(filter(None, [*notes, body.note]))
        return TrackedApproval(view, request, state, event.at, (body.by,) if body.by else (), reasons)
    if isinstance(body, ev.ApprovalGiven):
        request = request.answered(body.by, body.rules)
    approvers = tuple(dict.fromkeys(name for _, name in request.yes if name))
    return TrackedApproval(view, request, ApprovalState.APPROVED, event.at, approvers, "; ".join(notes))


def grant(broker: Broker, reference: str, reason: str = "", *, by: Actor) -> JobView:
    """Approve the open request of a job, for the rules that ``by`` may answer. Once every rule is answered, the job
    continues, or gets the requested limits. The policies in force decide who must approve; a rule that no longer asks
    needs no answer. ``reason``: kept with the approval.

    ``reference``: as `broker.app.jobs.jobs.find` takes it. Raises `UnknownName`; `NotAllowed` if there is no request,
    it has expired, ``by`` is not an approver of it or has approved it already, or the policies in force deny it.
    """
    view = find(broker, reference)
    with broker.store.writing() as tx:
        current, request = _load_open_request(broker, tx, view)
        now = broker.clock.now()
        reevaluation = reevaluate(tx, broker.policy(tx), current, now)
        if reevaluation is not None and reevaluation.denials:
            denials = "; ".join(
                f"{verdict.name}: {verdict.message} ({verdict.source})" for verdict in reevaluation.denials
            )
            raise NotAllowed(
                f"the policies in force deny the request of {current.user} for {current.id}, so that nobody can approve"
                f" it: {denials}",
                hint=f"`gpubroker approvals refuse {current.id}`, or change the policies and approve it then",
            )
        request = reevaluation.under_rules(request, current) if reevaluation else request
        questions = _answerable_questions(by, current, request) if request.open else ()
        rules = tuple(question.rule for question in questions)
        return record_answer(tx, current, reevaluation, now, by=by.identity, rules=rules, note=reason)


def refuse(broker: Broker, reference: str, reason: str = "", *, by: Actor) -> JobView:
    """Refuse the open request of a job. The money held for the request is released. A job that never ran ends, a
    waiting one is paused, a running one continues with its present limits. Raises as `grant`, but also refuses a
    request that the policies in force deny."""
    view = find(broker, reference)
    with broker.store.writing() as tx:
        current, request = _load_open_request(broker, tx, view)
        try:
            reevaluation = reevaluate(tx, broker.policy(tx), current, broker.clock.now())
        except InvalidInput:  # an unreadable policy must not prevent the release of money
            reevaluation = None
        current_request = (
            request if reevaluation is None or reevaluation.denials else reevaluation.under_rules(request, current)
        )
        _answerable_questions(by, current, current_request if current_request.open else request)
        return refuse_in(tx, current, broker.clock.now(), by=by.identity, note=reason)


def _load_open_request(broker: Broker, tx: StoreWriter, view: JobView) -> tuple[JobView, RequestedApproval]:
    """The job as it is now, and its open request. Raises `Conflict` if there is none, or it has expired."""
    current = tx.job(view.id) or view
    request = current.asked
    if request is None:
        state = current.state.value.replace("_", " ")
        raise Conflict(
            f"{current.id} waits for no approval; it is {state}", hint="`gpubroker approvals list` lists open requests"
        )
    if request.expires_at is not None and request.expired(broker.clock.now()):
        raise Conflict(
            f"too late: the request of {current.user} for {current.id} expired at "
            f"{request.expires_at:%Y-%m-%d %H:%M} UTC",
            hint="submit it again, or `gpubroker jobs extend` it again",
        )
    return current, request


def _answerable_questions(by: Actor, current: JobView, request: RequestedApproval) -> tuple[Question, ...]:
    """The requests of single rules that ``by`` may answer. Raises `NotAllowed` if there are none."""
    approver = by.identity
    if questions := request.questions_for(approver, current.user):
        return questions
    if any(matches_any(question.approvers, approver) for question in request.open):
        raise NotAllowed(
            f"{current.id} is your own request, which another person must approve",
            hint=_other_approvers_hint(request, approver),
        )
    if any(name == approver for _, name in request.yes):
        raise Conflict(f"you have approved {current.id} already", hint=_other_approvers_hint(request, approver))
    raise NotAllowed(
        f"you are {approver}, and not among those who approve {current.id}",
        hint=_other_approvers_hint(request, approver),
    )


def _other_approvers_hint(request: RequestedApproval, approver: str) -> str:
    names = [name for name in request.approvers if name != approver]
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


def give_standing(broker: Broker, grant_request: GrantRequest, *, by: Actor) -> StandingGrant:
    """Give a standing grant: matching jobs need no further approval, up to its total. Not idempotent: each call gives
    another grant.

    Raises `InvalidInput` if it names nobody, or its total or time is not positive; `UnknownName` for a rule that asks
    for no approval, or a team that the policies do not list; `NotAllowed` if ``by`` may not answer a rule, or names
    themselves while no rule allows approving own requests.
    """
    now, approver = broker.clock.now(), by.identity
    if not (grant_request.users or grant_request.teams or grant_request.projects):
        raise InvalidInput("no user, team or project is named", hint="add --for-user, --for-team or --for-project")
    if grant_request.total <= Money.ZERO:
        raise InvalidInput(f"expected more than $0 in total; got {grant_request.total}", where="--total")
    if grant_request.until <= now:
        raise InvalidInput(
            f"expected a time in the future; got {grant_request.until:%Y-%m-%d %H:%M} UTC", where="--until"
        )
    policy = broker.policy()
    for team in grant_request.teams:
        if policy.teams and not any(matches_any((team,), known_team) for known_team in policy.teams):
            raise UnknownName("team", team, policy.teams)
    approvers_by_rule = {rule.name: policy.approvers(rule.name) for rule in policy.rules if policy.approvers(rule.name)}
    for name in grant_request.rules:
        if name not in approvers_by_rule:
            raise UnknownName("rule that asks for approval", name, approvers_by_rule)
        if not matches_any(approvers_by_rule[name], approver):
            raise NotAllowed(
                f"the approvers of {name} are {', '.join(approvers_by_rule[name])}, and you are {approver}"
            )
    rules = grant_request.rules or tuple(
        name for name, approvers in approvers_by_rule.items() if matches_any(approvers, approver)
    )
    if not rules:
        raise NotAllowed(f"{approver} is not an approver in the active policy", hint="see `gpubroker policy show`")
    if approver in grant_request.users and not any(map(policy.own_requests, rules)):
        other_approvers = sorted({name for rule in rules for name in approvers_by_rule[rule]} - {approver})
        raise NotAllowed(
            f"people may not approve their own requests, so the grant would never apply to {approver}",
            hint=f"ask {' or '.join(other_approvers)}"
            if other_approvers
            else "a rule may allow it: `own_requests: true`",
        )
    standing_grant = StandingGrant(
        0,
        approver,
        now,
        grant_request.until,
        grant_request.total,
        rules,
        grant_request.users,
        grant_request.teams,
        grant_request.projects,
        grant_request.note,
    )
    with broker.store.writing() as tx:
        return tx.give_standing(standing_grant)


def unknown_grantees(broker: Broker, grant_request: GrantRequest) -> list[str]:
    """A warning for each name in the grant that may be misspelled: users with neither a job, nor an account on this
    machine, nor an approver's role; teams and projects without a job. Patterns are not checked."""
    policy = broker.policy()
    with broker.store.reading() as reader:
        recorded_names = reader.names_in_jobs()
    people = {name for rule in policy.rules for name in policy.approvers(rule.name)} | recorded_names["user"]
    warnings = [
        f"no job of user {name!r} is known{did_you_mean(name, people)}"
        for name in grant_request.users
        if _is_literal(name) and name not in people and not has_account(name)
    ]
    groups = [
        ("team", grant_request.teams, recorded_names["team"] | policy.teams),
        ("project", grant_request.projects, recorded_names["project"]),
    ]
    for kind, names, known_names in groups:
        unknown_names = (name for name in names if _is_literal(name) and name not in known_names)
        warnings += [f"no job of {kind} {name!r} is known{did_you_mean(name, known_names)}" for name in unknown_names]
    return warnings


def _is_literal(text: str) -> bool:
    return not set("*?[").intersection(text)


def standing_grants(broker: Broker, *, include_ended: bool = False) -> list[StandingGrant]:
    """The standing grants that are valid now; with ``include_ended`` also earlier ones, oldest first."""
    now = broker.clock.now()
    with broker.store.reading() as reader:
        return list(reader.standing_grants(None if include_ended else now))


def revoke(broker: Broker, number: int, *, by: Actor) -> StandingGrant:
    """Revoke a standing grant; jobs launched under it continue. Raises `UnknownName`, and `NotAllowed` for another
    person's grant unless ``by`` is an administrator."""
    with broker.store.writing() as tx:
        giver = next(
            (standing_grant.by for standing_grant in tx.standing_grants() if standing_grant.number == number),
            by.identity,
        )
        if not by.may_act_for(giver):
            raise NotAllowed(f"standing grant {number} is {giver}'s, and you are {by.identity}", hint=f"ask {giver}")
        return tx.revoke_standing(number, by=by.identity, at=broker.clock.now())
