"""Open approval requests under changed policies: the policies in force decide which approvals are still needed."""

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
from broker.core.policy.decisions import Decision, Inputs, dump_inputs, inputs_hash, inputs_of
from broker.core.policy.policy import Action, Answer, Verdict
from broker.core.ports import PolicySet
from broker.core.values.burns import Burn
from broker.ledger.entries import Balance
from broker.reconciler.admission.admission import strictest
from broker.reconciler.admission.approvals import is_record_of, mark_as_request
from broker.reconciler.admission.facts import facts_of
from broker.reconciler.controller import AtRest, Controller, ControllerResult, DecideAnew, JobContext
from broker.store.jobs.journal import StoreWriter
from broker.store.jobs.reader import StoreReader
from broker.store.store import writing_if

log = logging.getLogger(__name__)

_FIRST_PAGE = 20  # the newest decisions of a job, read first; those about its open request are seldom older
_RULE_OBSOLETE = "no rule in force asks for it any more"


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

    def questions_to_repeat(self, request: RequestedApproval, view: JobView) -> tuple[Question, ...]:
        """The questions that have to be asked again: new ones, of other people than before, or whose approval counts no
        more."""
        previous = {question.rule: (question.approvers, question.own_requests) for question in request.open}
        open_questions = self.under_rules(request, view).open
        return tuple(q for q in open_questions if previous.get(q.rule) != (q.approvers, q.own_requests))


def last_decision(reader: StoreReader, view: JobView) -> Decision | None:
    """The newest recorded decision about the job's open request; None if there is none. Decisions about other actions
    of the job, such as a stop or a move meanwhile, do not count."""
    if view.asked is None:
        return None
    for limit in (_FIRST_PAGE, None):
        for decision in reader.decisions(job_id=view.id, limit=limit):
            if is_record_of(decision, view.asked):
                return decision
    return None


def reevaluate(reader: StoreReader, policy: PolicySet, view: JobView, now: datetime) -> Reevaluation | None:
    """The open request judged by ``policy``; None if its record is missing or unreadable: the original approvers decide
    then. If the first placement is denied, the recorded alternatives are tried. Prices are those of the request and
    count as current, because the gate checks new prices before a launch.
    """
    last = last_decision(reader, view)
    inputs = _readable(last) if last else None
    if last is None or inputs is None or view.asked is None or inputs.action.placement is None:
        return None
    action = _action_as_of(now, view, inputs, reader.balance(view.id))
    facts = facts_of(reader, policy, now)(action)
    facts = replace(facts, grants=view.grants)  # standing grants do not apply to requests that are already open
    outcome: tuple[Action, tuple[Verdict, ...]] | None = None
    for placement in (inputs.action.placement, *inputs.others):
        candidate = replace(action, placement=replace(placement, offer=replace(placement.offer, as_of=now)))
        verdicts = tuple(policy.judge(candidate, facts))
        outcome = outcome or (candidate, verdicts)
        if strictest(verdicts) is not Answer.DENY:
            outcome = candidate, verdicts
            break
    assert outcome is not None, "there is one placement at least"
    candidate, verdicts = outcome
    recorded_inputs = dump_inputs(candidate, facts, inputs.others, counts_live=policy.counts_live)
    record = replace(
        last,
        at=now,
        answer=strictest(verdicts),
        policy_version=policy.version,
        facts_hash=inputs_hash(recorded_inputs, policy.version),
        verdicts=verdicts,
        seen={**last.seen, "inputs": recorded_inputs},
    )
    denials = tuple(verdict for verdict in verdicts if verdict.answer is Answer.DENY)
    questions_by_rule, policy_changed = {q.rule: q for q in questions(verdicts)}, last.policy_version != policy.version
    return Reevaluation(denials, questions_by_rule, expiry(verdicts, now), record, policy_changed)


