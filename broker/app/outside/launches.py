"""Judges launches made outside gpubroker, and holds their money.

The ledger is the record: the launch's id takes the place of a job's id, and its hold is dated like a job's and counts
in the same budgets. Other tools start and end the machines, so the money is spent when they report the end, or when the
approved run time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256

from broker.app.jobs.preview import PlanBasis, Preview, planned, refusal
from broker.app.jobs.received import as_from_network
from broker.app.jobs.submit import record_refusal
from broker.app.market.market import fresh_look, market_for
from broker.app.outside.arrays import OutsideArray, of_all
from broker.app.wiring import Broker
from broker.core.access.audit import AuditOutcome, AuditRecord
from broker.core.access.permissions import Access, Permission, TokenScope
from broker.core.actors import Actor
from broker.core.errors import ApprovalNeeded, BrokerError, InvalidInput, NotAllowed
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, MoneyKind, Offer
from broker.core.policy.decisions import inputs_of
from broker.core.policy.policy import Answer
from broker.core.values.figures import length
from broker.core.values.money import Money
from broker.ledger.entries import Account, Entry, Movement, Tags, move
from broker.ledger.journal import Reading
from broker.reconciler.admission.admission import Admission, admit
from broker.reconciler.admission.approvals import through_standing
from broker.reconciler.admission.facts import facts_of, occupied_in
from broker.reconciler.admission.records import decision_of, hold_entries, movements_of
from broker.reconciler.controllers.placement import PlanInputs
from broker.store.jobs.journal import StoreWriting
from broker.store.jobs.reading import StoreReading

PREFIX = "outside:"
"""The prefix of the id of such a launch in the ledger; no job's id contains a colon."""


class OutsideTool(StrEnum):
    """The tool that launches."""

    SKYPILOT = "skypilot"
    SLURM = "slurm"


_CLOCKS_DIFFER = timedelta(minutes=5)  # at most, of a cluster and of the broker
_UNREPORTED = {OutsideTool.SKYPILOT: timedelta(0), OutsideTool.SLURM: timedelta(days=30)}
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
class Admitted:
    """The launch is admitted. ``placement``: what was judged; ``held``: USD, for its maximum duration; ``anew``:
    whether this query made the hold, not an earlier one."""

    id: str
    placement: Placement
    held: Money
    anew: bool = True


def submitter(broker: Broker, user: str, team: str | None) -> tuple[str, str]:
    """The person and the team whose budget pays. Without ``team``, the only team in which the person may submit. Raises
    `NotAllowed` for a person who may not submit there, `InvalidInput` if that leaves several teams."""
    with broker.store.access.reading() as look:
        person = look.person(user)
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


def judge(broker: Broker, launch: OutsideLaunch, *, holds: bool, by: Actor) -> Admitted:
    """Judge the launch by the policies in force; with ``holds``, hold its money. Idempotent: a launch whose money is
    held is admitted again, without a second hold. An array is judged as a whole without a hold; each of its launches is
    judged again, with its own hold, when it begins.

    Raises, and then nothing is held: `NotAllowed` (the decision is recorded), `ApprovalNeeded`, `InvalidInput`,
    `NoFeasibleCapacity`, `StoreProblem`.
    """
    recorded = holds or launch.array is not None
    try:
        found = _judged(broker, replace(launch, job=as_from_network(broker, launch.job)), holds=holds)
    except BrokerError as error:
        if recorded:
            _log(broker, launch.id, by, AuditOutcome.REFUSED, after=f"for {launch.user}: {error}"[:500])
        raise
    if recorded and found.anew:
        amount = f"{found.held} held" if holds else f"{found.held} judged for all"
        said = f"for {launch.user}: {amount}, {found.placement.offer.pool}"
        _log(broker, launch.id, by, AuditOutcome.DONE, after=said)
    return found


def end(broker: Broker, id: str, ran: timedelta | None = None, *, by: Actor) -> Money:
    """Spend what the launch cost and release the rest; returns the cost (USD). ``ran``: how long its machines were
    there; None: since its money was held. Idempotent: an ended launch costs nothing more. Raises as `billed_time`."""
    with broker.store.writing() as tx:
        now, cost, since = broker.clock.now(), Money.ZERO, None
        for one in _of(tx, id):
            since = one.since
            cost += _settle(tx, one, billed_time(id, since, ran, now), now)
    if since is not None:
        stated = "" if ran is None else f"; stated to have run {ran} of the {now - since} since it was judged"
        _log(broker, id, by, AuditOutcome.DONE, after=f"{cost} spent{stated}", action="outside.end")
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


