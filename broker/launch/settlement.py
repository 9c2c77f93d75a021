"""What is to be paid for an attempt now: metered machine time at its price, less what was settled before. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.money import Money
from broker.core.offers import Billing, CapacityType, MoneyKind, Offer
from broker.core.outcomes import AttemptState
from broker.core.views import AttemptView, JobView
from broker.launch.admission import STOP_GRACE
from broker.launch.mailbox import Lease
from broker.ledger.entries import Account, Balance, Entry, Movement, Tags, balances, move
from broker.ledger.holds import Metering, cost_of, due, ledger_rate, paid_until, shortfall

SeriesOf = Callable[[Offer, datetime, datetime], Sequence[tuple[datetime, Money]]]


def waiting(view: JobView, kind: MoneyKind) -> Money:
    """What is held for something that nobody has approved yet: set aside, and not to be spent."""
    return view.asked.held.get(kind, Money.ZERO) if view.asked and view.asked.extension else Money.ZERO


def tags_of(view: JobView, attempt: AttemptView | None = None) -> Tags:
    """What a job's money is tagged with; with an attempt, also where it was spent."""
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


def metered(attempt: AttemptView, now: datetime, series_of: SeriesOf) -> Money:
    """What the attempt's machines have cost so far: on-demand at the rate frozen when it was placed, spot over the
    prices observed since."""
    if attempt.up_since is None:
        return Money.ZERO
    offer = attempt.placement.offer
    end = attempt.gone_at if attempt.gone and attempt.gone_at else max(now, attempt.up_since)
    metering = Metering.RUNNING
    if attempt.gone:
        metering = Metering.INTERRUPTED if attempt.state is AttemptState.INTERRUPTED else Metering.ENDED
    prices: Money | Sequence[tuple[datetime, Money]] = ledger_rate(offer)
    if offer.capacity_type is CapacityType.SPOT:
        prices = series_of(offer, attempt.up_since, end) or prices
    return cost_of(prices, attempt.placement.nodes, attempt.up_since, end, offer.billing, metering=metering)


def settle(
    view: JobView, entries: Sequence[Entry], series_of: SeriesOf, now: datetime, every: timedelta
) -> list[Entry]:
    """The entries that settle a job's attempts up to ``now``; ``entries`` are those the job has.

    Running machines are settled at most once in ``every``, ended ones at once. What the hold does not cover is taken
    as an adjustment: the provider bills it all the same.
    """
    found: list[Entry] = []
    held = {kind: balance.held - waiting(view, kind) for kind, balance in balances(entries).items()}
    for attempt in view.attempts:
        owed = _owed(attempt, entries, series_of, now, every)
        if owed is None:
            continue
        amount, kind = owed.amount, attempt.placement.money
        covered = min(max(amount, Money.ZERO), max(held.get(kind, Money.ZERO), Money.ZERO))
        held[kind] = held.get(kind, Money.ZERO) - covered
        for movement, part in ((Movement.SETTLE, covered), (Movement.ADJUST, amount - covered)):
            found += move(
                movement,
                part,
                movement_id=f"{view.id}/{attempt.number}/{movement}/{owed.before}",
                money=kind,
                at=now,
                covers=(owed.start, owed.end),
                tags=tags_of(view, attempt),
            )
    return found


def is_due(view: JobView, entries: Sequence[Entry], series_of: SeriesOf, now: datetime, every: timedelta) -> bool:
    """Whether `settle` would give anything. Spot machines that run are reckoned at the price that they were placed at:
    what they cost is asked for once they are settled."""

    def known(attempt: AttemptView) -> SeriesOf:
        return series_of if attempt.gone else lambda offer, start, end: ()

    owed = (_owed(attempt, entries, known(attempt), now, every) for attempt in view.attempts)
    return any(one is not None and one.amount != Money.ZERO for one in owed)