def record_answer(
    tx: StoreWriter, view: JobView, reevaluation: Reevaluation | None, now: datetime, *, by: str = "",
    rules: tuple[str, ...] = (), note: str = "",
) -> JobView:  # fmt: skip
    """Record the approval of ``rules`` by ``by``, the approvals that no rule asks for any more, and the decision of
    changed policies, with the questions that they ask of others than before. Once no approval is missing, the job
    continues, or gets the requested limits.
    """
    request = view.asked
    assert request is not None, "only an open request can be answered"
    obsolete_rules = tuple(
        q.rule for q in request.open if reevaluation is not None and q.rule not in reevaluation.questions
    )
    items: list[tuple[int | None, EventBody]] = []
    repeats = reevaluation.questions_to_repeat(request, view) if reevaluation is not None else ()
    if reevaluation is not None and repeats:
        tx.record(mark_as_request(reevaluation.record, now))
        items.append((None, _repeat_request(request, repeats, reevaluation.expires_at)))
    elif reevaluation is not None and reevaluation.other_policy:
        tx.record(reevaluation.record)
    if obsolete_rules:
        items.append((None, ev.ApprovalGiven(by="", note=_RULE_OBSOLETE, rules=obsolete_rules)))
    if rules:
        items.append((None, ev.ApprovalGiven(by=by, note=note, rules=rules)))
    new_view = tx.append(view.id, items, now)
    if new_view.asked is not None or not request.extension:
        return new_view
    seconds = None if request.max_duration is None else request.max_duration.total_seconds()
    extension = ev.Extended(by=request.by or view.user, max_cost=request.max_cost, max_duration_seconds=seconds)
    return tx.append(view.id, [(None, extension)], now)


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
        with broker.store.reading() as reader:
            if not _is_due(reader, view, broker.policy(reader)):
                return AtRest()
        with writing_if(broker.store, view) as tx:
            reevaluation = reevaluate(tx, broker.policy(tx), view, about.now)
            if reevaluation is None:
                return AtRest()
            is_waiting = reevaluation.under_rules(view.asked, view).open and not reevaluation.questions_to_repeat(
                view.asked, view
            )
            if reevaluation.denials or is_waiting:
                tx.record(reevaluation.record)
                return AtRest()
            record_answer(tx, view, reevaluation, about.now)
        return DecideAnew()


def is_due(reader: StoreReader, view: JobView, policy: PolicySet) -> bool:
    """Whether the job's open request has not been judged by ``policy`` yet. Reads no record if the store knows that the
    job was judged by it."""
    return view.asked is not None and reader.judged_by(view.id) != policy.version and _is_due(reader, view, policy)


def _is_due(reader: StoreReader, view: JobView, policy: PolicySet) -> bool:
    decision = last_decision(reader, view) if view.asked is not None else None
    return decision is not None and decision.policy_version != policy.version and _readable(decision) is not None


def _readable(record: Decision) -> Inputs | None:
    """The inputs of a decision; None if they were not kept, were altered, or have an older format."""
    try:
        return inputs_of(record)
    except (ValueError, LookupError, TypeError) as error:
        log.warning(
            "job %s: the approval request is not judged again, its record is unreadable: %s", record.job_id, error
        )
        return None


def _repeat_request(
    request: RequestedApproval, repeats: tuple[Question, ...], expires_at: datetime
) -> ev.ApprovalAsked:
    lasts, max_duration = request.lasts, request.max_duration
    return ev.ApprovalAsked(
        by=request.by,
        approvers=tuple(sorted({name for question in repeats for name in question.approvers})),
        because="; ".join(question.because for question in repeats),
        expires_at=expires_at,
        questions=repeats,
        again=True,
        total=request.total,
        held=dict(request.held),
        gpus=request.gpus,
        lasts_seconds=None if lasts is None else lasts.total_seconds(),
        extension=request.extension,
        max_cost=request.max_cost,
        max_duration_seconds=None if max_duration is None else max_duration.total_seconds(),
    )


def _action_as_of(now: datetime, view: JobView, inputs: Inputs, balance: Mapping[MoneyKind, Balance]) -> Action:
    """The requested action as of ``now``. Its money is held already, and would be used from ``now`` on."""
    action = inputs.action
    begins, ends = action.window or (now, now)
    window = (now, now + (ends - begins))
    held = {kind: kind_balance.burn for kind, kind_balance in balance.items() if kind_balance.burn is not None}
    if action.burns:
        kinds = action.burns.keys() & held.keys()
        burns = {kind: replace(held[kind], start=now, end=_shifted_end(action.burns[kind], now)) for kind in kinds}
        burns = {kind: replace(burn, rate=action.burns[kind].rate) for kind, burn in burns.items()}
        return replace(action, job_id=view.id, window=window, burns=burns, own={kind: held[kind] for kind in kinds})
    # A request from before holds had one date: the requested part is separated from the rest.
    requested_amounts = {kind: amount for kind, amount in (action.hold or {}).items() if kind in held}
    return replace(
        action,
        job_id=view.id,
        window=window,
        own={
            kind: held[kind].seen(now).last(min(amount, held[kind].amount))
            for kind, amount in requested_amounts.items()
        },
    )


def _shifted_end(burn: Burn, now: datetime) -> datetime:
    return now + (burn.end - burn.start)