def spend_overdue(broker: Broker, late: Sequence[OpenLaunch]) -> None:
    """End launches whose approved run time is over and whose end was not reported: the whole hold counts as spent."""
    with broker.store.writing() as tx:
        for one in late:
            for again in _of(tx, one.id):
                _settle(tx, again, again.until - again.since, broker.clock.now())


def spend_beyond(broker: Broker, id: str, since: datetime, ran: timedelta, *, by: Actor) -> Money:
    """Spend the cost of an ended launch beyond what was spent for it; returns that amount (USD). ``since``: the start
    of its hold (UTC); ``ran``: how long it ran in total. Idempotent. Raises as `billed_time`."""
    cost, ran = Money.ZERO, billed_time(id, since, ran, broker.clock.now())
    ended = since + ran
    with broker.store.writing() as tx:
        mine = [one for one in tx.entries(id) if one.covers_from >= since]  # it may have run before, with another hold
        for hold in [one for one in mine if one.movement is Movement.HOLD and one.covers_from == since]:
            spent = sum((o.amount for o in mine if o.account is Account.SPENT and o.money is hold.money), Money.ZERO)
            amount = (hold.rate or Money.ZERO).for_duration(ran) - spent
            if hold.account is Account.HELD and amount > Money.ZERO and ended > hold.covers_to:
                cost += amount
                tx.keep_machine_time(hold.tags, _placement(tx, id), hold.money, since, ended)
                tx.post(
                    move(
                        Movement.ADJUST,
                        amount,
                        movement_id=f"{id}/{Movement.ADJUST}/{movements_of(tx, id)}/{hold.money}",
                        money=hold.money,
                        at=broker.clock.now(),
                        covers=(hold.covers_to, ended),
                        tags=hold.tags,
                        note="ran longer than approved",
                    )
                )
    if cost:
        _log(broker, id, by, AuditOutcome.DONE, after=f"{cost} more spent", action="outside.end")
    return cost


def refuse_beyond(look: StoreReading, launch: OutsideLaunch) -> None:
    """Raises `NotAllowed` if as many tasks of the array run as may run at once."""
    if launch.most is None:
        return
    running = look.held_under(f"{launch.id.rpartition('.')[0]}.")
    if launch.id not in running and len(running) >= launch.most:
        raise NotAllowed(f"{len(running)} tasks of the array already run, the most that it was approved for")


def is_overdue(one: OpenLaunch, now: datetime) -> bool:
    """Whether its end should have been reported by now."""
    return one.until + _UNREPORTED[one.tool] <= now


def open_launches(look: StoreReading) -> Sequence[OpenLaunch]:
    """The launches whose money is held, oldest first."""
    found = [one for id in look.held_under(PREFIX) for one in _of(look, id)]
    return sorted(found, key=lambda one: (one.since, one.id))


def _judged(broker: Broker, launch: OutsideLaunch, *, holds: bool) -> Admitted:
    actor = Actor(launch.user)
    while True:
        with fresh_look(broker, sandbox=False) as look:
            if holds and (known := _admitted_before(look, launch.id)):
                return known
            policy = broker.policy(look)
            market = _queued_for(launch, market_for(broker, launch.job, policy, look=look))
            basis = PlanBasis(policy, look, broker.clock.now(), elsewhere=True, market=market)
            seen = _for_the_tool(planned(broker, launch.job, actor, basis), launch)
            if seen.plan.placements:
                chosen = _admission(seen, look, broker).placement
                seen = replace(seen, plan=replace(seen.plan, placements=(chosen,)))
        if not seen.plan.placements or seen.needs is not None:
            record_refusal(broker, seen)
            raise refusal(seen)
        with broker.store.writing() as tx:
            if broker.policy(tx).version != policy.version:
                continue
            if holds and (known := _admitted_before(tx, launch.id)):
                return known
            refuse_beyond(tx, launch)  # again in this transaction, because two may begin at once
            outcome = _admit(broker, seen, launch, tx, holds=holds)
        if isinstance(outcome, Admitted):
            return outcome
        raise outcome  # after the transaction, so that the decision is kept


def _admitted_before(look: StoreReading, id: str) -> Admitted | None:
    """The launch, if an earlier query made its hold; else None."""
    held = _of(look, id)
    placement = _placement(look, id) if held else None
    return None if placement is None else Admitted(id, placement, held[0].held, anew=False)


