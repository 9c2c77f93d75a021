"""The entries to post for a job now: the machine time of its attempts, dated when it was incurred. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from broker.core.events.views import AttemptView, JobView
from broker.core.job.placements import Placement, TransferKind
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import EGRESS, Account, Entry, Movement, Sum, Tags, balances, move, movements
from broker.ledger.holds import Metering, PriceSeries, ledger_rate
from broker.ledger.journal import Posted
from broker.ledger.meter import BilledTime, CostStretch, Meter, advance, can_continue, recount

_SENT = TransferKind.CHECKPOINT  # sent by the machines; the others are read by them


def egress_per_start(placement: Placement) -> Mapping[str, Money]:
    """The expected cost of moving data and checkpoints for one start there (USD), by what is moved.

    Machine time is metered, traffic is not. So this is posted as spent once per start, when the machines come up, dated
    at that moment. Providers' charges correct it later, as far as they are reported by attempt: the machines' provider
    charges for uploaded checkpoints, with the tags of the machines. Data and checkpoints that machines read are charged
    by the provider that stores them, without reference to an attempt.
    """
    amounts = {
        term.moves.value: term.amount if term.per_start is None else term.per_start
        for term in placement.terms
        if term.moves is not None
    }
    return {kind: amount for kind, amount in amounts.items() if amount > Money.ZERO}


def unposted_egress(attempt: AttemptView, moved: Money) -> Mapping[str, Money]:
    """The part that is not posted yet; ``moved``: the posted part.

    All is posted at once, so the result is everything or nothing. An attempt that had no machine moved nothing.
    """
    return {} if moved or attempt.refused else egress_per_start(attempt.placement)


def egress_movements(
    attempt: AttemptView, amounts: Mapping[str, Money], held: Money, job_id: str, tags: Tags, now: datetime
) -> list[Entry]:
    """The movements that post these amounts for the start of the attempt: up to ``held`` (USD) from the hold, the rest
    as adjustments, as providers charge it in any case.
    """
    assert attempt.up_since is not None, "its machines are not up"
    entries: list[Entry] = []
    left = max(held, Money.ZERO)
    for kind, amount in amounts.items():
        entries += charge(
            amount,
            left,
            f"{job_id}/{attempt.number}/{EGRESS}/{kind}",
            money=attempt.placement.money,
            at=now,
            covers=(attempt.up_since, attempt.up_since),
            tags=tags,
            note=f"{kind} {EGRESS}",
        )
        left -= min(amount, left)
    return entries


def charge(amount: Money, held: Money, id: str, **details: Any) -> Iterator[Entry]:
    """The movements that post an amount: up to ``held`` from the hold, the rest as an adjustment. ``id``: the beginning
    of their ids; ``details``: other arguments of `move`."""
    covered = min(amount, held)
    for movement, part in ((Movement.SETTLE, covered), (Movement.ADJUST, amount - covered)):
        yield from move(movement, part, movement_id=f"{id}/{movement}", **details)


def charged_elsewhere(entries: Iterable[Entry]) -> Money:
    """The egress in these entries that the machines' provider does not charge to the attempt (USD)."""
    parts = ((entry, entry.movement_id.split("/")) for entry in entries)
    return sum((entry.amount for entry, id in parts if id[2:3] == [EGRESS] and id[3] != _SENT), Money.ZERO)


SeriesOf = Callable[[Offer, datetime, datetime], Sequence[tuple[datetime, Money]]]
PostedOf = Callable[[str, int], Posted]

# How long after its end an attempt is settled again for prices that become known late: usually within minutes, within
# hours if its provider could not be polled. Prices known even later are settled when the job closes.
LATE = timedelta(days=1)


def pending_hold(view: JobView, kind: MoneyKind) -> Money:
    """The hold of a pending request for more, which must not be spent (USD)."""
    return view.asked.held.get(kind, Money.ZERO) if view.asked and view.asked.extension else Money.ZERO


