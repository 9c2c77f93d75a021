"""The hold of a job, how long it lasts, and a machine's cost so far. Pure.

One hold per job, shared by all its attempts (`hold_needed`), dated for the budgets at its full rate (`burn_of`); a node
may run until the hold, less the cost of stopping, is used up (`paid_until`); `cost_of` is the total cost, and
`broker.ledger.meter` divides it over time. Rates are USD per hour, times UTC.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from broker.core.job.placements import Placement
from broker.core.market.offers import Billing, CapacityType, MoneyKind, Offer
from broker.core.values.burns import Burn, rate_over
from broker.core.values.money import Money, divide_half_even, in_microseconds

# Time a machine may be billed after its stop: final checkpoint, upload, removal.
STOP_GRACE = timedelta(minutes=2)

_NO_TIME = timedelta(0)
_HOUR_IN_MICROSECONDS = in_microseconds(timedelta(hours=1))
_PER_SECOND = Billing()

# When each hourly rate of one machine came into force, ascending.
PriceSeries = Sequence[tuple[datetime, Money]]


class Metering(StrEnum):
    """The state of a machine's bill: running, ended, or ended by a preemption."""

    RUNNING = "running"
    ENDED = "ended"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Exposure:
    """The highest cost of a job's placements in one kind of money.

    ``rate``: USD per hour for all nodes. ``egress``: transfer of data and checkpoints. ``minimum``: the longest time
    billed at once (a provider's minimum, or its step if longer).
    """

    rate: Money
    egress: Money = Money.ZERO
    minimum: timedelta = _NO_TIME


def ledger_rate(offer: Offer) -> Money:
    """The ledger's cost of an hour of one machine of the offer.

    The price; of bought capacity also its value, because the ledger has the payment. The depreciation of an owned
    machine is in showback alone. Raises ValueError for an offer without a valid price: nothing is held or settled on an
    unknown one.
    """
    if offer.price is None or not offer.has_valid_price():
        raise ValueError(f"{offer.id} has no valid price")
    bought = offer.money is MoneyKind.AMORTISED and offer.capacity_type is not CapacityType.OWNED
    return offer.price + offer.amortised if bought and offer.amortised is not None else offer.price


