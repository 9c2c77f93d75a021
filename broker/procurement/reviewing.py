"""The review of a purchase: its use by team, its idle hours, and the price of the same use elsewhere. Pure.

A GPU-hour of the purchase costs its total price over all its GPU-hours. Use beyond the bought machines does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.purchases.purchases import Purchase
from broker.core.values.money import Money, in_microseconds

_HOUR = timedelta(hours=1)
Use = tuple[str | None, datetime, datetime, int]
"""Team (None: without one), start and end (UTC), and the number of GPUs in use."""


@dataclass(frozen=True, slots=True)
class PurchaseReview:
    """``until``: the end of the reviewed time (UTC). ``bought_hours``, ``used_hours``: GPU-hours up to then;
    ``by_team``: used ones by team. ``cost``: of all bought hours; ``idle_cost``: of unused ones, which ``owner`` pays.
    ``on_demand``, ``spot``: the price of the used hours there (None: unknown); ``saved``, ``saved_spot``: that price
    less the cost. Amounts in USD."""

    purchase: str
    until: datetime
    bought_hours: float
    used_hours: float
    by_team: tuple[tuple[str, float], ...]
    owner: str
    cost: Money
    idle_cost: Money
    on_demand: Money | None
    spot: Money | None

    @property
    def saved(self) -> Money | None:
        return None if self.on_demand is None else self.on_demand - self.cost

    @property
    def saved_spot(self) -> Money | None:
        return None if self.spot is None else self.spot - self.cost


def review(
    purchase: Purchase,
    uses: Iterable[Use],
    now: datetime,
    on_demand: float | None,
    spot: float | None,
) -> PurchaseReview:
    """``uses``: of the purchase's machines; ``on_demand``, ``spot``: USD per GPU and hour."""
    quote = purchase.quote
    starts = purchase.paid_at if quote.at_once and purchase.paid_at else quote.starts
    until = max(min(now, quote.ends, purchase.changed_at if purchase.state.closed else now), starts)
    gpus = quote.count * quote.machines
    bought = gpus * ((until - starts) / _HOUR)
    teams: dict[str, float] = {}
    for team, begin, end, number in uses:
        hours = max(min(end, until) - max(begin, starts), timedelta(0)) / _HOUR * number
        if hours:
            teams[team or ""] = teams.get(team or "", 0.0) + hours
    used = min(sum(teams.values()), bought)
    part = in_microseconds(until - starts)
    cost = quote.total.share(min(part, in_microseconds(quote.length)), in_microseconds(quote.length))
    idle = Money(round(cost.micros * (1 - used / bought))) if bought else Money.ZERO

    def elsewhere(rate: float | None) -> Money | None:
        return None if rate is None else Money.usd(f"{used * rate:.6f}")

    return PurchaseReview(
        purchase=purchase.id,
        until=until,
        bought_hours=bought,
        used_hours=used,
        by_team=tuple(sorted(teams.items(), key=lambda one: (-one[1], one[0]))),
        owner=purchase.team or purchase.user,
        cost=cost,
        idle_cost=idle,
        on_demand=elsewhere(on_demand),
        spot=elsewhere(spot),
    )