def tags_of(view: JobView, attempt: AttemptView | None = None) -> Tags:
    """The tags of a job's entries; with an attempt, including the place of the spend."""
    job, offer = view.job, attempt.placement.offer if attempt else None
    return Tags(
        job_id=view.id,
        user=view.user,
        team=job.team,
        project=job.project,
        workload=job.workload.value,
        environment=job.environment,
        attempt=attempt.number if attempt else None,
        provider=offer.provider if offer else None,
        region=offer.region if offer else None,
        capacity_type=offer.capacity_type if offer else None,
        accelerator=offer.accelerator if offer else None,
        gpus=attempt.placement.gpus if attempt else 0,
    )


@dataclass(frozen=True, slots=True)
class Settled:
    """The entries of a settlement, and the new meters of the settled attempts, by number."""

    entries: Sequence[Entry]
    meters: Mapping[int, Meter]


def settle(
    view: JobView,
    sums: Sequence[Sum],
    meters: Mapping[int, Meter],
    series_of: SeriesOf,
    posted_of: PostedOf,
    now: datetime,
    interval: timedelta,
    late: timedelta = LATE,
) -> Settled:
    """Settles a job's attempts up to ``now`` (UTC): their machine time, and the egress of their starts.

    ``sums`` and ``meters``: the job's records. Running machines are settled at most once in ``interval``, ended ones at
    once, and again for prices that become known until ``late`` after their end. Each amount is dated when it was
    incurred; so are corrections of earlier settlements.

    Amounts that the hold does not cover are posted as adjustments, as the provider bills them in any case. So only the
    clock bounds the settlement of a running machine: its engine reports it, and it is billed until it is known to be
    gone, whatever its lease says. If the clock was ahead for one tick, the next settlement reverses the amounts dated
    in the future, with those dates, and returns the part that came from the hold to it, so that no other job can use
    that money in the meantime.
    """
    entries: list[Entry] = []
    new_meters: dict[int, Meter] = {}
    old_balances = balances(sums)
    held = {kind: balance.held - pending_hold(view, kind) for kind, balance in old_balances.items()}
    for attempt in view.attempts:
        if attempt.up_since is None:
            continue
        attempt_sums = _attempt_sums(attempt, sums)
        meter, stretches = _meter_of(attempt, attempt_sums, meters), list[CostStretch]()
        if meter is None or _may_be_due(attempt, meter, now, interval, late):
            meter, stretches = _measure(view, attempt, meter, series_of, posted_of, now)
        egress = unposted_egress(attempt, meter.moved)
        if attempt.refused and meter.moved:
            stretches.append(CostStretch(attempt.up_since, attempt.up_since, -meter.moved))
            meter = replace(meter, moved=Money.ZERO)
        if not stretches and not egress and (not attempt.gone or meter == meters.get(attempt.number)):
            continue
        new_meters[attempt.number] = replace(meter, moved=meter.moved + sum(egress.values(), Money.ZERO))
        kind = attempt.placement.money
        left = held.get(kind, Money.ZERO)
        postings = egress_movements(attempt, egress, left, view.id, tags_of(view, attempt), now)
        left += _hold_change(postings)
        postings += _movements(view, attempt, attempt_sums, stretches, left, now)
        if (restored := _hold_change(postings)) > Money.ZERO and not old_balances[kind].held:
            postings += _redate_hold(view, attempt, restored, sums, now)
        held[kind] = held.get(kind, Money.ZERO) + _hold_change(postings)
        entries += postings
    return Settled(entries, new_meters)


