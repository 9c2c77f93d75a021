"""Notices about a purchase, each sent once. Pure."""

from __future__ import annotations

from broker.core.notices import Notice, Severity
from broker.core.purchases.purchases import Purchase, PurchaseState


def summary(purchase: Purchase) -> str:
    """The purchase in one line."""
    quote = purchase.quote
    return (
        f"{quote.machines} × {quote.instance_type} ({quote.accelerator}:{quote.count}) in {quote.zone or quote.region},"
        f" {quote.starts:%Y-%m-%d %H:%M} to {quote.ends:%Y-%m-%d %H:%M} UTC, for at most {purchase.ceiling.rounded(2)}"
    )


def notice_of(purchase: Purchase) -> Notice | None:
    """The notice for the state of a purchase; None for a state without one."""
    what = summary(purchase)
    match purchase.state:
        case PurchaseState.ASKING:
            who = sorted({name for question in purchase.questions for name in question.approvers})
            title = f"{purchase.user} asks to buy capacity for {purchase.ceiling.rounded(2)}"
            body = f"{what}. To be approved by {' or '.join(who)}: gpubroker capacity approve {purchase.id}"
            severity = Severity.INFO
        case PurchaseState.UNKNOWN:
            title = f"Nobody knows whether {purchase.quote.provider} took an order of {purchase.ceiling.rounded(2)}"
            body = (
                f"{what}. {purchase.evidence}. It is looked for, and never sent again. Look at the provider's console;"
                f" if nothing was bought: gpubroker capacity withdraw {purchase.id} --nothing-bought"
            )
            severity = Severity.FAILURE
        case PurchaseState.HELD:
            title = f"Bought: {purchase.charged.rounded(2)} of capacity"
            body = f"{what}. Order {purchase.order.id if purchase.order else ''}"
            severity = Severity.INFO
        case PurchaseState.NOT_BOUGHT:
            title = f"Not bought: {purchase.id}"
            body = f"{what}. {purchase.reason.value if purchase.reason else ''} {purchase.evidence}".strip()
            severity = Severity.WARNING
        case _:
            return None
    thread, teams = f"purchase/{purchase.id}", (purchase.team,) if purchase.team else ()
    return Notice(f"{thread}/{purchase.state}/{purchase.seq}", title, body, severity, thread, teams)
