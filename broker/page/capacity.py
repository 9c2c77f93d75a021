"""Owned machines, reservations, commitments and purchases, with findings from their recorded use; quotes, and the forms
that change a purchase.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from fastapi.responses import RedirectResponse, Response

from broker.core.access.permissions import Permission
from broker.core.errors import BrokerError, InvalidInput
from broker.core.purchases.quotes import PurchaseProduct
from broker.page.drawing import drawn
from broker.page.visitors import By, Form, request_key
from broker.server import procuring, routes_money
from broker.server.changes import DecisionBody
from broker.server.procuring import (
    BuyBody,
    CancelBody,
    PurchaseApprovalBody,
    QuotesBody,
    WithdrawBody,
)

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


def quoting(
    by: By,
    machine: Annotated[str, Query(max_length=200)] = "",
    machines: Annotated[int, Query(ge=1, le=10_000)] = 1,
    length: Annotated[str, Query(max_length=40)] = "1d",
    region: Annotated[str, Query(max_length=100)] = "",
    product: Annotated[str, Query(max_length=40)] = PurchaseProduct.CAPACITY_BLOCK.value,
) -> Response:
    """The form for quotes. With ``machine``, also the capacity on sale now (USD), each with a form to buy it."""
    found, problem = None, None
    if machine:
        body = QuotesBody(machine=machine, machines=machines, length=length, region=region or None, products=[product])
        try:
            found = procuring.ask_quotes(by.caller, body)
        except BrokerError as error:
            problem = error
    asked = {"machine": machine, "machines": machines, "length": length, "region": region, "product": product}
    values = {"asked": asked, "found": found, "problem": problem, "products": [one.value for one in PurchaseProduct]}
    return drawn("quotes.html", by, values, title="Buy capacity", at=AT)


def buying(by: By, form: Form) -> Response:
    """Start a purchase."""
    number = form.get("quote", "")
    if not number.isdecimal() or not int(number[:12]) > 0:
        raise InvalidInput("no quote is named", where="quote", hint="ask for quotes, and buy one of them")
    body = BuyBody(
        quote=int(number[:12]),
        ceiling=form.get("ceiling") or None,
        team=form.get("team") or None,
        project=form.get("project") or None,
    )
    done = procuring.buy_quote(by.caller, request_key(form), body)
    return RedirectResponse(f"/purchases/{_id(done.body)}", 303)


def undoing(by: By, purchase: str) -> Response:
    """The present cost of cancelling a purchase (USD), with the form that cancels it."""
    one = routes_money.show_purchase(by.caller, purchase).purchase
    terms, problem = None, None
    try:
        terms = procuring.show_undo_terms(by.caller, purchase)
    except BrokerError as error:
        problem = error
    values = {"one": one, "terms": terms, "problem": problem}
    return drawn("undo.html", by, values, title=f"Cancel {purchase}?", at=AT)


def cancelling(by: By, purchase: str, form: Form) -> Response:
    """Cancel or return a purchase."""
    procuring.cancel_purchase(by.caller, purchase, request_key(form), CancelBody(at_most=form.get("at_most", "0")[:40]))
    return RedirectResponse(f"/purchases/{purchase}", 303)


def approving(by: By, purchase: str, form: Form) -> Response:
    """Approve the purchase with the terms that were shown. Raises `InvalidInput` if they have changed."""
    body = PurchaseApprovalBody(binding=form.get("binding", "")[:100] or None)
    procuring.approve_purchase(by.caller, purchase, request_key(form), body)
    return RedirectResponse(f"/purchases/{purchase}", 303)


def rejecting(by: By, purchase: str, form: Form) -> Response:
    """Refuse the purchase; its money is released."""
    procuring.reject_purchase(by.caller, purchase, request_key(form), DecisionBody(reason=form.get("reason", "")[:400]))
    return RedirectResponse(f"/purchases/{purchase}", 303)


def withdrawing(by: By, purchase: str, form: Form) -> Response:
    """Withdraw a purchase before its order."""
    body = WithdrawBody(nothing_bought=form.get("nothing_bought") == "yes")
    procuring.withdraw_purchase(by.caller, purchase, request_key(form), body)
    return RedirectResponse(f"/purchases/{purchase}", 303)


def _id(document: str) -> str:
    from broker.app.results.purchases import PurchaseResult

    return PurchaseResult.model_validate_json(document).id
