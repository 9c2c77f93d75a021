"""The cost of an attempt's machines over time, and the movements that post it. Pure.

Machine time is settled repeatedly while machines run. Later information may contradict a settlement: a price change
becomes known late, a machine turns out to have ended earlier, a fast clock is set back. `advance` compares the settled
cost with the cost by present knowledge, and returns the differences as `CostStretch`es: each belongs to the time of its
cost, so each budget period bears exactly its machine time. A stretch has one price, so its amount may be spread evenly.

A `Meter` stores how far an attempt is settled, and the exact cost at the latest price reported before that. A price
that becomes known late is dated later than all before, so `advance` need not look back further, and takes the same time
for a machine of a month as for a new one. If that does not hold (a machine ended before the latest price, rewritten
prices, no meter), `can_continue` says so, and `recount` compares with all postings.

Rates are USD per hour of all machines of the attempt, times are UTC.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from broker.core.market.offers import Billing
from broker.core.values.money import Money, divide_half_even, in_microseconds
from broker.ledger.entries import QUARTER, slots
from broker.ledger.holds import Metering, PriceSeries, in_steps

HOUR = in_microseconds(timedelta(hours=1))
_TICK = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Tolerance in micro-dollars between entries and their intended sum at an edge of a quarter-hour: each entry across the
# edge is rounded there.
_ROUNDING = 2


@dataclass(frozen=True, slots=True)
class Meter:
    """How far the machine time of an attempt is settled.

    ``settled``: total posted for machine time. ``settled_to``: until when. ``since``: when the latest price before that
    took effect, or the machines' start; ``rate``: the rate assumed from then; ``cost``: exact cost of the time before
    it, in micro-dollars times an hour in microseconds. ``moved``: posted for data and checkpoint transfer. ``ended``:
    the machines are gone, with provider minimum and whole steps settled.
    """

    settled: Money
    settled_to: datetime
    since: datetime
    rate: Money
    cost: int = 0
    moved: Money = Money.ZERO
    ended: bool = False

    @classmethod
    def new(cls, start: datetime, rate: Money) -> Meter:
        """The meter of machines without settlements."""
        return cls(Money.ZERO, start, start, rate)


@dataclass(frozen=True, slots=True)
class CostStretch:
    """The cost of the time from ``start`` to ``end`` (UTC, half-open) beyond its settlements; negative if too much was
    settled.
    """

    start: datetime
    end: datetime
    amount: Money


@dataclass(frozen=True, slots=True)
class BilledTime:
    """The time that is billed: machines up from ``start`` to ``end`` (UTC; so far, or finally), and their provider's
    billing."""

    start: datetime
    end: datetime
    billing: Billing
    metering: Metering = Metering.RUNNING

    @property
    def free(self) -> bool:
        """Whether nothing is billed: an interruption within this time makes it free, or still may."""
        elapsed = self.end - self.start
        return self.metering is not Metering.ENDED and elapsed < self.billing.free_if_interrupted_within

    @property
    def billed_to(self) -> datetime:
        """The end of billing: including the provider's minimum and whole steps once the machines are gone."""
        if self.metering is Metering.RUNNING:
            return self.end
        return self.start + in_steps(self.end - self.start, self.billing)


def can_continue(meter: Meter, rates: PriceSeries, usage: BilledTime) -> bool:
    """Whether `advance` can continue from the meter. ``rates``: as for `advance`."""
    if meter.since <= usage.start:
        return meter.since == usage.start
    return usage.end > meter.since and not usage.free and tuple(rates[0]) == (meter.since, meter.rate)


def advance(meter: Meter, rates: PriceSeries, usage: BilledTime) -> tuple[Meter, list[CostStretch]]:
    """The meter after settling ``usage``, and the stretches to post.

    ``rates``: the one in force at ``meter.since``, then each reported up to ``usage.end``; the first also applies
    before its time. Raises ValueError for none.
    """
    settled = _CostCurve.of([(meter.since, meter.rate)], meter.cost)
    cost = _cost_curve(rates, usage, meter.since, meter.cost)
    edges = sorted({meter.settled_to, usage.end, *cost.since})
    stretches = []
    for start, end in pairwise(edges):
        due = cost.at(min(end, usage.end)) - cost.at(min(start, usage.end))
        posted = settled.at(min(end, meter.settled_to)) - settled.at(min(start, meter.settled_to))
        stretches.append(CostStretch(start, end, due - posted))
    total = cost.at(usage.billed_to)
    # Time billed after the end belongs to the last moment of the machines, so that it never falls into a period without
    # them.
    after_end = (total - cost.at(usage.end)) - (meter.settled - settled.at(meter.settled_to))
    stretches.append(CostStretch(max(usage.end - _TICK, usage.start), usage.end, after_end))
    return _meter(cost, rates, total, usage, meter.moved), [stretch for stretch in stretches if stretch.amount]


