"""Judges launches made outside gpubroker, and holds their money.

The ledger is the record: the launch's id takes the place of a job's id, and its hold is dated like a job's and counts
in the same budgets. Other tools start and end the machines, so the money is spent when they report the end, or when the
approved run time is over.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256

from broker.app.jobs.network_jobs import mark_from_network
from broker.app.jobs.preview import PlanBasis, Preview, plan_job, refusal
from broker.app.jobs.submit import record_refusal
from broker.app.market.market import fresh_reading, market_for
from broker.app.wiring import Broker
from broker.core.access.api_tokens import AuditOutcome, AuditRecord
from broker.core.access.people import Access, Permission, TokenScope
from broker.core.actors import Actor
from broker.core.errors import ApprovalNeeded, BrokerError, InvalidInput, NotAllowed
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, MoneyKind, Offer
from broker.core.policy.decisions import inputs_of
from broker.core.policy.policy import Answer
from broker.core.ports import PolicySet
from broker.core.values.burns import Burn
from broker.core.values.figures import length
from broker.core.values.money import Money
from broker.ledger.entries import Account, Entry, Movement, Tags, move
from broker.placement.planner import PlanInputs
from broker.reconciler.admission.admission import Admission, admit, strictest
from broker.reconciler.admission.approvals import approve_by_standing_grants
from broker.reconciler.admission.facts import FactsFor, facts_of, occupied_in
from broker.reconciler.admission.records import decision_of, hold_entries, movements_of
from broker.store.jobs.journal import StoreWriter
from broker.store.jobs.reader import StoreReader


@dataclass(frozen=True, slots=True)
class OutsideArray:
    """``count`` identical launches, at most ``at_once`` of them at a time."""

    count: int
    at_once: int

    @property
    def turns(self) -> int:
        """The number of successive rounds, if all launches of a round end together."""
        return -(-self.count // self.at_once)


def judge_array(admission: Admission, array: OutsideArray, policy: PolicySet, facts_for: FactsFor) -> Admission:
    """The judgment of an array, from that of one of its launches: the machines of those that run at once, and the
    money of all, over the time of all rounds."""
    action, placement = admission.action, admission.placement
    whole = replace(
        action,
        placement=replace(placement, nodes=placement.nodes * array.at_once, rate=placement.rate * array.at_once),
        hold={kind: amount * array.count for kind, amount in admission.money.items()},
        burns={
            kind: Burn(
                burn.amount * array.count,
                burn.start,
                burn.start + (burn.end - burn.start) * array.turns,
                burn.rate * array.at_once,
            )
            for kind, burn in action.burns.items()
        },
    )
    verdicts = tuple(policy.judge(whole, facts_for(whole)))
    return replace(admission, answer=strictest(verdicts), action=whole, money=whole.hold or {}, verdicts=verdicts)


PREFIX = "outside:"
"""The prefix of the id of such a launch in the ledger; no job's id contains a colon."""


class OutsideTool(StrEnum):
    """The tool that launches."""

    SKYPILOT = "skypilot"
    SLURM = "slurm"


_CLOCKS_DIFFER = timedelta(minutes=5)  # at most, of a cluster and of the broker
_REPORT_GRACE = {OutsideTool.SKYPILOT: timedelta(0), OutsideTool.SLURM: timedelta(days=30)}
"""By tool, how long after the approved run time the money of a launch counts as spent if its end was not reported.
Slurm's jobs may wait in its queue first, and Slurm itself ends them."""


@dataclass(frozen=True, slots=True)
class OutsideLaunch:
    """A launch to be judged. ``key``: distinguishes launches of the tool; a repeated query has the same. ``job``: the
    requested resources. ``serves``: whether the tool could use an offer. ``array``: the array that is requested, None
    for a single launch. ``known_as``: its id, if it has one already; ``most``: how many launches whose id is the same
    up to the last dot may hold money at once."""

    tool: OutsideTool
    key: str
    user: str
    job: Job
    serves: Callable[[Offer], bool]
    array: OutsideArray | None = None
    known_as: str = ""
    most: int | None = None

    @property
    def id(self) -> str:
        if self.known_as:
            return self.known_as
        digest = sha256(f"{self.user}\0{self.key}".encode()).hexdigest()
        return f"{PREFIX}{self.tool}-{digest[:24]}"


@dataclass(frozen=True, slots=True)
class OpenLaunch:
    """A launch whose money is held: ``held`` (USD) from ``since`` until ``until`` (UTC), the end of the approved
    run time. ``rate``: USD per hour, all machines."""

    id: str
    tags: Tags
    money: MoneyKind
    held: Money
    since: datetime
    until: datetime
    rate: Money

    @property
    def tool(self) -> OutsideTool:
        return OutsideTool(self.id.removeprefix(PREFIX).partition("-")[0])


