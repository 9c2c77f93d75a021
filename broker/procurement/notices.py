"""Notices about a purchase, each sent once. Pure."""

from datetime import datetime, timedelta
from zlib import crc32

from broker.core.notices import Notice, Severity
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import ENDS_AT_TERM
from broker.procurement.bought_offers import LEAVE_BEFORE
from broker.procurement.money import is_late

_NOTICE_BEFORE = timedelta(days=1)
# Purchases at least this long have a notice this long before their end, too.
_LONG, _RENEWAL_BEFORE = timedelta(days=90), timedelta(days=30)


def summary(purchase: Purchase) -> str:
    quote = purchase.quote
    return (
        f"{quote.machines} × {quote.instance_type} ({quote.accelerator}:{quote.count}) in {quote.zone or quote.region},"
        f" {quote.starts:%Y-%m-%d %H:%M} to {quote.ends:%Y-%m-%d %H:%M} UTC, for at most {purchase.ceiling.rounded(2)}"
    )


def notice_of(purchase: Purchase) -> Notice | None:
    """The notice for the state of a purchase; None for a state without one."""
    description, provider = summary(purchase), purchase.quote.provider
    # A notice is sent once per key: repeated events within a state must not change the key.
    number, name, severity = purchase.seq, purchase.state.value, Severity.INFO
    match purchase.state:
        case PurchaseState.ASKING:
            approvers = sorted({name for question in purchase.questions for name in question.approvers})
            title = f"{purchase.user} asks to buy capacity for {purchase.ceiling.rounded(2)}"
            grant = f"To be approved by {' or '.join(approvers)}: gpubroker approvals grant {purchase.id}"
            body = ". ".join([description, *purchase.basis, grant])
        case PurchaseState.UNKNOWN:
            title = f"Unknown whether {provider} accepted an order of {purchase.ceiling.rounded(2)}"
            body = (
                f"{description}. {purchase.evidence}. gpubroker searches for it and never sends it twice."
                f" See the provider's console; if nothing was bought:"
                f" gpubroker capacity undo {purchase.id} --nothing-bought"
            )
            severity, number = Severity.FAILURE, _stamp(purchase.first_sent_at)
        case PurchaseState.HELD if is_late(purchase):
            title = f"Late: {purchase.id}"
            body = (
                f"{description}. It should have begun, but {provider} has not delivered it "
                f"({_provider_word(purchase)})."
                f" Cost of undoing it: gpubroker capacity undo {purchase.id} --dry-run"
            )
            severity, number, name = Severity.WARNING, 0, "late"
        case PurchaseState.ORDERED | PurchaseState.HELD if purchase.evidence:
            title = f"Not undone: {purchase.id}"
            body = f"{description}. {provider}: {purchase.evidence}. It stays as it was"
            severity, number, name = Severity.WARNING, _checksum(purchase.evidence), "not-undone"
        case PurchaseState.HELD:
            title = f"Bought: {_paid_amount(purchase)} of capacity"
            body, number = (
                f"{description}. Order {purchase.order.id if purchase.order else ''}",
                _stamp(purchase.paid_at),
            )
        case PurchaseState.UNDONE if purchase.undo is not None and purchase.undo.way == ENDS_AT_TERM:
            title = f"Ended: {purchase.id}"
            body = (
                f"{description}. The order to end it was sent to {provider}; in total it cost "
                f"{purchase.charged.rounded(2)}"
            )
        case PurchaseState.UNDONE:
            title = f"Undone by {purchase.undone_by}: {purchase.id}"
            body = f"{description}. In total it cost {purchase.charged.rounded(2)}"
        case PurchaseState.ENDED if purchase.evidence:
            title = f"Ended early: {purchase.id}"
            body = f"{description}. {provider} says {purchase.evidence}; {purchase.charged.rounded(2)} was paid"
            severity = Severity.WARNING
        case PurchaseState.NOT_BOUGHT:
            title = f"Not bought: {purchase.id}"
            body = f"{description}. {purchase.reason.value if purchase.reason else ''} {purchase.evidence}".strip()
            severity = Severity.WARNING
        case _:
            return None
    return _notice(purchase, f"{name}/{number}", title, body, severity)


def unended_notice(purchase: Purchase, refusal: str) -> Notice:
    """The notice that the provider refuses to end a purchase whose period is over, and continues to bill it."""
    provider = purchase.quote.provider
    body = (
        f"{summary(purchase)}. Its period is over, but {provider} does not end it: {refusal}. It is billed until it"
        f" ends, and gpubroker keeps trying; machines that still use it must end first"
    )
    name = f"not-ended/{_checksum(refusal)}"
    return _notice(purchase, name, f"Not ended: {purchase.id}", body, Severity.FAILURE)


def ending_notice(purchase: Purchase, now: datetime) -> Notice | None:
    """The notice that a purchase ends soon: for machines a day before, or in the last tenth of a shorter period; for
    periods of months also a month before, so that a renewal can be decided and approved. None outside these times."""
    quote = purchase.quote
    soon = quote.ends - min(_NOTICE_BEFORE, (quote.ends - quote.starts) / 10)
    if purchase.state is not PurchaseState.HELD or now >= quote.ends:
        return None
    if now < soon and quote.length >= _LONG and now >= quote.ends - _RENEWAL_BEFORE:
        return _renewal_notice(purchase)
    if not quote.product.holds_machines or now < soon:
        return None
    body = (
        f"{summary(purchase)}. Jobs leave it at {quote.ends - LEAVE_BEFORE:%Y-%m-%d %H:%M} UTC and continue elsewhere."
    )
    body += f" How it was used: gpubroker capacity review {purchase.id}"
    title = f"Ends soon: {quote.machines} × {quote.instance_type} in {quote.zone or quote.region}"
    return _notice(purchase, f"ends-soon/{_stamp(quote.ends)}", title, body, Severity.WARNING)


def _renewal_notice(purchase: Purchase) -> Notice:
    quote = purchase.quote
    term = f"{round(quote.length / timedelta(days=365))}y" if quote.length >= timedelta(days=300) else "30d"
    quote_options = f"{quote.instance_type} --machines {quote.machines} --for {term} --region {quote.region}"
    kind = quote.product.value.replace("_", "-")
    body = (
        f"{summary(purchase)}. It does not renew by itself. How it was used: gpubroker capacity review {purchase.id}."
        f" What the use of the last months says: gpubroker policy findings. What it would cost again:"
        f" gpubroker capacity quote {quote_options} --product {kind} --provider {quote.provider}"
    )
    title = f"Renew it or let it end on {quote.ends:%Y-%m-%d}: {quote.machines} × {quote.instance_type}"
    return _notice(purchase, f"renewal/{_stamp(quote.ends)}", title, body, Severity.WARNING)


def _notice(purchase: Purchase, name: str, title: str, body: str, severity: Severity) -> Notice:
    thread, teams = f"purchase/{purchase.id}", (purchase.team,) if purchase.team else ()
    return Notice(f"{thread}/{name}", title, body, severity, thread, teams)


def _paid_amount(purchase: Purchase) -> str:
    quote = purchase.quote
    over_time = f"{quote.recurring.rounded(2)} over its period" if quote.recurring else ""
    return " and ".join(
        part for part in (quote.paid_upfront.rounded(2) if quote.paid_upfront else "", over_time) if part
    )


def _provider_word(purchase: Purchase) -> str:
    return "" if purchase.order is None else purchase.order.word


def _stamp(at: datetime | None) -> int:
    return 0 if at is None else int(at.timestamp())


def _checksum(text: str) -> int:
    return crc32(text.encode())
