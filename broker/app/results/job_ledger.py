"""The cost of a job by ledger entry, with the price of each, as a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from broker.app.results.money import MoneyByKind
from broker.app.results.values import Moment, Result, Seconds
from broker.core.events.views import AttemptView
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Entry, Movement


class SpentLine(Result):
    """One entry of the account of spent money (USD; negative: given back). ``covers``: the time of the money; the price
    (USD an hour, all machines) is that of its attempt, with its source, its date, and how old it was at the launch;
    null where the entry belongs to no attempt, or is in another kind of money: ``note`` then has the price."""

    at: Moment
    movement: Movement
    amount: Money
    money: MoneyKind
    covers_from: Moment
    covers_to: Moment
    attempt: int | None
    provider: str | None
    region: str | None
    capacity_type: CapacityType | None
    rate_per_hour: Money | None
    price_source: str | None
    price_as_of: Moment | None
    price_age_seconds: Seconds | None
    note: str

    @classmethod
    def of(cls, entry: Entry, attempt: AttemptView | None) -> Self:
        if attempt is not None and attempt.placement.money is not entry.money:
            attempt = None  # the entry is for machines outside of the attempt's bought capacity
        offer = None if attempt is None else attempt.placement.offer
        return cls.from_parts(
            entry.tags,
            entry,
            rate_per_hour=None if attempt is None else attempt.placement.rate,
            price_source=None if offer is None else offer.source,
            price_as_of=None if offer is None else offer.as_of,
            price_age_seconds=None if attempt is None or offer is None else attempt.requested_at - offer.as_of,
        )


class JobLedger(Result):
    """The entries that a job's cost is made of, in posting order. They add up to ``total``, the job's ``cost``."""

    id: str
    name: str
    total: MoneyByKind
    entries: list[SpentLine]

    @classmethod
    def of(cls, id: str, name: str, spent: Sequence[Entry], attempts: Mapping[int, AttemptView]) -> Self:
        totals: dict[MoneyKind, Money] = {}
        for entry in spent:
            totals[entry.money] = totals.get(entry.money, Money.ZERO) + entry.amount
        return cls(
            id=id,
            name=name,
            total=MoneyByKind.of(totals),
            entries=[SpentLine.of(entry, attempts.get(entry.tags.attempt or 0)) for entry in spent],
        )
