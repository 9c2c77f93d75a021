"""Open approval requests under changed policies: the policies in force decide which approvals are still needed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.views import JobView
from broker.core.market.offers import MoneyKind
from broker.core.policy.approvals import Question, RequestedApproval, expiry, questions
from broker.core.policy.decisions import Decision, Inputs, inputs_of, sealed, written
from broker.core.policy.policy import Action, Answer, Verdict
from broker.core.ports import PolicySet
from broker.core.values.burns import Burn
from broker.ledger.entries import Balance
from broker.ledger.journal import writing_if
from broker.reconciler.admission.admission import strictest
from broker.reconciler.admission.approvals import is_of, of_ask
from broker.reconciler.admission.facts import facts_of
from broker.reconciler.controller import AtRest, Controller, ControllerResult, DecideAnew, JobContext
from broker.store.jobs.journal import StoreWriting
from broker.store.jobs.reading import StoreReading

log = logging.getLogger(__name__)

_NEWEST = 20  # the newest decisions of a job, read first; those about its open request are seldom older
_NO_LONGER_ASKED = "no rule in force asks for it any more"


@dataclass(frozen=True, slots=True)
class Reevaluation:
    """The verdict of the policies in force on an open request. ``denials``: why nobody may approve it; empty if some
    placement is left. ``questions``: the approvals that they ask for, by rule. ``expires_at``: UTC. ``record``: the
    decision, for replay. ``other_policy``: whether the last recorded decision was made by other policies."""

    denials: tuple[Verdict, ...]
    questions: Mapping[str, Question]
    expires_at: datetime
    record: Decision
    other_policy: bool

    def under_rules(self, asked: RequestedApproval, view: JobView) -> RequestedApproval:
        """The request as the policies in force ask it: of the present approvers, whose approvals alone count."""
        return asked.under_rules(self.questions, view.user)

    def questions_to_repeat(self, asked: RequestedApproval, view: JobView) -> tuple[Question, ...]:
        """The questions that have to be asked again: new ones, of other people than before, or whose approval counts no
        more."""
        before = {question.rule: (question.approvers, question.own_requests) for question in asked.open}
        now = self.under_rules(asked, view).open
        return tuple(q for q in now if before.get(q.rule) != (q.approvers, q.own_requests))


def last_judged(look: StoreReading, view: JobView) -> Decision | None:
    """The newest recorded decision about the job's open request; None if there is none. Decisions about other actions
    of the job, such as a stop or a move meanwhile, do not count."""
    if view.asked is None:
        return None
    for limit in (_NEWEST, None):
        for one in look.decisions(job_id=view.id, limit=limit):
            if is_of(one, view.asked):
                return one
    return None


def reevaluated(look: StoreReading, policy: PolicySet, view: JobView, now: datetime) -> Reevaluation | None:
    """The open request judged by ``policy``; None if its record is missing or unreadable: the original approvers decide
    then. If the first placement is denied, the recorded alternatives are tried. Prices are those of the request and
    count as current, because the gate checks new prices before a launch.
    """
    last = last_judged(look, view)
    inputs = _readable(last) if last else None
    if last is None or inputs is None or view.asked is None or inputs.action.placement is None:
        return None
    action = _as_of(now, view, inputs, look.balance(view.id))
    facts = facts_of(look, policy, now)(action)
    facts = replace(facts, grants=view.grants)  # standing grants do not apply to requests that are already open
    found: tuple[Action, tuple[Verdict, ...]] | None = None
    for placement in (inputs.action.placement, *inputs.others):
        tried = replace(action, placement=replace(placement, offer=replace(placement.offer, as_of=now)))
        verdicts = tuple(policy.judge(tried, facts))
        found = found or (tried, verdicts)
        if strictest(verdicts) is not Answer.DENY:
            found = tried, verdicts
            break
    assert found is not None, "there is one placement at least"
    tried, verdicts = found
    kept = written(tried, facts, inputs.others, counts_live=policy.counts_live)
    record = replace(
        last,
        at=now,
        answer=strictest(verdicts),
        policy_version=policy.version,
        facts_hash=sealed(kept, policy.version),
        verdicts=verdicts,
        seen={**last.seen, "inputs": kept},
    )
    denials = tuple(verdict for verdict in verdicts if verdict.answer is Answer.DENY)
    asked, others = {q.rule: q for q in questions(verdicts)}, last.policy_version != policy.version
    return Reevaluation(denials, asked, expiry(verdicts, now), record, others)


def answer(
    tx: StoreWriting, view: JobView, anew: Reevaluation | None, now: datetime, *, by: str = "",
    rules: tuple[str, ...] = (), note: str = "",
) -> JobView:  # fmt: skip
    """Record the approval of ``rules`` by ``by``, the approvals that no rule asks for any more, and the decision of
    changed policies, with the questions that they ask of others than before. Once no approval is missing, the job
    continues, or gets the requested limits.
    """
    asked = view.asked
    assert asked is not None, "only an open request can be answered"
    lifted = tuple(q.rule for q in asked.open if anew is not None and q.rule not in anew.questions)
    items: list[tuple[int | None, EventBody]] = []
    repeats = anew.questions_to_repeat(asked, view) if anew is not None else ()
    if anew is not None and repeats:
        tx.record(of_ask(anew.record, now))
        items.append((None, _repeat_request(asked, repeats, anew.expires_at)))
    elif anew is not None and anew.other_policy:
        tx.record(anew.record)
    if lifted:
        items.append((None, ev.ApprovalGiven(by="", note=_NO_LONGER_ASKED, rules=lifted)))
    if rules:
        items.append((None, ev.ApprovalGiven(by=by, note=note, rules=rules)))
    after = tx.append(view.id, items, now)
    if after.asked is not None or not asked.extension:
        return after
    seconds = None if asked.max_duration is None else asked.max_duration.total_seconds()
    more = ev.Extended(by=asked.by or view.user, max_cost=asked.max_cost, max_duration_seconds=seconds)
    return tx.append(view.id, [(None, more)], now)


class ApprovalReevaluation(Controller):
    """Re-evaluates each open request once per version of the policies; the present approvers are asked.
    If no approval is needed any more, the job continues. A request that these policies deny stays open; nobody can
    approve it until the policies change."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def goes_by(self, about: JobContext) -> tuple[datetime, str] | None:
        """The time of the request and the version of the policies in force. Unreadable policies change nothing."""
        if about.view.asked is None:
            return None
        try:
            return about.view.asked.at, self._broker.policy().version
        except InvalidInput:
            return None

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Record which approvals no rule asks for any more, and ask the present approvers."""
        broker, view = self._broker, about.view
        assert view.asked is not None, "goes_by returned a value"
        with broker.store.reading() as look:
            if not _is_due(look, view, broker.policy(look)):
                return AtRest()
        with writing_if(broker.store, view) as tx:
            anew = reevaluated(tx, broker.policy(tx), view, about.now)
            if anew is None:
                return AtRest()
            waits = anew.under_rules(view.asked, view).open and not anew.questions_to_repeat(view.asked, view)
            if anew.denials or waits:
                tx.record(anew.record)
                return AtRest()
            answer(tx, view, anew, about.now)
        return DecideAnew()


def is_due(look: StoreReading, view: JobView, policy: PolicySet) -> bool:
    """Whether the job's open request has not been judged by ``policy`` yet. Reads no record if the store knows that the
    job was judged by it."""
    return view.asked is not None and look.judged_by(view.id) != policy.version and _is_due(look, view, policy)


def _is_due(look: StoreReading, view: JobView, policy: PolicySet) -> bool:
    last = last_judged(look, view) if view.asked is not None else None
    return last is not None and last.policy_version != policy.version and _readable(last) is not None


def _readable(record: Decision) -> Inputs | None:
    """The inputs of a decision; None if they were not kept, were altered, or have an older format."""
    try:
        return inputs_of(record)
    except (ValueError, LookupError, TypeError) as error:
        log.warning(
            "job %s: the approval request is not judged again, its record is unreadable: %s", record.job_id, error
        )
        return None


def _repeat_request(asked: RequestedApproval, repeats: tuple[Question, ...], expires_at: datetime) -> ev.ApprovalAsked:
    lasts, longer = asked.lasts, asked.max_duration
    return ev.ApprovalAsked(
        by=asked.by,
        approvers=tuple(sorted({name for question in repeats for name in question.approvers})),
        because="; ".join(question.because for question in repeats),
        expires_at=expires_at,
        questions=repeats,
        again=True,
        total=asked.total,
        held=dict(asked.held),
        gpus=asked.gpus,
        lasts_seconds=None if lasts is None else lasts.total_seconds(),
        extension=asked.extension,
        max_cost=asked.max_cost,
        max_duration_seconds=None if longer is None else longer.total_seconds(),
    )


def _as_of(now: datetime, view: JobView, inputs: Inputs, balance: Mapping[MoneyKind, Balance]) -> Action:
    """The requested action as of ``now``. Its money is held already, and would be used from ``now`` on."""
    action = inputs.action
    begins, ends = action.window or (now, now)
    window = (now, now + (ends - begins))
    held = {kind: one.burn for kind, one in balance.items() if one.burn is not None}
    if action.burns:
        kinds = action.burns.keys() & held.keys()
        burns = {kind: replace(held[kind], start=now, end=_later(action.burns[kind], now)) for kind in kinds}
        burns = {kind: replace(burn, rate=action.burns[kind].rate) for kind, burn in burns.items()}
        return replace(action, job_id=view.id, window=window, burns=burns, own={kind: held[kind] for kind in kinds})
    # A request from before holds had one date: the requested part is separated from the rest.
    asked = {kind: amount for kind, amount in (action.hold or {}).items() if kind in held}
    return replace(
        action,
        job_id=view.id,
        window=window,
        own={kind: held[kind].seen(now).last(min(amount, held[kind].amount)) for kind, amount in asked.items()},
    )


def _later(burn: Burn, now: datetime) -> datetime:
    return now + (burn.end - burn.start)