def _placement(look: StoreReading, id: str) -> Placement | None:
    """The placement for which the launch was judged last; None if that is not on record."""
    judged = look.decisions(job_id=id, limit=1)
    inputs = inputs_of(judged[0]) if judged else None
    return None if inputs is None else inputs.action.placement


def _admit(
    broker: Broker, seen: Preview, launch: OutsideLaunch, tx: StoreWriting, *, holds: bool
) -> Admitted | BrokerError:
    admission = _admission(seen, tx, broker, launch.array)
    policy = broker.policy(tx)
    if holds or launch.array is not None:
        facts = facts_of(tx, policy, seen.plan.made_at)(admission.action)
        tx.record(replace(decision_of(admission, seen.plan, policy, facts), job_id=launch.id))
    judged = replace(seen, admission=admission)
    if admission.answer is Answer.ASK:
        ask = "`gpubroker submit` asks the approvers; with a standing grant of theirs, it passes here, too"
        return ApprovalNeeded(str(refusal(judged)), hint=ask)
    if judged.exit_code != 0:
        return refusal(judged)
    held = sum((burn.amount for burn in admission.burns.values()), Money.ZERO)
    if holds:
        number = movements_of(tx, launch.id)
        run = 1 + max((one.tags.attempt or 0 for one in tx.entries(launch.id)), default=0)
        tx.post(hold_entries(_tags(launch, admission.placement, run), {}, admission.burns, Movement.HOLD, number))
        through_standing(tx, admission, launch.id)
    return Admitted(launch.id, admission.placement, held)


def _admission(seen: Preview, look: StoreReading, broker: Broker, array: OutsideArray | None = None) -> Admission:
    policy, now = broker.policy(look), broker.clock.now()
    live = occupied_in(look, policy, (one.offer for one in seen.plan.placements))
    facts_for = facts_of(look, policy, now, live)
    one = admit(seen.job, seen.by.identity, seen.plan, policy, facts_for, max_duration=seen.max_duration, now=now)
    return one if array is None else of_all(one, array, policy, facts_for)


def _queued_for(launch: OutsideLaunch, market: PlanInputs) -> PlanInputs:
    """The market as the tool sees it: jobs that Slurm accepts wait in its queue until machines are free."""
    if launch.tool is not OutsideTool.SLURM:
        return market
    offers = [
        replace(one, slots=None, availability=Availability.AVAILABLE, unavailable_because="")
        if one.engine == "slurm"
        else one
        for one in market.offers
    ]
    return replace(market, offers=offers)


def _for_the_tool(seen: Preview, launch: OutsideLaunch) -> Preview:
    mine = tuple(one for one in seen.plan.placements if launch.serves(one.offer))
    return replace(seen, plan=replace(seen.plan, placements=mine))


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


def _of(look: Reading, id: str) -> list[OpenLaunch]:
    """The hold for the launch, by kind of money."""
    found = []
    balance = look.balance(id)
    if not any(one.held for one in balance.values()):
        return []
    last: dict[MoneyKind, Entry] = {
        entry.money: entry
        for entry in look.entries(id)
        if entry.movement is Movement.HOLD and entry.account is Account.HELD
    }
    for kind, one in balance.items():
        if one.held and (entry := last.get(kind)) is not None:
            rate = entry.rate or Money.ZERO
            found.append(OpenLaunch(id, entry.tags, kind, one.held, entry.covers_from, entry.covers_to, rate))
    return found


def _settle(tx: StoreWriting, one: OpenLaunch, ran: timedelta, now: datetime) -> Money:
    """Spend the time that it ran and release the rest."""
    cost, number = min(one.rate.for_duration(ran), one.held), movements_of(tx, one.id)
    over = max(one.rate.for_duration(ran) - one.held, Money.ZERO)
    covers = (one.since, one.since + ran)
    tx.keep_machine_time(one.tags, _placement(tx, one.id), one.money, *covers)
    for movement, amount in ((Movement.SETTLE, cost), (Movement.ADJUST, over), (Movement.RELEASE, one.held - cost)):
        tx.post(
            move(
                movement,
                amount,
                movement_id=f"{one.id}/{movement}/{number}/{one.money}",
                money=one.money,
                at=now,
                covers=covers if movement is not Movement.RELEASE else (now, now),
                tags=one.tags,
                note=f"launched with {one.tool}",
            )
        )
    return cost + over


def _log(
    broker: Broker, id: str, by: Actor, outcome: AuditOutcome, *, after: str, action: str = "outside.judge"
) -> None:
    with broker.store.access.writing() as tx:
        tx.log(AuditRecord(broker.clock.now(), by.identity, by.came_from, action, id, outcome, after=after))