def is_due(view: JobView, sums: Sequence[Sum], meters: Mapping[int, Meter], now: datetime, interval: timedelta) -> bool:
    """Whether `settle` would post anything. Reads no prices: running spot machines count at the price of their last
    settlement, and ended attempts are not checked for prices that became known late."""
    for attempt in view.attempts:
        if attempt.up_since is None:
            continue
        attempt_sums = _attempt_sums(attempt, sums)
        meter = _meter_of(attempt, attempt_sums, meters)
        if meter is None or unposted_egress(attempt, meter.moved):
            return True
        if not _may_be_due(attempt, meter, now, interval, timedelta(0)):
            continue
        usage, rates = _billed_time(attempt, now), [(meter.since, meter.rate)]
        if attempt.gone or not can_continue(meter, rates, usage) or advance(meter, rates, usage)[1]:
            return True
    return False


def is_metered(view: JobView, sums: Sequence[Sum], meters: Mapping[int, Meter]) -> bool:
    """Whether each attempt has a meter or none is needed; else `settle` reads all entries of the job."""
    return all(
        _meter_of(attempt, _attempt_sums(attempt, sums), meters) is not None
        for attempt in view.attempts
        if attempt.up_since is not None
    )


def _attempt_sums(attempt: AttemptView, sums: Sequence[Sum]) -> list[Sum]:
    """The entries for the attempt's placement, without those for its machines outside bought capacity, which cost
    another kind of money.
    """
    return [entry for entry in sums if entry.tags.attempt == attempt.number and entry.money is attempt.placement.money]


def _redate_hold(view: JobView, attempt: AttemptView, held: Money, sums: Sequence[Sum], now: datetime) -> list[Entry]:
    """The movement that gives new dates to a hold that was used up and then restored: from now, at the rate of the
    attempt's machines.
    """
    rate = ledger_rate(attempt.placement.offer) * attempt.placement.nodes
    burn = Burn(held, now, datetime.max.replace(tzinfo=now.tzinfo), rate).seen(now)
    kind = attempt.placement.money
    return list(
        move(
            Movement.DATE,
            Money.ZERO,
            movement_id=f"{view.id}/{attempt.number}/{Movement.DATE}/{movements(sums)}",
            money=kind,
            at=now,
            covers=(burn.start, burn.end),
            tags=tags_of(view, attempt),
            rate=rate,
        )
    )


def _hold_change(entries: Iterable[Entry]) -> Money:
    """The change of the hold by these entries (USD); negative if they draw on it."""
    return sum((entry.amount for entry in entries if entry.account is Account.HELD), Money.ZERO)


def _billed_time(attempt: AttemptView, now: datetime) -> BilledTime:
    """The machine time of an attempt whose machines were up."""
    start, billing = attempt.up_since, attempt.placement.offer.billing
    assert start is not None, "called for an attempt whose machine was never up"
    if not attempt.gone:
        return BilledTime(start, max(now, start), billing)
    if attempt.refused:  # there was no machine: the amount posted while one seemed to start is returned
        return BilledTime(start, start, replace(billing, minimum=timedelta(0)), Metering.ENDED)
    metering = Metering.INTERRUPTED if attempt.taken_back else Metering.ENDED
    return BilledTime(start, max(attempt.gone_at or now, start), billing, metering)


def _machines_in_place(attempt: AttemptView) -> int:
    """The number of its machines on bought capacity; the others are charged separately (`outside.charged_outside`)."""
    return max(attempt.placement.nodes - len(attempt.outside), 0)


def _meter_of(attempt: AttemptView, attempt_sums: Sequence[Sum], meters: Mapping[int, Meter]) -> Meter | None:
    """The attempt's meter; a new one if nothing was posted for it; None if its meter is missing."""
    if attempt.number in meters or any(entry.account is Account.SPENT for entry in attempt_sums):
        return meters.get(attempt.number)
    assert attempt.up_since is not None, "called for an attempt whose machine was never up"
    return Meter.new(attempt.up_since, ledger_rate(attempt.placement.offer) * attempt.placement.nodes)