@dataclass(frozen=True, slots=True)
class AdmittedLaunch:
    """The launch is admitted. ``placement``: what was judged; ``held``: USD, for its maximum duration; ``anew``:
    whether this query made the hold, not an earlier one."""

    id: str
    placement: Placement
    held: Money
    anew: bool = True


def resolve_submitter(broker: Broker, user: str, team: str | None) -> tuple[str, str]:
    """The person and the team whose budget pays. Without ``team``, the only team in which the person may submit. Raises
    `NotAllowed` for a person who may not submit there, `InvalidInput` if that leaves several teams."""
    with broker.store.access.reading() as reader:
        person = reader.person(user)
    if person is None:
        raise NotAllowed(
            f"{user} is not on record", hint=f"an administrator adds people: `gpubroker people invite {user}`"
        )
    access = Access(person, frozenset({TokenScope.JOBS}))
    if team is None:
        teams = access.teams(Permission.SUBMIT) or frozenset()
        if not teams:
            raise NotAllowed(f"{user} has no role that allows submitting jobs", hint="an administrator gives roles")
        if len(teams) != 1:
            raise InvalidInput(f"which team pays? {user} must name one of {', '.join(sorted(teams))}")
        team = next(iter(teams))
    if not access.may(Permission.SUBMIT, team):
        raise NotAllowed(f"{user} has no role that allows submitting jobs in team {team}")
    return person.name, team


def judge_launch(broker: Broker, launch: OutsideLaunch, *, holds: bool, by: Actor) -> AdmittedLaunch:
    """Judge the launch by the policies in force; with ``holds``, hold its money. Idempotent: a launch whose money is
    held is admitted again, without a second hold. An array is judged as a whole without a hold; each of its launches is
    judged again, with its own hold, when it begins.

    Raises, and then nothing is held: `NotAllowed` (the decision is recorded), `ApprovalNeeded`, `InvalidInput`,
    `NoFeasibleCapacity`, `StoreProblem`.
    """
    is_recorded = holds or launch.array is not None
    try:
        admitted = _judge_and_admit(broker, replace(launch, job=mark_from_network(broker, launch.job)), holds=holds)
    except BrokerError as error:
        if is_recorded:
            _record_audit(broker, launch.id, by, AuditOutcome.REFUSED, details=f"for {launch.user}: {error}"[:500])
        raise
    if is_recorded and admitted.anew:
        amount = f"{admitted.held} held" if holds else f"{admitted.held} judged for all"
        note = f"for {launch.user}: {amount}, {admitted.placement.offer.pool}"
        _record_audit(broker, launch.id, by, AuditOutcome.DONE, details=note)
    return admitted


def end_launch(broker: Broker, id: str, ran: timedelta | None = None, *, by: Actor) -> Money:
    """Spend what the launch cost and release the rest; returns the cost (USD). ``ran``: how long its machines were
    there; None: since its money was held. Idempotent: an ended launch costs nothing more. Raises as `billed_time`."""
    with broker.store.writing() as tx:
        now, cost, started = broker.clock.now(), Money.ZERO, None
        for hold in _open_holds(tx, id):
            started = hold.since
            cost += _settle(tx, hold, billed_time(id, started, ran, now), now)
    if started is not None:
        duration_note = "" if ran is None else f"; stated to have run {ran} of the {now - started} since it was judged"
        _record_audit(broker, id, by, AuditOutcome.DONE, details=f"{cost} spent{duration_note}", action="outside.end")
    return cost


def billed_time(id: str, since: datetime, ran: timedelta | None, now: datetime) -> timedelta:
    """The time to pay for: ``ran``, None: since its money was held. Raises `InvalidInput` for a negative time, and for
    a longer one than has passed; a few minutes more are a difference of clocks and do not count."""
    longest = now - since
    if ran is None:
        return longest
    if ran < timedelta(0):
        raise InvalidInput(f"{id} cannot have run for {length(ran)}", hint="expected a time of at least 0")
    if ran > longest + _CLOCKS_DIFFER:
        raise InvalidInput(
            f"{id} cannot have run for {length(ran)}: it was judged {length(longest)} ago",
            hint="without a time, all of the time since then is spent",
        )
    return min(ran, longest)


def spend_overdue(broker: Broker, overdue_launches: Sequence[OpenLaunch]) -> None:
    """End launches whose approved run time is over and whose end was not reported: the whole hold counts as spent."""
    with broker.store.writing() as tx:
        for overdue_launch in overdue_launches:
            for hold in _open_holds(tx, overdue_launch.id):
                _settle(tx, hold, hold.until - hold.since, broker.clock.now())