def recount(
    posted: Iterable[tuple[datetime, datetime, Money]], rates: PriceSeries, usage: BilledTime, moved: Money
) -> tuple[Meter, list[CostStretch]]:
    """As `advance`, from all postings for the attempt's machine time: (from, to, amount). ``rates``: from
    ``usage.start`` on; ``moved``: posted for data and checkpoint transfer.

    Times are compared by quarter-hours, which make up budget periods; adjacent differences at one rate become one
    stretch.
    """
    cost = _cost_curve(rates, usage, usage.start, 0)
    total = cost.at(usage.billed_to)
    due = [(start, end, cost.at(end) - cost.at(start)) for start, end in pairwise([*cost.since, usage.end])]
    due.append((max(usage.end - _TICK, usage.start), usage.end, total - cost.at(usage.end)))
    differences: dict[int, int] = {}
    times = {usage.start, usage.end}
    for sign, spans in ((1, due), (-1, posted)):
        for start, end, amount in spans:
            times |= {start, end}
            for slot, micros in slots(sign * amount.micros, _micros(start), _micros(end), QUARTER):
                differences[slot] = differences.get(slot, 0) + micros
    stretches = []
    for first, after, micros in _even_runs(differences):
        start, end = _time(first * QUARTER), _time(after * QUARTER)
        if after == first + 1:  # exclude time without machines or settlements
            start, end = max(start, min(times)), min(end, max(times))
        stretches.append(CostStretch(start, end, Money(micros)))
    return _meter(cost, rates, total, usage, moved), stretches


@dataclass(frozen=True, slots=True)
class _CostCurve:
    """The cost of machines over time. ``since``: when each rate took effect; ``rates``: those; ``before``: exact cost
    by then, in micro-dollars times an hour in microseconds.
    """

    since: Sequence[datetime]
    rates: Sequence[Money]
    before: Sequence[int]

    @classmethod
    def of(cls, changes: PriceSeries, before: int) -> _CostCurve:
        """From the rates with the time from which each holds, and the exact cost before the first."""
        costs = [before]
        for (at, rate), (until, _) in pairwise(changes):
            costs.append(costs[-1] + rate.micros * in_microseconds(until - at))
        return cls([at for at, _ in changes], [rate for _, rate in changes], costs)

    def at(self, time: datetime) -> Money:
        """The cost until then, rounded half-even. ``time``: not before the first rate."""
        return Money(divide_half_even(self.exactly(time), HOUR))

    def exactly(self, time: datetime) -> int:
        """As `at`, without rounding, in micro-dollars times an hour in microseconds."""
        index = bisect_right(self.since, time) - 1
        return self.before[index] + self.rates[index].micros * in_microseconds(time - self.since[index])


def _cost_curve(rates: PriceSeries, usage: BilledTime, since: datetime, before: int) -> _CostCurve:
    """Changes at or after the end of the usage do not count: the machines were gone, and the rest of the last step is
    billed at the last price before."""
    if not rates:
        raise ValueError("nothing can be metered without a rate")
    if usage.free:
        return _CostCurve.of([(since, Money.ZERO)], 0)
    series = [(since, rates[0][1]), *((at, rate) for at, rate in rates[1:] if since < at < usage.end)]
    changes = [series[0], *(after for previous, after in pairwise(series) if after[1] != previous[1])]
    return _CostCurve.of(changes, before)


def _meter(cost: _CostCurve, rates: PriceSeries, total: Money, usage: BilledTime, moved: Money) -> Meter:
    """The meter continues from the latest reported price, even if it repeats the price before, so that no earlier
    prices are read again."""
    since = cost.since[0]
    if not usage.free:
        since = max([since, *(at for at, _ in rates if at < usage.end)])
    ended = usage.metering is not Metering.RUNNING
    return Meter(total, usage.end, since, cost.rates[-1], cost.exactly(since), moved, ended)


def _even_runs(differences: dict[int, int]) -> Iterator[tuple[int, int, int]]:
    """Runs of consecutive slots over which an amount may be spread evenly: first slot, slot after the last, amount. At
    each edge within a run the error is at most `_ROUNDING`; the amounts add up exactly. ``differences`` is not
    empty."""
    first, after = min(differences), max(differences) + 1
    while first < after:
        end = amount = total = 0
        low, high = float("-inf"), float("inf")
        for slot in range(first, after):
            total += differences.get(slot, 0)
            length = slot + 1 - first
            if not low <= total / length <= high:
                break
            end, amount = slot + 1, total
            low = max(low, (total - _ROUNDING) / length)
            high = min(high, (total + _ROUNDING) / length)
        if amount:
            yield first, end, amount
        first = end


def _micros(time: datetime) -> int:
    return in_microseconds(time - _EPOCH)


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
