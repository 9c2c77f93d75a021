"""The review of a purchase: its use by team, its idle hours, and the price of the same use elsewhere. Pure.

A GPU-hour of the purchase costs its total price over all its GPU-hours. Use beyond the bought machines does not count.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.purchases.purchases import Purchase
from broker.core.values.money import Money, in_microseconds
from broker.economics.figures import Figure

_HOUR = timedelta(hours=1)
Use = tuple[str | None, datetime, datetime, float]
"""Team (None: without one), start and end (UTC), and the number of GPUs in use."""


@dataclass(frozen=True, slots=True)
class PurchaseReview:
    """`capacity review`: GPU-hours bought and used up to ``until`` (UTC), ``by_team`` (empty name: without a team).
    ``cost_usd``: of the bought hours, used or not; ``idle_usd``: of those not used, which ``owner`` bears.
    ``on_demand_usd``, ``spot_usd``: what the same use would have cost; ``saved_usd``, ``saved_spot_usd``: that less the
    cost; null without a price."""

    purchase: str
    until: datetime
    bought_gpu_hours: Figure
    used_gpu_hours: Figure
    by_team: Mapping[str, Figure]
    owner: str
    cost_usd: Money
    idle_usd: Money
    on_demand_usd: Money | None
    saved_usd: Money | None
    spot_usd: Money | None
    saved_spot_usd: Money | None


def review(
    purchase: Purchase,
    uses: Iterable[Use],
    now: datetime,
    on_demand: float | None,
    spot: float | None,
) -> PurchaseReview:
    """``uses``: of the purchase's machines; ``on_demand``, ``spot``: USD per GPU and hour."""
    quote = purchase.quote
    start = purchase.paid_at if quote.at_once and purchase.paid_at else quote.starts
    until = max(min(now, quote.ends, purchase.changed_at if purchase.state.closed else now), start)
    gpus = quote.count * quote.machines
    bought = gpus * ((until - start) / _HOUR)
    teams: dict[str, float] = {}
    for team, begin, end, number in uses:
        hours = max(min(end, until) - max(begin, start), timedelta(0)) / _HOUR * number
        if hours:
            teams[team or ""] = teams.get(team or "", 0.0) + hours
    used = min(sum(teams.values()), bought)
    elapsed = in_microseconds(until - start)
    cost = quote.total.share(min(elapsed, in_microseconds(quote.length)), in_microseconds(quote.length))
    idle = Money(round(cost.micros * (1 - used / bought))) if bought else Money.ZERO

    def elsewhere(rate: float | None) -> tuple[Money | None, Money | None]:
        price = None if rate is None else Money.usd(f"{used * rate:.6f}")
        return price, None if price is None else price - cost

    (on_demand_usd, saved_usd), (spot_usd, saved_spot_usd) = elsewhere(on_demand), elsewhere(spot)
    return PurchaseReview(
        purchase=purchase.id,
        until=until,
        bought_gpu_hours=bought,
        used_gpu_hours=used,
        by_team=dict(sorted(teams.items(), key=lambda team_hours: (-team_hours[1], team_hours[0]))),
        owner=purchase.team or purchase.user,
        cost_usd=cost,
        idle_usd=idle,
        on_demand_usd=on_demand_usd,
        saved_usd=saved_usd,
        spot_usd=spot_usd,
        saved_spot_usd=saved_spot_usd,
    )