def longest_billing_step(billing: Billing) -> timedelta:
    """The longest billing step: the minimum in whole steps, or one step."""
    return max(-(-billing.minimum // billing.granularity) * billing.granularity, billing.granularity)


def exposures(
    placements: Iterable[Placement], *, egress: Mapping[MoneyKind, Money] | None = None
) -> dict[MoneyKind, Exposure]:
    """The exposure in each kind of money over all placements that a job may fall back to.

    ``egress``: maximum transfer cost, from the planner. Raises ValueError for an offer without a valid price.
    """
    result = {kind: Exposure(Money.ZERO, amount) for kind, amount in (egress or {}).items()}
    for placement in placements:
        previous = result.get(placement.money, Exposure(Money.ZERO))
        billing = placement.offer.billing
        result[placement.money] = Exposure(
            rate=max(previous.rate, ledger_rate(placement.offer) * placement.nodes),
            egress=previous.egress,
            minimum=max(previous.minimum, longest_billing_step(billing)),
        )
    return result


def hold_needed(
    exposed: Mapping[MoneyKind, Exposure], *, max_duration: timedelta, max_cost: Money | None, stop_grace: timedelta
) -> dict[MoneyKind, Money]:
    """The necessary hold by kind of money; kinds without any are left out (owned and prepaid hold no cash).

    ``min(max_cost, rate × (max_duration + provider minimum + stop grace) + egress)``: ``max_cost`` covers everything
    but amortized money, which ends no job. Raises ValueError for a negative figure or a ``max_duration`` ≤ 0.
    """
    if max_duration <= _NO_TIME or stop_grace < _NO_TIME:
        raise ValueError(f"a job cannot be held for over {max_duration} and {stop_grace}")
    if max_cost is not None and max_cost < Money.ZERO:
        raise ValueError(f"max_cost of {max_cost} makes no sense")
    needed = {}
    for kind, exposure in exposed.items():
        if exposure.rate < Money.ZERO or exposure.egress < Money.ZERO:
            raise ValueError(f"a negative exposure makes no sense: {exposure}")
        amount = exposure.rate.for_duration(longest_billed(exposure, max_duration, stop_grace)) + exposure.egress
        if max_cost is not None and kind is not MoneyKind.AMORTISED:
            amount = min(amount, max_cost)
        if amount:
            needed[kind] = amount
    return needed


def burn_of(amount: Money, rate: Money, egress: Money, now: datetime, longest: timedelta) -> Burn:
    """A hold dated now: the time and rate for which budgets judge it.

    ``rate``: maximum rate of its machines (USD per hour, all of them); ``egress``: the part of ``amount`` that a start
    uses at once; ``longest``: the maximum billed time, with provider minimum and stop grace. The hold burns at its full
    rate and ends when used up, at the latest after ``longest``. A hold larger than needed for ``longest`` burns at the
    higher rate that uses it up.
    """
    machine_money = max(amount - egress, Money.ZERO)
    full = max(rate, rate_over(machine_money, longest))
    duration = min(machine_money.lasts(full), longest) if full > Money.ZERO else _NO_TIME
    return Burn(amount, now, now + duration, full)


def longest_billed(exposure: Exposure, max_duration: timedelta, stop_grace: timedelta) -> timedelta:
    """The longest time that a hold over ``max_duration`` pays for (see `hold_needed`)."""
    return max_duration + exposure.minimum + stop_grace


def paid_until(
    start: datetime, remaining: Money, rate: Money, *, billing: Billing = _PER_SECOND, stop_grace: timedelta
) -> datetime | None:
    """When a machine must begin to stop so that its bill stays within ``remaining``; None if it costs nothing.

    ``start``: start of billing; ``remaining``: what the hold has for this attempt from then (the hold less the present
    and possible cost of other attempts); ``rate``: maximum USD per hour for all nodes. Includes the provider's whole
    steps and ``stop_grace`` for checkpoint and removal. Never before ``start``: a machine whose ``paid_until`` is its
    start must not be launched.
    """
    if rate <= Money.ZERO:
        return None
    if remaining <= Money.ZERO:
        return start
    try:
        affordable = remaining.lasts(rate)
        affordable -= affordable % billing.granularity
        if affordable < billing.minimum:
            return start
        return start + max(affordable - stop_grace, _NO_TIME)
    except OverflowError:  # it lasts longer than a datetime can express
        return datetime.max.replace(tzinfo=start.tzinfo)


def shortfall(
    start: datetime,
    remaining: Money,
    rate: Money,
    until: datetime,
    *,
    billing: Billing = _PER_SECOND,
    stop_grace: timedelta,
) -> Money:
    """The amount ``remaining`` lacks for a machine to run until then: with it, `paid_until` is no earlier; with a
    micro-dollar less, it is. Zero if it suffices. Otherwise as `paid_until`.
    """
    if rate <= Money.ZERO:
        return Money.ZERO
    billed = max(until - start, _NO_TIME) + stop_grace
    steps = -(-max(billed, billing.minimum) // billing.granularity) * billing.granularity
    cost = -(-rate.micros * in_microseconds(steps) // _HOUR_IN_MICROSECONDS)
    return max(Money(cost) - remaining, Money.ZERO)


def cost_of(
    prices: Money | PriceSeries,
    nodes: int,
    start: datetime,
    end: datetime,
    billing: Billing = _PER_SECOND,
    *,
    metering: Metering = Metering.RUNNING,
) -> Money:
    """The total cost of ``nodes`` machines from ``start`` to ``end``, rounded half-even once.

    ``prices``: the frozen hourly rate of one machine, or its observed series; the first rate also applies before its
    time, the last one afterwards. Running machines are billed to the microsecond; after the end the provider's minimum
    and whole steps are added, at the last price. While an interruption would make the time free
    (`Billing.free_if_interrupted_within`) a running machine costs nothing, so for a given series the total only grows.
    Raises ValueError for an empty or unordered series, or an ``end`` before ``start``.
    """
    if nodes < 1 or end < start:
        raise ValueError(f"cannot meter {nodes} machines from {start} to {end}")
    elapsed = end - start
    if metering is not Metering.ENDED and elapsed < billing.free_if_interrupted_within:
        return Money.ZERO
    billed_end = end if metering is Metering.RUNNING else start + in_steps(elapsed, billing)
    total = 0
    for rate, since, until in _segments(prices, start, end, billed_end):
        total += rate.micros * in_microseconds(until - since)
    return Money(divide_half_even(total * nodes, _HOUR_IN_MICROSECONDS))


def in_steps(elapsed: timedelta, billing: Billing) -> timedelta:
    """The billed time: at least the minimum, then whole steps."""
    billed = max(elapsed, billing.minimum)
    return -(-billed // billing.granularity) * billing.granularity


def _segments(
    prices: Money | PriceSeries, start: datetime, end: datetime, billed_end: datetime
) -> Iterable[tuple[Money, datetime, datetime]]:
    """Each hourly rate with the time in which it was in force within ``start`` … ``billed_end``; changes at or after
    ``end``, when the machine was gone, do not count."""
    series = [(start, prices)] if isinstance(prices, Money) else list(prices)
    if not series or any(later[0] < earlier[0] for earlier, later in pairwise(series)):
        raise ValueError("prices must be in chronological order, at least one")
    changes = [series[0], *((at, rate) for at, rate in series[1:] if at < end)]
    for index, (at, rate) in enumerate(changes):
        since = start if index == 0 else max(start, at)
        until = changes[index + 1][0] if index + 1 < len(changes) else billed_end
        if until > since:
            yield rate, since, until
