"""Purchases with their events, and quotes. The events are authoritative; the stored purchase is a projection."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache

from pydantic import TypeAdapter
from sqlalchemy import Connection, delete, func, insert, select, update

from broker.core.errors import UnknownName
from broker.core.purchases.purchase_events import Intended, PurchaseEvent
from broker.core.purchases.purchases import ImpossiblePurchase, Purchase, apply_event, fold_purchase, start_purchase
from broker.core.purchases.quotes import CapacityQuote
from broker.core.records import add_stamp, read_stamped
from broker.store.engine.fields import from_micros, to_micros
from broker.store.schema.market import PurchaseEventRow, PurchaseQuoteRow, PurchaseRow

# How long a stored quote can be bought by its number. Providers withdraw their offers much sooner.
_QUOTE_RETENTION = timedelta(days=7)


def append(connection: Connection, id: str, event: PurchaseEvent, at: datetime) -> Purchase:
    """Append an event to a purchase's stream; an `Intended` begins one. Raises `ImpossiblePurchase`."""
    previous = read(connection, id)
    if previous is None:
        if not isinstance(event, Intended):
            raise ImpossiblePurchase(f"there is no purchase {id}")
        purchase = start_purchase(id, event, at)
    else:
        purchase = apply_event(previous, event, at)
    moment = to_micros(at)
    body = add_stamp(event.model_dump_json(exclude_defaults=True))
    values = {"purchase_id": id, "seq": purchase.seq, "at": moment, "kind": event.kind, "body": body}
    connection.execute(insert(PurchaseEventRow).values(**values))
    view = {"view": purchase.model_dump_json(), "closed": purchase.state.closed}
    if previous is None:
        connection.execute(insert(PurchaseRow).values(id=id, intended_at=moment, **view))
    else:
        connection.execute(update(PurchaseRow).where(PurchaseRow.id == id).values(**view))
    return purchase


def read(connection: Connection, id: str) -> Purchase | None:
    """One purchase of capacity; None if the id is unknown."""
    view = connection.scalar(select(PurchaseRow.view).where(PurchaseRow.id == id))
    return None if view is None else _purchase(view)


def list_purchases(connection: Connection, *, closed: bool = False) -> Sequence[Purchase]:
    """The open purchases, oldest first; with ``closed``, all."""
    query = select(PurchaseRow.view).order_by(PurchaseRow.intended_at, PurchaseRow.id)
    if not closed:
        query = query.where(~PurchaseRow.closed)
    return [_purchase(view) for view in connection.scalars(query)]


def events(connection: Connection, id: str) -> Sequence[tuple[datetime, PurchaseEvent]]:
    """A purchase's events with their times (UTC), in order."""
    query = select(PurchaseEventRow).where(PurchaseEventRow.purchase_id == id).order_by(PurchaseEventRow.seq)
    return [(from_micros(row.at), read_stamped(row.body, _events().validate_json)) for row in connection.execute(query)]


def rebuild(connection: Connection) -> None:
    for id in list(connection.scalars(select(PurchaseRow.id))):
        purchase = fold_purchase(id, events(connection, id))
        values = {"view": purchase.model_dump_json(), "closed": purchase.state.closed}
        connection.execute(update(PurchaseRow).where(PurchaseRow.id == id).values(**values))


def keep_quotes(connection: Connection, quotes: Iterable[CapacityQuote], at: datetime) -> Sequence[int]:
    """Store quotes under the next numbers, which are never reused, and delete old ones."""
    first = (connection.scalar(select(func.max(PurchaseQuoteRow.number))) or 0) + 1
    bodies = [quote.model_dump_json() for quote in quotes]
    numbers = list(range(first, first + len(bodies)))
    if bodies:  # otherwise the newest number could be deleted and reused
        moment = to_micros(at)
        connection.execute(delete(PurchaseQuoteRow).where(PurchaseQuoteRow.at < to_micros(at - _QUOTE_RETENTION)))
        rows = [{"number": number, "at": moment, "body": body} for number, body in zip(numbers, bodies, strict=True)]
        connection.execute(insert(PurchaseQuoteRow), rows)
    return numbers


def quote(connection: Connection, number: int) -> CapacityQuote:
    """The quote with that number. Raises `UnknownName`."""
    body = connection.scalar(select(PurchaseQuoteRow.body).where(PurchaseQuoteRow.number == number))
    if body is None:
        known = connection.scalars(select(PurchaseQuoteRow.number).order_by(PurchaseQuoteRow.number.desc()).limit(20))
        raise UnknownName("quote", str(number), [str(row) for row in known])
    return CapacityQuote.model_validate_json(body)


def _purchase(view: str) -> Purchase:
    return Purchase.model_validate_json(view)


@cache
def _events() -> TypeAdapter[PurchaseEvent]:
    return TypeAdapter(PurchaseEvent)
