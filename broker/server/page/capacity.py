"""Owned machines, reservations, commitments and purchases, with findings from their recorded use; quotes, and the forms
that change a purchase.
"""

import json
from collections.abc import Callable
from typing import Annotated

from fastapi import Query
from fastapi.responses import RedirectResponse, Response

from broker.app.capacity.purchase_documents import PurchaseResult
from broker.app.capacity.quote_requests import CapacityRequest
from broker.app.use_cases import capacity
from broker.app.use_cases.changes import change, single_line
from broker.core.access.people import Permission
from broker.core.errors import BrokerError, InvalidInput
from broker.core.purchases.quotes import PurchaseProduct
from broker.server.page.csv_files import AsCsv, csv_file
from broker.server.page.render import render_page
from broker.server.page.visitors import By, Form, request_key

CAPACITY_PATH = "/capacity"
_COLUMNS = (
    "id state user team project quote.provider quote.region quote.instance_type quote.machines quote.starts quote.ends"
    " ceiling_usd held_usd charged_usd approved_by"
)


def capacity_list(by: By, ask: Annotated[bool, Query()] = False, csv: AsCsv = False) -> Response:
    """Held capacity, its use in the last 90 days, and purchases, which also come as a file. ``ask``: providers report
    theirs, which takes seconds."""
    if csv:
        return csv_file("purchases", _COLUMNS, capacity.list_purchases(by.caller, closed=True).purchases)
    values = {
        "held": capacity.list_capacity(by.caller, ask=ask),
        "use": capacity.capacity_use(by.caller),
        "purchases": capacity.list_purchases(by.caller, closed=True).purchases,
        "asked": ask,
        "may_buy": by.may(Permission.BUY),
    }
    return render_page("capacity.html", by, values, title="Capacity", at=CAPACITY_PATH)


def purchase(by: By, purchase: str) -> Response:
    """One purchase: its capacity, price (USD), approvals and events."""
    details = capacity.show_purchase(by.caller, purchase)
    purchase_result, me = details.purchase, by.caller.actor.identity
    values = {
        "found": details,
        "one": purchase_result,
        "may_change": by.caller.access.may(Permission.BUY, purchase_result.team),
        "may_decide": me in purchase_result.approvers
        and by.caller.access.may(Permission.APPROVE, purchase_result.team),
    }
    return render_page("purchase.html", by, values, title=f"Purchase {purchase}", at=CAPACITY_PATH)


def quote_form(
    by: By,
    machine: Annotated[str, Query(max_length=200)] = "",
    machines: Annotated[int, Query(ge=1, le=10_000)] = 1,
    length: Annotated[str, Query(max_length=40)] = "1d",
    region: Annotated[str, Query(max_length=100)] = "",
    product: Annotated[str, Query(max_length=40)] = PurchaseProduct.CAPACITY_BLOCK.value,
) -> Response:
    """The form for quotes. With ``machine``, also the capacity on sale now (USD), each with a form to buy it."""
    quotes, problem = None, None
    if machine:
        demand = CapacityRequest(machine, machines, length, region or None, products=[product])
        try:
            quotes = capacity.ask_quotes(by.caller, demand)
        except BrokerError as error:
            problem = error
    form_values = {"machine": machine, "machines": machines, "length": length, "region": region, "product": product}
    values = {
        "asked": form_values,
        "found": quotes,
        "problem": problem,
        "products": [product_kind.value for product_kind in PurchaseProduct],
    }
    return render_page("quotes.html", by, values, title="Buy capacity", at=CAPACITY_PATH)


def buy(by: By, form: Form) -> Response:
    quote_number = form.get("quote", "")
    if not quote_number.isdecimal() or not int(quote_number[:12]) > 0:
        raise InvalidInput("no quote is named", where="quote", hint="ask for quotes, and buy one of them")
    answer = change(
        by.caller,
        request_key(form),
        capacity.buy_quote,
        quote=int(quote_number[:12]),
        ceiling=form.get("ceiling") or None,
        team=form.get("team") or None,
        project=form.get("project") or None,
    )
    return RedirectResponse(f"/purchases/{json.loads(answer.body)['id']}", 303)


def undo_form(by: By, purchase: str) -> Response:
    """The present cost of cancelling a purchase (USD), with the form that cancels it."""
    purchase_result = capacity.show_purchase(by.caller, purchase).purchase
    terms, problem = None, None
    try:
        terms = capacity.show_undo_terms(by.caller, purchase)
    except BrokerError as error:
        problem = error
    values = {"one": purchase_result, "terms": terms, "problem": problem}
    return render_page("undo.html", by, values, title=f"Cancel {purchase}?", at=CAPACITY_PATH)


def cancel_purchase(by: By, purchase: str, form: Form) -> Response:
    return _change(by, purchase, form, capacity.cancel_purchase, at_most=form.get("at_most", "0")[:40])


def approve(by: By, purchase: str, form: Form) -> Response:
    """Approve the purchase with the terms that were shown. Raises `InvalidInput` if they have changed."""
    return _change(by, purchase, form, capacity.grant_purchase, binding=form.get("binding", "")[:100] or None)


def reject(by: By, purchase: str, form: Form) -> Response:
    """Refuse the purchase; its money is released."""
    return _change(by, purchase, form, capacity.refuse_purchase, reason=single_line(form.get("reason", "")[:400]))


def withdraw(by: By, purchase: str, form: Form) -> Response:
    """Withdraw a purchase before its order."""
    return _change(by, purchase, form, capacity.withdraw_purchase, nothing_bought=form.get("nothing_bought") == "yes")


def _change(
    by: By, purchase: str, form: Form, use_case: Callable[..., PurchaseResult], **arguments: str | bool | None
) -> Response:
    change(by.caller, request_key(form), use_case, purchase=purchase, **arguments)
    return RedirectResponse(f"/purchases/{purchase}", 303)
