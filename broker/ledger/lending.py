"""What the owner of bought machines is credited for their use by another team. Pure.

A borrower's machine time is settled from its hold, in cash, at the internal price. Each amount is posted a second time,
with the opposite sign, to the purchase: so the two add up to exactly zero, and total cash equals what the provider
charged. The credit covers the same time, so it counts in the owner's budget of that period.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.purchases.purchases import Purchase
from broker.ledger.entries import Account, Entry, Movement, Tags, move
from broker.ledger.meter import CostStretch

_CREDIT = "lent"  # the part of a credit's movement id after the purchase's


def tags_of_purchase(purchase: Purchase) -> Tags:
    """The tags of a purchase's entries."""
    quote = purchase.quote
    return Tags(
        job_id=purchase.id,
        user=purchase.user,
        team=purchase.team,
        project=purchase.project,
        environment=purchase.environment,
        provider=quote.provider,
        region=quote.region,
        capacity_type=CapacityType.RESERVED,
        accelerator=quote.accelerator,
        gpus=quote.count * quote.machines,
    )


def is_credit(entry: Entry) -> bool:
    """Whether the entry credits a purchase for use by another team."""
    return entry.account is Account.SPENT and entry.movement_id.startswith(f"{entry.tags.job_id}/{_CREDIT}/")


def credit_for(
    purchase: Purchase, job_id: str, attempt: int, first: int, stretches: Iterable[CostStretch], at: datetime
) -> list[Entry]:
    """The credit for these stretches of a borrower's machine time (USD; a negative one is taken back). ``first``: the
    number of the first of them, one above the number of the last one credited before."""
    found: list[Entry] = []
    for number, one in enumerate(stretches, start=first):
        found += move(
            Movement.ADJUST,
            -one.amount,
            movement_id=f"{purchase.id}/{_CREDIT}/{job_id}/{attempt}/{number}",
            money=MoneyKind.CASH,
            at=at,
            covers=(one.start, one.end),
            tags=tags_of_purchase(purchase),
            note=f"used by {job_id}",
        )
    return found