@dataclass(frozen=True, slots=True)
class _Owed:
    """What an attempt's machines cost from ``start`` to ``end`` beyond what ``before`` entries have settled."""

    amount: Money
    start: datetime
    end: datetime
    before: int


def _owed(
    attempt: AttemptView, entries: Sequence[Entry], series_of: SeriesOf, now: datetime, every: timedelta
) -> _Owed | None:
    """None where there is no machine, or one that runs and was settled less than ``every`` ago."""
    if attempt.up_since is None:
        return None
    own = [e for e in entries if e.tags.attempt == attempt.number and e.account is Account.SPENT]
    settled_to = max((e.covers_to for e in own), default=attempt.up_since)
    end = attempt.gone_at if attempt.gone and attempt.gone_at else now
    if not attempt.gone and end - settled_to < every:
        return None
    amount = due(metered(attempt, now, series_of), sum((e.amount for e in own), Money.ZERO))
    return _Owed(amount, min(settled_to, end), end, len(own))


def release(view: JobView, entries: Sequence[Entry], now: datetime) -> list[Entry]:
    """The entries that give back what the job still holds."""
    return release_of(view, entries, {kind: balance.held for kind, balance in balances(entries).items()}, now)


def release_of(
    view: JobView, entries: Sequence[Entry], amounts: Mapping[MoneyKind, Money], now: datetime
) -> list[Entry]:
    """The entries that give back so much of what the job still holds, or all of it where that is less."""
    number = len({e.movement_id for e in entries})
    return [
        entry
        for kind, balance in balances(entries).items()
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


@dataclass(frozen=True, slots=True)
class Funds:
    """What an attempt lives on: ``left`` (USD) from ``start`` on (UTC), at ``rate`` (USD an hour, all its machines)."""

    start: datetime
    left: Money
    rate: Money
    billing: Billing

    @property
    def paid_until(self) -> datetime | None:
        """When its machines must begin to stop; None when they cost nothing."""
        return paid_until(self.start, self.left, self.rate, billing=self.billing, stop_grace=STOP_GRACE)

    def lacking(self, until: datetime) -> Money:
        """What must be held beside so that they may run until then."""
        return shortfall(self.start, self.left, self.rate, until, billing=self.billing, stop_grace=STOP_GRACE)


def funds_of(
    view: JobView, attempt: AttemptView, entries: Sequence[Entry], series_of: SeriesOf, now: datetime
) -> Funds:
    """What an attempt lives on, by what is held now and not for something that nobody has approved yet."""
    offer, kind = attempt.placement.offer, attempt.placement.money
    own = [e for e in entries if e.tags.attempt == attempt.number and e.account is Account.SPENT]
    left = balances(entries).get(kind, Balance()).held - waiting(view, kind)
    start, price = attempt.up_since or now, ledger_rate(offer)
    if offer.capacity_type is CapacityType.SPOT:
        # Its price moves: what is left lasts from the last settlement on at the price of now.
        start = max((e.covers_to for e in own), default=start)
        price = next((price for _, price in reversed(series_of(offer, now, now))), price)
    else:
        left += sum((e.amount for e in own), Money.ZERO)
    return Funds(start, left, price * attempt.placement.nodes, offer.billing)


def lease_of(
    view: JobView,
    attempt: AttemptView,
    entries: Sequence[Entry],
    series_of: SeriesOf,
    billed: timedelta,
    now: datetime,
) -> Lease:
    """How long the attempt's node may run: on the money held for it, and on the machine time its job has left.

    Computed from what is held now, so extending the hold extends it. Capacity that was paid before has no
    ``paid_until``.
    """
    ends_at = now + max(view.max_duration - billed, timedelta(0))
    paid = None
    if attempt.placement.money is not MoneyKind.AMORTISED:
        paid = funds_of(view, attempt, entries, series_of, now).paid_until
    return Lease(paid_until=paid, ends_at=ends_at, stop=attempt.stop_requested)