def spend_overrun(broker: Broker, id: str, since: datetime, ran: timedelta, *, by: Actor) -> Money:
    """Spend the cost of an ended launch beyond what was spent for it; returns that amount (USD). ``since``: the start
    of its hold (UTC); ``ran``: how long it ran in total. Idempotent. Raises as `billed_time`."""
    cost, ran = Money.ZERO, billed_time(id, since, ran, broker.clock.now())
    end_time = since + ran
    with broker.store.writing() as tx:
        launch_entries = [
            entry for entry in tx.entries(id) if entry.covers_from >= since
        ]  # it may have run before, with another hold
        for hold in [
            entry for entry in launch_entries if entry.movement is Movement.HOLD and entry.covers_from == since
        ]:
            spent = sum(
                (o.amount for o in launch_entries if o.account is Account.SPENT and o.money is hold.money), Money.ZERO
            )
            amount = (hold.rate or Money.ZERO).for_duration(ran) - spent
            if hold.account is Account.HELD and amount > Money.ZERO and end_time > hold.covers_to:
                cost += amount
                tx.keep_machine_time(hold.tags, _placement(tx, id), hold.money, since, end_time)
                tx.post(
                    move(
                        Movement.ADJUST,
                        amount,
                        movement_id=f"{id}/{Movement.ADJUST}/{movements_of(tx, id)}/{hold.money}",
                        money=hold.money,
                        at=broker.clock.now(),
                        covers=(hold.covers_to, end_time),
                        tags=hold.tags,
                        note="ran longer than approved",
                    )
                )
    if cost:
        _record_audit(broker, id, by, AuditOutcome.DONE, details=f"{cost} more spent", action="outside.end")
    return cost


def check_task_limit(reader: StoreReader, launch: OutsideLaunch) -> None:
    """Raises `NotAllowed` if as many tasks of the array run as may run at once."""
    if launch.most is None:
        return
    running = reader.held_under(f"{launch.id.rpartition('.')[0]}.")
    if launch.id not in running and len(running) >= launch.most:
        raise NotAllowed(f"{len(running)} tasks of the array already run, the most that it was approved for")


def is_overdue(launch: OpenLaunch, now: datetime) -> bool:
    """Whether its end should have been reported by now."""
    return launch.until + _REPORT_GRACE[launch.tool] <= now


def open_launches(reader: StoreReader) -> Sequence[OpenLaunch]:
    """The launches whose money is held, oldest first."""
    launches = [launch for id in reader.held_under(PREFIX) for launch in _open_holds(reader, id)]
    return sorted(launches, key=lambda launch: (launch.since, launch.id))


def _judge_and_admit(broker: Broker, launch: OutsideLaunch, *, holds: bool) -> AdmittedLaunch:
    actor = Actor(launch.user)
    while True:
        with fresh_reading(broker, sandbox=False) as reader:
            if holds and (existing := _existing_admission(reader, launch.id)):
                return existing
            policy = broker.policy(reader)
            market = _tool_market(launch, market_for(broker, launch.job, policy, reader=reader))
            basis = PlanBasis(policy, reader, broker.clock.now(), elsewhere=True, market=market)
            preview = _usable_by_tool(plan_job(broker, launch.job, actor, basis), launch)
            if preview.plan.placements:
                placement = _admission(preview, reader, broker).placement
                preview = replace(preview, plan=replace(preview.plan, placements=(placement,)))
        if not preview.plan.placements or preview.needs is not None:
            record_refusal(broker, preview)
            raise refusal(preview)
        with broker.store.writing() as tx:
            if broker.policy(tx).version != policy.version:
                continue
            if holds and (existing := _existing_admission(tx, launch.id)):
                return existing
            check_task_limit(tx, launch)  # again in this transaction, because two may begin at once
            outcome = _admit(broker, preview, launch, tx, holds=holds)
        if isinstance(outcome, AdmittedLaunch):
            return outcome
        raise outcome  # after the transaction, so that the decision is kept


def _existing_admission(reader: StoreReader, id: str) -> AdmittedLaunch | None:
    """The launch, if an earlier query made its hold; else None."""
    holds = _open_holds(reader, id)
    placement = _placement(reader, id) if holds else None
    return None if placement is None else AdmittedLaunch(id, placement, holds[0].held, anew=False)


def _placement(reader: StoreReader, id: str) -> Placement | None:
    """The placement for which the launch was judged last; None if that is not on record."""
    last_decisions = reader.decisions(job_id=id, limit=1)
    inputs = inputs_of(last_decisions[0]) if last_decisions else None
    return None if inputs is None else inputs.action.placement


