"""Plan a job, and submit it: plan, judge, hold the money and write the intent in one transaction."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from broker.app.jobs.disk_space import check_room
from broker.app.jobs.environment_secrets import missing_secrets
from broker.app.jobs.first_move import FirstMove
from broker.app.jobs.machine_use import MachineUse, machine_use
from broker.app.jobs.nearest import for_submission, once
from broker.app.jobs.place_hints import unknown_providers
from broker.app.jobs.refusals import denied, denied_everywhere, too_little, too_short
from broker.app.jobs.resume import with_resume_point
from broker.app.jobs.runs_root import agree
from broker.app.jobs.sealed_secrets import erase, sealed
from broker.app.jobs.snapshots import resolved, with_snapshot
from broker.app.market.market import fresh_look, market_for, wants_sandbox
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.documents import MAX_BYTES, print_document
from broker.core.errors import Alternative, BrokerError, InvalidInput, NotAllowed, closest
from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import NothingFits
from broker.core.job.file import parse_job
from broker.core.job.file.overrides import JobOverrides
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement, Plan
from broker.core.job.reasons import MISSING_SETUP, Origin, Reason
from broker.core.market.offers import CapacityType, Offer
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import Action, ActionKind, Answer, LiveAttempt
from broker.core.ports import BudgetSpec, PolicySet
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags
from broker.ledger.journal import Reading, Writing
from broker.ledger.shares import BudgetShare, budget_shares
from broker.placement.planner import make_plan
from broker.placement.pricing.time_value import start_is_open
from broker.placement.time_limit import never_done, time_limit
from broker.placement.wait_for_reserved import WaitForReserved
from broker.reconciler.admission.admission import (
    Admission,
    admit,
    denials,
    facts_of,
    occupied_in,
    still_free,
    switched_off,
    unused,
    with_occupancy,
)
from broker.reconciler.admission.approvals import ask, of_ask, through_standing
from broker.reconciler.admission.paid_capacity import wait_for_paid
from broker.reconciler.controllers.placement import (
    PlanInputs,
    decision_of,
    hold_entries,
    launch_request,
    waits_for_paid,
)

if TYPE_CHECKING:
    from broker.app.advise.model_job import Sizing
    from broker.store.jobs.journal import StoreReading


class NoFeasibleCapacity(BrokerError):
    """The job and the market leave nothing (exit 4)."""

    exit_code = 4

    def __init__(self, preview: Preview) -> None:
        super().__init__("no offer can serve this job", hint="see `gpubroker plan JOB.yaml --explain`")
        self.preview = preview


class DearerNow(BrokerError):
    """What would be launched now is dearer than what was agreed to; ``preview`` shows it. Nothing was submitted."""

    exit_code = 4

    def __init__(self, preview: Preview) -> None:
        super().__init__("prices have moved: it is dearer now than what was agreed to", hint="look at the plan again")
        self.preview = preview


@dataclass(frozen=True, slots=True)
class Preview:
    """A plan, for whom it was made, and what the policies say to it. ``admission`` is None when nothing is left to
    judge. ``waits``: the job fits capacity that our own jobs occupy, so it would be queued. ``offers``: the ones the
    plan was made from.
    ``sizing``: how machines were found for a job that names a model. ``waiting``: what of our own it had better wait
    for, although something could be rented now. ``budgets``: those that the job falls under.
    ``alternatives``: what the policies would let pass instead, where they refuse it. ``estimate``: where nothing can be
    started as things are, what it would cost if the engines were there and reference prices would do. ``machines``:
    what is free of our own machines that jobs share. ``first``: what a submission would do first; None where nobody
    asked, or the job would wait for machines of our own."""

    job: Job
    by: Actor
    plan: Plan
    left_out: Mapping[Reason, int]
    admission: Admission | None
    max_duration: timedelta
    waits: bool = False
    offers: Sequence[Offer] = ()
    sizing: Sizing | None = None
    waiting: WaitForReserved | None = None
    budgets: Sequence[BudgetSpec] = ()
    alternatives: Sequence[Alternative] | None = None
    estimate: Plan | None = None
    machines: tuple[MachineUse, ...] = ()
    first: FirstMove | None = None

    @property
    def in_order(self) -> tuple[Placement, ...]:
        """The placements with that first where the job's first attempt would be tried; the others as ranked."""
        first = self.first.placement if self.first is not None else None
        if first is None:
            return self.plan.placements
        mine = [one for one in self.plan.placements if one.offer.id == first.offer.id] or [first]
        return (*mine, *(one for one in self.plan.placements if one.offer.id != first.offer.id))

    @property
    def needs(self) -> timedelta | None:
        """The least time that the job takes, where its own `max_duration` stops it before."""
        return never_done(self.job, self.plan.placements)

    @property
    def shares(self) -> list[BudgetShare]:
        """How the money to be held falls into the periods of the budgets, as the policies judged it."""
        return budget_shares(self.budgets, self.admission.burns) if self.admission else []

    @property
    def counts(self) -> dict[Reason, int]:
        """Every rejection, the store's own filter included, most frequent first."""
        counts: dict[Reason, int] = dict(self.left_out)
        for rejection in self.plan.rejections:
            counts[rejection.reason] = counts.get(rejection.reason, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def over_max_cost(self) -> int:
        """The number of placements with an expected cost above the job's max_cost, at which the job would be paused."""
        limit = self.job.max_cost
        if limit is None:
            return 0
        return sum(1 for one in self.plan.placements if one.duration is not None and one.expected_cost > limit)

    @property
    def exit_code(self) -> int:
        """0, or why it cannot be submitted: 2 its own limits, 4 the market, 3 a policy, 6 approval needed."""
        if self.admission is None:
            # Where policy turned down an offer that would have done otherwise, the policy is the reason.
            return 3 if any(r.origin is Origin.POLICY for r in self.plan.reasons()) else 4
        if self.admission.short_of is not None or self.needs is not None:
            return 2
        return {Answer.ALLOW: 0, Answer.DENY: 3, Answer.ASK: 6}[self.admission.answer]


def read_job(path: Path, now: datetime, overrides: JobOverrides | None = None) -> Job:
    """The job of a file, with what is given beside it. Raises `InvalidInput` with every finding, also for a file that
    cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)  # one more than is allowed shows that it is too large
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path), hint=_similar(path)) from error
    job = parse_job(text, file=str(path), now=now, overrides=overrides or JobOverrides())
    return resolved(job, path.parent, str(path))


def _similar(path: Path) -> str:
    """The job file of that folder that may be meant; empty where none is like it."""
    try:
        names = [one.name for one in path.parent.iterdir() if one.suffix in (".yaml", ".yml")]
    except OSError:
        return f"there is no folder {path.parent}" if not path.parent.exists() else ""
    meant = closest(path.name, names)
    return f"did you mean {path.with_name(meant)}?" if meant and meant != path.name else ""


def job_of_command(command: Sequence[str], folder: Path, now: datetime, overrides: JobOverrides) -> Job:
    """The job that runs this command in that folder, without a file. One word is a line for the shell; several are
    passed on as they are. Raises `InvalidInput`."""
    run = command[0] if len(command) == 1 else shlex.join(command)
    named = overrides.name or re.sub(r"[^A-Za-z0-9._-]+", "-", Path(command[0].split()[0]).stem).strip("-._")[:63]
    text = print_document({"name": named or "command", "workdir": ".", "run": run})
    where = "command line"
    return resolved(parse_job(text, file=where, now=now, overrides=overrides), folder, where)


def preview(
    broker: Broker, job: Job, policy: PolicySet | None = None, *, by: Actor, by_carbon: bool = False
) -> Preview:
    """What would happen if that person submitted the job now; nothing is held. ``policy`` and ``by_carbon`` (rank by
    what the placements emit) are for what-if questions only."""
    with fresh_look(broker, sandbox=wants_sandbox(job)) as look:
        chosen, now = policy or broker.policy(look), broker.clock.now()
        seen = _planned(broker, job, by, chosen, look, now, by_carbon=by_carbon)
        if missing := missing_secrets(job):
            seen = _noted(
                seen, f"not exported, so that `submit` would refuse the job: {', '.join(missing)} (`secrets:`)"
            )
        if not seen.plan.placements:
            return reduce(_noted, unknown_providers(broker, job), seen)
        facts_for, longest = facts_of(look, chosen, now, occupied_in(look, chosen, ())), seen.max_duration
        admission = admit(seen.job, by.identity, seen.plan, chosen, facts_for, max_duration=longest, now=now)
        if admission.answer is Answer.DENY:
            seen = replace(seen, alternatives=_passing(broker, seen, admission, chosen, look, now))
    for verdict in admission.verdicts:
        if verdict.warns:
            seen = _noted(seen, f"rule {verdict.name} {verdict.message} ({verdict.source})")
    seen = _with_first_move(broker, seen, admission, chosen, by_carbon=by_carbon)
    if admission.short_of is not None:
        seen = _noted(seen, too_little(admission).message)
    elif (needed := seen.needs) is not None:
        seen = _noted(seen, too_short(seen.job, needed).message)
    return replace(seen, admission=admission)


def _with_first_move(
    broker: Broker, seen: Preview, admission: Admission, policy: PolicySet, *, by_carbon: bool
) -> Preview:
    """The preview with what `_first_events` and the reconciler would do first."""
    if seen.waits or by_carbon:
        return seen
    move = FirstMove(admission.placement)
    if admission.answer is Answer.ALLOW and _start_is_open(seen, policy):
        from broker.app.jobs.strategy_move import strategys_move  # brings the strategies along, which few jobs need

        move = strategys_move(broker, seen.job, policy, by=seen.by) or move
    if move.placement is None:
        seen = _noted(seen, f"it waits first: {move.why}")
    elif move.why and move.placement.offer.id != seen.plan.placements[0].offer.id:
        seen = _noted(seen, f"it starts on {move.placement.offer.pool}, which is not the cheapest: {move.why}")
    return replace(seen, first=move)


def _start_is_open(seen: Preview, policy: PolicySet) -> bool:
    """Whether the reconciler asks the strategy where and when the job starts."""
    return start_is_open(seen.job, seen.plan, seen.offers, policy.defaults.value_of_time)


def _noted(seen: Preview, note: str) -> Preview:
    return replace(seen, plan=replace(seen.plan, notes=(*seen.plan.notes, note)))


def refusal(seen: Preview) -> BrokerError:
    """Why what a preview shows cannot be submitted, or not without an approval. Its ``exit_code`` is not 0."""
    if seen.exit_code == 4:
        return NoFeasibleCapacity(seen)
    if seen.needs is not None:
        return too_short(seen.job, seen.needs)
    return denied_everywhere(seen) if seen.admission is None else denied(seen.admission, seen.alternatives)


def _passing(
    broker: Broker, seen: Preview, refused: Admission, policy: PolicySet, look: StoreReading, now: datetime
) -> list[Alternative]:
    """What the policies would let pass instead of the submission that they refused."""
    facts_for = facts_of(once(look), policy, now, occupied_in(look, policy, ()))
    return for_submission(
        refused, seen.plan, policy, facts_for, max_duration=seen.max_duration, now=now,
        planned=lambda job: _planned(broker, job, seen.by, policy, look, now).plan,
    )  # fmt: skip


def _planned(
    broker: Broker,
    job: Job,
    by: Actor,
    policy: PolicySet,
    look: StoreReading,
    now: datetime,
    *,
    by_carbon: bool = False,
) -> Preview:
    """The plan, of one look at the store, before the policies judge it as a whole."""
    job, sizing = _sized(job, look)
    market = market_for(broker, job, policy, by_carbon=by_carbon, look=look)
    seen = _placed(job, by, market, policy, look, now)
    if sizing is None:
        return seen
    return replace(seen, sizing=sizing, plan=replace(seen.plan, notes=(*sizing.notes, *seen.plan.notes)))


def _sized(job: Job, look: StoreReading) -> tuple[Job, Sizing | None]:
    """The job with machines for its model, where it names one instead of them, by the rules of thumb of the active
    policies. Raises `InvalidInput`."""
    if job.model is None or job.resources:
        return job, None
    from broker.app.advise import rules_of_thumb  # most jobs name their machines
    from broker.app.advise.model_job import sized

    active = look.active_policy()
    return sized(job, rules_of_thumb.of_files(active.files if active else {}))


def _placed(job: Job, by: Actor, market: PlanInputs, policy: PolicySet, look: Reading, now: datetime) -> Preview:
    max_duration = job.max_duration or policy.defaults.max_duration
    action = Action(ActionKind.LAUNCH, job, by.identity, window=(now, now + max_duration))
    live = occupied_in(look, policy, market.offers)
    deny = denials(policy, action, facts_of(look, policy, now, live)(action))

    def plan(offers: Sequence[Offer]) -> Plan:
        return make_plan(job, offers, now=now, submitted_at=now, conditions=market.conditions, deny=deny)

    found, anyhow = plan(with_occupancy(market.offers, live)), unused(market.offers)
    waits = False
    if not found.placements and Reason.TOO_FEW_MACHINES in found.reasons():
        unoccupied = plan(anyhow)
        waits, found = bool(unoccupied.placements), unoccupied if unoccupied.placements else found
    waiting = wait_for_paid(
        look,
        market.offers,
        live,
        found,
        lambda: plan(anyhow),
        now=now,
        since=now,
        longest=policy.defaults.wait_for_paid,
    )
    if waiting is not None:
        unoccupied = plan(anyhow)
        waits, found = True, replace(unoccupied, notes=(*unoccupied.notes, f"it {waiting.why}"))
    found = replace(found, offers_seen=found.offers_seen + sum(market.left_out.values()))
    budgets = policy.budgets(job, by.identity)
    estimate = _estimate(job, found, market, now)
    limit = time_limit(job, found.placements, policy.defaults.max_duration)
    return Preview(
        job, by, found, market.left_out, None, limit, waits, market.offers, waiting=waiting, budgets=budgets,
        estimate=estimate, machines=machine_use(market.offers, live),
    )  # fmt: skip


def _estimate(job: Job, found: Plan, market: PlanInputs, now: datetime) -> Plan | None:
    """The plan that would be if every offer's engine were installed and reached the run folders, and reference prices
    would do, for a job that can start nowhere without that."""
    if found.placements or not found.reasons() & MISSING_SETUP:
        return None
    engines = {offer.engine: job.needs for offer in market.offers if offer.engine is not None}
    anyhow = replace(market.conditions, engines=engines, out_of_reach=frozenset(), allow_reference_prices=True)
    plan = make_plan(job, market.offers, now=now, submitted_at=now, conditions=anyhow)
    return plan if plan.placements else None


def submit(broker: Broker, job: Job, agreed: Preview | None = None, *, by: Actor) -> JobView:
    """Admit the job as that person's and return it, its money held and its first launch requested (or queued, or
    awaiting approval). Where a strategy has a say in where and when it starts, the job is queued, and the reconciler
    asks. Its files are taken first, unless that was done: `broker.app.jobs.snapshots.with_snapshot`.

    ``agreed``: what somebody has seen and said yes to. Raises `DearerNow` when it would cost more than that,
    `NoFeasibleCapacity` (exit 4), `NotAllowed` (exit 3, the decision is recorded) or `InvalidInput` (a `max_cost` that
    does not pay for a start, a secret that is not in the environment, a run folder that cannot be written to, or lies
    elsewhere than those of jobs that have not ended) or
    `StoreProblem` (a disk without room for it); then no job exists. The job runs once a reconciler sees it:
    `broker.app.service.background.ensure`.
    """
    _can_be_run_from_here(broker, job)
    job = sealed(broker, with_snapshot(broker, with_resume_point(broker, job), by=by), by=by)
    try:
        return _admitted(broker, job, agreed, by)
    except (NoFeasibleCapacity, DearerNow, NotAllowed, InvalidInput):
        with suppress(BrokerError):  # nobody can use it, but it need not stay
            erase(broker, job)
        raise


def _admitted(broker: Broker, job: Job, agreed: Preview | None, by: Actor) -> JobView:
    """As `submit`, of a job with everything that it brings."""
    while True:
        with fresh_look(broker, sandbox=wants_sandbox(job)) as look:
            agree(broker, look)
            policy = broker.policy(look)
            seen = _planned(broker, job, by, policy, look, broker.clock.now())
        if not seen.plan.placements:
            if seen.exit_code == 4:
                raise NoFeasibleCapacity(seen)
            record_refusal(broker, seen)
            raise denied_everywhere(seen)
        if seen.needs is not None:
            raise too_short(seen.job, seen.needs)
        # The plan was made outside, so that others are not kept waiting; what can have changed since is looked at anew.
        with broker.store.writing() as tx:
            if broker.policy(tx).version != policy.version:
                continue
            done = _admit(broker, seen, policy, agreed, tx)
        if isinstance(done, JobView):
            return done
        if done is not None:
            with broker.store.reading() as look:  # what passes is looked for while nobody waits
                passing = _passing(broker, seen, done, policy, look, broker.clock.now())
            raise denied(done, passing)


def _admit(
    broker: Broker, seen: Preview, policy: PolicySet, agreed: Preview | None, tx: Writing
) -> JobView | Admission | None:
    """Judge with the money and the machines as they are in this transaction. Hold the money, write the intent and
    return the job; or record the refusal and return it; or return nothing, where its machines were taken meanwhile.
    Raises `InvalidInput` and `DearerNow` as `submit` does."""
    now, job = broker.clock.now(), seen.job
    live = occupied_in(tx, policy, (placement.offer for placement in seen.plan.placements))
    admission, record = _judged(broker, seen, policy, live, now, tx)
    if not seen.waits and not still_free(admission.placement, seen.offers, live):
        return None
    if admission.short_of is not None:
        raise too_little(admission)
    if agreed is not None and _dearer(admission, agreed.admission):
        raise DearerNow(replace(seen, admission=admission))
    if admission.answer is Answer.DENY:
        tx.record(record)
        return admission
    job_id = new_job_id(job.name)
    tags = Tags(
        job_id=job_id,
        user=seen.by.identity,
        team=job.team,
        project=job.project,
        workload=job.workload.value,
        environment=job.environment,
    )
    record = of_ask(record, now) if admission.answer is Answer.ASK else record
    tx.record(replace(record, job_id=job_id, attempt=1))
    tx.post(hold_entries(tags, {}, admission.burns, Movement.HOLD, 1))
    given = through_standing(tx, admission, job_id)
    return tx.append(job_id, _first_events(seen, policy, admission, job_id, given, now), now)


def _judged(
    broker: Broker, seen: Preview, policy: PolicySet, live: Sequence[LiveAttempt], now: datetime, tx: Writing
) -> tuple[Admission, Decision]:
    """What the policies say to a plan in this transaction, and the record of it."""
    facts_for = facts_of(tx, policy, now, live)
    admission = admit(seen.job, seen.by.identity, seen.plan, policy, facts_for, max_duration=seen.max_duration, now=now)
    return admission, decision_of(admission, seen.plan, policy, facts_for(admission.action))


def record_refusal(broker: Broker, seen: Preview) -> None:
    """Put on record that the policies refused what a preview showed, with all that they saw, for whoever replays
    decisions. Where they left no placement, that is what they turned down. Records nothing where they would allow it by
    now."""
    if not seen.plan.placements:
        seen = replace(seen, plan=_turned_down(broker, seen))
    if not seen.plan.placements:
        return
    with broker.store.writing() as tx:
        policy, now = broker.policy(tx), broker.clock.now()
        live = occupied_in(tx, policy, (placement.offer for placement in seen.plan.placements))
        admission, record = _judged(broker, seen, policy, live, now, tx)
        off = switched_off(policy, admission.action)
        if off is not None:
            record = replace(record, answer=off.answer, verdicts=(*record.verdicts, off))
        if record.answer is Answer.DENY:
            tx.record(record)


def _turned_down(broker: Broker, seen: Preview) -> Plan:
    """The plan over those placements that only rules are against, or else a switch; its rejections are those of the
    preview."""
    with broker.store.reading() as look:
        market, now = market_for(broker, seen.job, look=look), broker.clock.now()
    anyhow = replace(market.conditions, allow_reference_prices=True)
    plans = (
        make_plan(seen.job, market.offers, now=now, submitted_at=now, conditions=conditions)
        for conditions in (market.conditions, anyhow)
    )
    found = next((plan for plan in plans if plan.placements), Plan(now, (), (), 0, None, None))
    return replace(found, rejections=seen.plan.rejections, offers_seen=seen.plan.offers_seen)


def _dearer(now: Admission, agreed: Admission | None) -> bool:
    """Whether more money would be held than was agreed to, or the machines cost more an hour."""
    if agreed is None:
        return True
    more_held = any(amount > agreed.money.get(kind, Money.ZERO) for kind, amount in now.money.items())
    return more_held or now.placement.rate > agreed.placement.rate


def _can_be_run_from_here(broker: Broker, job: Job) -> None:
    """What would only fail at the launch otherwise. Raises `InvalidInput`, `StoreProblem`."""
    if missing := missing_secrets(job):
        raise InvalidInput(
            f"secrets not in the environment: {', '.join(missing)}", hint="export them, then submit again"
        )
    check_room(broker, job)


def _first_events(
    seen: Preview,
    policy: PolicySet,
    admission: Admission,
    job_id: str,
    given: Sequence[ev.ApprovalGiven],
    now: datetime,
) -> list[tuple[int | None, EventBody]]:
    submitted = ev.Submitted(
        job=seen.job,
        user=seen.by.identity,
        deadline=seen.job.deadline_at(now),
        max_duration_seconds=seen.max_duration.total_seconds(),
        work_seconds=seen.plan.remaining.total_seconds() if seen.plan.remaining else None,
        on_demand=_baseline(seen.plan),
    )
    first: list[tuple[int | None, EventBody]] = [(None, submitted), *((None, body) for body in given)]
    if admission.answer is Answer.ASK:
        return [*first, (None, ask(admission, now))]
    if seen.waits:
        busy = NothingFits(counts={str(Reason.TOO_FEW_MACHINES): 1})
        return [*first, (None, ev.NothingFeasible(reason=waits_for_paid(seen.waiting) if seen.waiting else busy))]
    if _start_is_open(seen, policy):
        return first  # the reconciler asks the strategy where and when
    return [*first, (1, launch_request(job_id, 1, admission.placement))]


def _baseline(plan: Plan) -> ev.Baseline | None:
    """What savings will be measured against."""
    cheapest = plan.cheapest(CapacityType.ON_DEMAND)
    if cheapest is None:
        return None
    return ev.Baseline(pool=cheapest.offer.pool, rate=cheapest.rate, throughput=cheapest.throughput)


def new_job_id(name: str) -> str:
    """A new id that shows the job's name: at most 34 characters of a–z, 0–9 and dashes, so that with an attempt's
    number it is a name every engine accepts."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:24].rstrip("-") or "job"
    if not slug[0].isalpha():
        slug = f"j-{slug}"[:24].rstrip("-")
    suffix = "".join(secrets.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(6))
    return f"{slug}-{suffix}"
