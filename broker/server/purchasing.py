"""Approving and refusing purchases of capacity. The service orders what is approved; nothing is ordered here."""

from __future__ import annotations

from collections.abc import Callable

from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from broker.app.access.once import ChangeAnswer
from broker.app.capacity import purchases
from broker.core.access.permissions import Permission
from broker.core.purchases.purchases import Purchase
from broker.server.callers import Caller
from broker.server.changes import one_line
from broker.server.changing import DecisionBody, Key, told
from broker.server.looking import By
from broker.server.procuring import change_purchase
from broker.server.shown_money import purchase_of


class PurchaseApprovalBody(BaseModel):
    """``binding``: what the approver has seen, as in the purchase; null: whatever it is now."""

    model_config = ConfigDict(extra="forbid")

    binding: str | None = Field(default=None, max_length=100)


def approve_purchase(by: By, purchase: str, key: Key, body: PurchaseApprovalBody) -> Response:
    """Approve a purchase, as one of its approvers; nobody approves their own. The service orders it after the last
    approval."""

    def approved() -> Purchase:
        return purchases.approve(by.broker, purchase, by=by.actor, binding=body.binding)

    return told(_once(by, key, "purchases.approve", purchase, body, approved))


def reject_purchase(by: By, purchase: str, key: Key, body: DecisionBody) -> Response:
    """Refuse a purchase, as one of its approvers. Its money is released."""
    reason = one_line(body.reason)

    def rejected() -> Purchase:
        return purchases.reject(by.broker, purchase, by=by.actor, because=reason)

    return told(_once(by, key, "purchases.reject", purchase, body, rejected))


def _once(by: Caller, key: str, action: str, id: str, body: BaseModel, change: Callable[[], Purchase]) -> ChangeAnswer:
    before = purchase_of(by, id)
    by.require(Permission.APPROVE, before.team)
    return change_purchase(by, key, action, id, body, change, before=before.state.value)
