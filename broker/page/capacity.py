"""Owned machines, reservations, commitments and purchases, with findings from their recorded use."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from broker.core.access.permissions import Permission
from broker.page.drawing import drawn
from broker.page.visitors import By
from broker.server import routes_money

AT = "/capacity"


def capacity_list(by: By, ask: Annotated[bool, Query()] = False) -> Response:
    """Held capacity, its use in the last 90 days, and purchases. ``ask``: providers report theirs, which takes
    seconds."""
    values = {
        "held": routes_money.list_capacity(by.caller, ask=ask),
        "use": routes_money.capacity_use(by.caller),
        "purchases": routes_money.list_purchases(by.caller, closed=True).purchases,
        "asked": ask,
        "may_buy": by.may(Permission.BUY),
    }
    return drawn("capacity.html", by, values, title="Capacity", at=AT)


def purchase(by: By, purchase: str) -> Response:
    """One purchase: its capacity, price (USD), approvals and events."""
    found = routes_money.show_purchase(by.caller, purchase)
    one, me = found.purchase, by.caller.actor.identity
    values = {
        "found": found,
        "one": one,
        "may_change": by.caller.access.may(Permission.BUY, one.team),
        "may_decide": me in one.approvers and by.caller.access.may(Permission.APPROVE, one.team),
    }
    return drawn("purchase.html", by, values, title=f"Purchase {purchase}", at=AT)