def _may_be_due(attempt: AttemptView, meter: Meter, now: datetime, interval: timedelta, late: timedelta) -> bool:
    """Whether the cost of the machines may differ from the settled amount by now.

    A clock that was set back counts as one that advanced.
    """
    end = _billed_time(attempt, now).end
    if not attempt.gone:
        return abs(end - meter.settled_to) >= interval
    may_change = attempt.placement.offer.capacity_type is CapacityType.SPOT and now - end < late
    return may_change or not meter.ended or meter.settled_to != end


def _measure(
    view: JobView, attempt: AttemptView, meter: Meter | None, series_of: SeriesOf, posted_of: PostedOf, now: datetime
) -> tuple[Meter, list[CostStretch]]:
    """The attempt's meter after posting the stretches, and these: on-demand machines at the rate of their placement,
    spot machines at the observed prices."""
    usage = _billed_time(attempt, now)

    def rates(since: datetime) -> PriceSeries:
        offer, nodes = attempt.placement.offer, _machines_in_place(attempt)
        spot = offer.capacity_type is CapacityType.SPOT
        observed = series_of(offer, since, max(usage.end, since)) if spot else ()
        return [(at, price * nodes) for at, price in observed or [(usage.start, ledger_rate(offer))]]

    if meter is not None and can_continue(meter, rate_series := rates(meter.since), usage):
        return advance(meter, rate_series, usage)
    posted = posted_of(view.id, attempt.number)
    return recount(posted.time, rates(usage.start), usage, posted.moved)


def _movements(
    view: JobView,
    attempt: AttemptView,
    attempt_sums: Sequence[Sum],
    stretches: Sequence[CostStretch],
    held: Money,
    now: datetime,
) -> list[Entry]:
    """The movements that post the stretches.

    The total due comes from the hold, up to ``held`` (USD). If the total is negative, it returns to the hold as far as
    it came from there.
    """
    due = sum((row.amount for row in stretches), Money.ZERO)
    spent, drawn = (
        sum((row.amount for row in attempt_sums if row.account is account), Money.ZERO)
        for account in (Account.SPENT, Account.HELD)
    )
    left = {
        Movement.SETTLE: min(max(due, Money.ZERO), max(held, Money.ZERO)),
        # The part of this attempt's cost that came from the hold is at most its cost.
        Movement.RESTORE: min(max(-due, Money.ZERO), max(-drawn - (spent + due), Money.ZERO)),
    }
    number = sum(
        row.count for row in attempt_sums if row.account is Account.SPENT
    )  # each stretch adds one or two movements
    entries: list[Entry] = []
    for row in stretches:
        movement, sign = (Movement.SETTLE, 1) if row.amount > Money.ZERO else (Movement.RESTORE, -1)
        part = min(row.amount * sign, left[movement])
        left[movement] -= part
        for kind, amount in ((movement, part), (Movement.ADJUST, row.amount - part * sign)):
            posted = move(
                kind,
                amount,
                movement_id=f"{view.id}/{attempt.number}/{kind}/{number}",
                money=attempt.placement.money,
                at=now,
                covers=(row.start, row.end),
                tags=tags_of(view, attempt),
            )
            number += bool(posted)
            entries += posted
    return entries


def release(view: JobView, sums: Sequence[Sum], now: datetime) -> list[Entry]:
    """The entries that release the job's remaining hold."""
    return release_of(view, sums, {kind: balance.held for kind, balance in balances(sums).items()}, now)


def release_of(view: JobView, sums: Sequence[Sum], amounts: Mapping[MoneyKind, Money], now: datetime) -> list[Entry]:
    """The entries that release these amounts of the job's hold, at most all of it."""
    number = movements(sums)
    return [
        entry
        for kind, balance in balances(sums).items()
        for entry in move(
            Movement.RELEASE,
            min(balance.held, amounts.get(kind, Money.ZERO)),
            movement_id=f"{view.id}/release/{number}/{kind}",
            money=kind,
            at=now,
            covers=(now, now),
            tags=tags_of(view),
        )
    ]
