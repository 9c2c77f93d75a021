"""The funds of an attempt, and the resulting lease: until when its machines are paid. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from broker.core.events.views import AttemptView, JobView
from broker.core.market.offers import Billing, CapacityType, MoneyKind
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.engines.runfolder.mailbox import LeaseGrant
from broker.ledger.entries import Account, Balance, Entry, balances
from broker.ledger.holds import STOP_GRACE, ledger_rate, paid_until, shortfall
from broker.ledger.meter import Meter
from broker.reconciler.settlement.settlement import SeriesOf, pending_hold

_NO_METERS: Mapping[int, Meter] = MappingProxyType({})
EdgesOf = Callable[[], Sequence[datetime]]


@dataclass(frozen=True, slots=True)
class Funds:
    """The funds of an attempt: ``left`` (USD) from ``start`` (UTC) at ``rate`` (USD per hour, all its machines).

    ``settled``: the part of ``left`` spent so far. ``egress``: held in addition for a start to come. ``judged``: the
    job's whole hold with the time for which the budgets judged it; ``judged_until``: the end of that time by the
    current clock; None if unknown. ``edges``: the ends of its budgets' periods (UTC).
    """

    start: datetime
    left: Money
    rate: Money
    billing: Billing
    settled: Money = Money.ZERO
    egress: Money = Money.ZERO
    judged: Burn | None = None
    judged_until: datetime | None = None
    edges: tuple[datetime, ...] = ()

    @property
    def paid_until(self) -> datetime | None:
        """When its machines must begin to stop (UTC); None if they cost nothing.

        The earlier of two times: the end of the money, and the end of the time for which the budgets judged it. Later
        spend would fall into a period for which it was not judged.
        """
        until = self.money_until
        if until is None or self.judged_until is None:
            return until
        return min(until, max(self.start, self.judged_until - STOP_GRACE))

    @property
    def faster(self) -> bool:
        """Whether the money is used faster than was judged and a period ends before it is used up: then more is spent
        in that period than was judged.
        """
        judged = self.judged
        return judged is not None and self.rate > judged.rate and any(edge < judged.end for edge in self.edges)

    @property
    def within_judgement(self) -> datetime | None:
        """As `paid_until`; if the money is used faster than was judged, not beyond the amount judged for the time
        before the end of a period. What was judged for earlier and not used, perhaps in another period, does not count:
        it is judged again before it is used."""
        until, judged = self.paid_until, self.judged
        if until is None or judged is None or not self.faster:
            return until
        unsettled_from = self.start + self.settled.lasts(self.rate)
        for edge in self.edges:
            if edge < judged.end:
                timed = judged.rate.for_duration(max(edge - unsettled_from, timedelta(0)))
                lasts = (min(judged.before(edge) - self.egress, timed) + self.settled).lasts(self.rate)
                until = min(until, self.start + max(lasts - STOP_GRACE, timedelta(0)))
        return until

    @property
    def money_until(self) -> datetime | None:
        """When its machines must begin to stop to cost no more than ``left`` (UTC); None if they cost nothing."""
        return paid_until(self.start, self.left, self.rate, billing=self.billing, stop_grace=STOP_GRACE)

    def lacking(self, until: datetime) -> Money:
        """The additional hold (USD) for its machines to run until then."""
        return shortfall(self.start, self.left, self.rate, until, billing=self.billing, stop_grace=STOP_GRACE)

    def to_spare(self, until: datetime) -> Money:
        """The part of ``left`` (USD) that its machines do not need to run until then."""
        nothing = replace(self, left=Money.ZERO)
        return max(self.left - nothing.lacking(until), Money.ZERO)


def funds_of(
    view: JobView,
    attempt: AttemptView,
    entries: Sequence[Entry],
    series_of: SeriesOf,
    now: datetime,
    meters: Mapping[int, Meter] = _NO_METERS,
    judged: Burn | None = None,
    edges: EdgesOf = tuple,
) -> Funds:
    """The funds of an attempt, from the current hold without pending requests, and without what another open attempt
    may cost until one of the two is over.

    ``meters``: how far machine time is settled; without that of the attempt, ``entries`` determine it. ``judged``: the
    job's whole hold of this kind of money, with its dates. ``edges``: returns the ends of its budgets' periods; called
    only if the money is used faster than was judged.
    """
    offer, kind = attempt.placement.offer, attempt.placement.money
    spent_entries = [e for e in entries if e.tags.attempt == attempt.number and e.account is Account.SPENT]
    left = balances(entries).get(kind, Balance()).held - pending_hold(view, kind)
    meter, other = meters.get(attempt.number), other_open(view, attempt)
    if other is not None and other.placement.money is kind:
        since = meters[other.number].settled_to if other.number in meters else other.up_since or now
        left -= overlap_cost(view, other, since)
    start, price, settled = attempt.up_since or now, ledger_rate(offer), Money.ZERO
    if offer.capacity_type is CapacityType.SPOT:
        # Its price changes: from the last settlement on, the rest lasts at the current price.
        start = max((e.covers_to for e in spent_entries), default=start) if meter is None else meter.settled_to
        price = next((price for _, price in reversed(series_of(offer, now, now))), price)
    else:
        settled = sum((e.amount for e in spent_entries), Money.ZERO) if meter is None else meter.settled
    egress = attempt.placement.egress if attempt.up_since is None else Money.ZERO
    until = None if judged is None else judged.end_at(now)
    rate = price * attempt.placement.nodes
    period_ends = tuple(edges()) if judged is not None and rate > judged.rate else ()
    left = max(left - egress, Money.ZERO) + settled
    return Funds(start, left, rate, offer.billing, settled, egress, judged, until, period_ends)


def other_open(view: JobView, attempt: AttemptView) -> AttemptView | None:
    """The attempt that is open beside this one: one of them stands by."""
    latest, standby = view.latest, view.standby
    if latest is None or latest.state.final or standby is None:
        return None
    return latest if attempt.number == standby.number else standby


def overlap_cost(view: JobView, attempt: AttemptView, since: datetime) -> Money:
    """What one of two open attempts may cost from ``since`` (UTC) until the standby is handed the job or dropped (USD),
    the time to stop included."""
    assert view.standby is not None, "two attempts are open"
    assert view.standby.standby_until is not None, "two attempts are open"
    placement = attempt.placement
    rate, billing = ledger_rate(placement.offer) * placement.nodes, placement.offer.billing
    cost = shortfall(since, Money.ZERO, rate, view.standby.standby_until, billing=billing, stop_grace=STOP_GRACE)
    return cost + (placement.egress if attempt.up_since is None else Money.ZERO)


def lease_of(view: JobView, attempt: AttemptView, funds: Funds, billed: timedelta, now: datetime) -> LeaseGrant:
    """How long the attempt's node may run: limited by the judged hold and the job's remaining machine time.

    Computed from the current hold, so a top-up extends it. Prepaid capacity has no ``paid_until``.
    """
    ends_at = now + max(view.max_duration - billed, timedelta(0))
    paid = None if attempt.placement.money is MoneyKind.AMORTISED else funds.within_judgement
    return LeaseGrant(paid, ends_at, attempt.stop_requested, standby=attempt.standby_until is not None)