def _admit(
    broker: Broker, preview: Preview, launch: OutsideLaunch, tx: StoreWriter, *, holds: bool
) -> AdmittedLaunch | BrokerError:
    admission = _admission(preview, tx, broker, launch.array)
    policy = broker.policy(tx)
    if holds or launch.array is not None:
        facts = facts_of(tx, policy, preview.plan.made_at)(admission.action)
        tx.record(replace(decision_of(admission, preview.plan, policy, facts), job_id=launch.id))
    judged_preview = replace(preview, admission=admission)
    if admission.answer is Answer.ASK:
        hint = "`gpubroker submit` asks the approvers; with a standing grant of theirs, it passes here, too"
        return ApprovalNeeded(str(refusal(judged_preview)), hint=hint)
    if judged_preview.exit_code != 0:
        return refusal(judged_preview)
    held_money = sum((burn.amount for burn in admission.burns.values()), Money.ZERO)
    if holds:
        number = movements_of(tx, launch.id)
        run = 1 + max((entry.tags.attempt or 0 for entry in tx.entries(launch.id)), default=0)
        tx.post(hold_entries(_tags(launch, admission.placement, run), {}, admission.burns, Movement.HOLD, number))
        approve_by_standing_grants(tx, admission, launch.id)
    return AdmittedLaunch(launch.id, admission.placement, held_money)


def _admission(preview: Preview, reader: StoreReader, broker: Broker, array: OutsideArray | None = None) -> Admission:
    policy, now = broker.policy(reader), broker.clock.now()
    live = occupied_in(reader, policy, (admission.offer for admission in preview.plan.placements))
    facts_for = facts_of(reader, policy, now, live)
    admission = admit(
        preview.job, preview.by.identity, preview.plan, policy, facts_for, max_duration=preview.max_duration, now=now
    )
    return admission if array is None else judge_array(admission, array, policy, facts_for)


def _tool_market(launch: OutsideLaunch, market: PlanInputs) -> PlanInputs:
    """The market as the tool sees it: jobs that Slurm accepts wait in its queue until machines are free."""
    if launch.tool is not OutsideTool.SLURM:
        return market
    offers = [
        replace(offer, slots=None, availability=Availability.AVAILABLE, unavailable_because="")
        if offer.engine == "slurm"
        else offer
        for offer in market.offers
    ]
    return replace(market, offers=offers)


def _usable_by_tool(preview: Preview, launch: OutsideLaunch) -> Preview:
    usable = tuple(placement for placement in preview.plan.placements if launch.serves(placement.offer))
    return replace(preview, plan=replace(preview.plan, placements=usable))


def _tags(launch: OutsideLaunch, placement: Placement, run: int) -> Tags:
    offer, job = placement.offer, launch.job
    return Tags(
        job_id=launch.id,
        user=launch.user,
        team=job.team,
        project=job.project,
        workload=job.workload.value,
        environment=job.environment,
        attempt=run,
        provider=offer.provider,
        region=offer.region,
        capacity_type=offer.capacity_type,
        accelerator=offer.accelerator,
        gpus=placement.gpus,
    )


def _open_holds(reader: StoreReader, id: str) -> list[OpenLaunch]:
    """The hold for the launch, by kind of money."""
    holds = []
    balance = reader.balance(id)
    if not any(kind_balance.held for kind_balance in balance.values()):
        return []
    last_holds: dict[MoneyKind, Entry] = {
        entry.money: entry
        for entry in reader.entries(id)
        if entry.movement is Movement.HOLD and entry.account is Account.HELD
    }
    for kind, kind_balance in balance.items():
        if kind_balance.held and (entry := last_holds.get(kind)) is not None:
            rate = entry.rate or Money.ZERO
            holds.append(OpenLaunch(id, entry.tags, kind, kind_balance.held, entry.covers_from, entry.covers_to, rate))
    return holds


def _settle(tx: StoreWriter, launch: OpenLaunch, ran: timedelta, now: datetime) -> Money:
    """Spend the time that it ran and release the rest."""
    cost, number = min(launch.rate.for_duration(ran), launch.held), movements_of(tx, launch.id)
    overrun = max(launch.rate.for_duration(ran) - launch.held, Money.ZERO)
    covers = (launch.since, launch.since + ran)
    tx.keep_machine_time(launch.tags, _placement(tx, launch.id), launch.money, *covers)
    for movement, amount in (
        (Movement.SETTLE, cost),
        (Movement.ADJUST, overrun),
        (Movement.RELEASE, launch.held - cost),
    ):
        tx.post(
            move(
                movement,
                amount,
                movement_id=f"{launch.id}/{movement}/{number}/{launch.money}",
                money=launch.money,
                at=now,
                covers=covers if movement is not Movement.RELEASE else (now, now),
                tags=launch.tags,
                note=f"launched with {launch.tool}",
            )
        )
    return cost + overrun


def _record_audit(
    broker: Broker, id: str, by: Actor, outcome: AuditOutcome, *, details: str, action: str = "outside.judge"
) -> None:
    with broker.store.access.writing() as tx:
        tx.log(AuditRecord.by(by, broker.clock.now(), action, id, outcome=outcome, after=details))
