"""Records a person's acceptance of an adapter's suspicious offers."""

import json
from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, func, insert, select, update

from broker.core.errors import InvalidInput
from broker.core.market.offers import Doubt
from broker.store.market.doubts import ENDED
from broker.store.market.polls import end_offers, supersede
from broker.store.records import AcceptedPrices, PollStatus
from broker.store.schema.market import OfferRow, PollRunRow, PoolRow, PriceAcceptanceRow, PriceChangeRow
from broker.store.schema.row import columns_of


def accept(
    connection: Connection, provider: str, pools: Sequence[str], *, by: str, note: str, at: int
) -> AcceptedPrices:
    """Accept an adapter's suspicious offers: all of them, or those of these pools. See `Store.accept_doubts`."""
    columns = (OfferRow.id, PoolRow.key, *columns_of(OfferRow, "source", "doubt", "micros", "as_of", "changed_at"))
    conditions = [OfferRow.polled_by == provider, OfferRow.doubt.is_not(None), OfferRow.ended_at.is_(None)]
    rows = connection.execute(
        select(*columns).join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id).where(*conditions)
    ).all()
    if pools:
        names = {row.key for row in rows}
        if unknown_pools := [pool for pool in pools if pool not in names]:
            raise InvalidInput(
                f"there is no suspicious offer of {', '.join(unknown_pools)}",
                where=provider,
                hint="`gpubroker offers --where price_kind=suspicious` lists them",
            )
        rows = [row for row in rows if row.key in pools]
    latest = connection.execute(
        select(PollRunRow.id, PollRunRow.status)
        .where(PollRunRow.provider == provider)
        .order_by(PollRunRow.id.desc())
        .limit(1)
    ).first()
    is_suspect = latest is not None and latest.status == PollStatus.SUSPECT.value and not pools
    if not rows and not is_suspect:
        raise InvalidInput(
            "there is no suspicious offer", where=provider, hint="`gpubroker prices status` shows each poll's result"
        )
    unreported = [row for row in rows if row.doubt == Doubt.UNTOLD.value]
    ended = [
        {"b_id": row.id, "changed_at": moment, "ended_at": moment}
        for row in unreported
        for moment in (max(at, row.as_of + 1, row.changed_at + 1),)
    ]
    end_offers(connection, ended)
    changes = [
        {"series": row.id, "at": end["ended_at"], "micros": row.micros, "availability": ENDED, "learned": None}
        for row, end in zip(unreported, ended, strict=True)
    ]
    if changes:
        connection.execute(insert(PriceChangeRow), changes)
    statement = (
        update(OfferRow).where(OfferRow.id == bindparam("b_id")).values(doubt=None, doubt_detail="", trusted=None)
    )
    if rows:
        connection.execute(statement, [{"b_id": row.id} for row in rows])
    if is_suspect and latest is not None:
        accepted = {"status": PollStatus.ACCEPTED.value, "gone": len(unreported), "complete": True}
        connection.execute(update(PollRunRow).where(PollRunRow.id == latest.id).values(**accepted, error="", hint=""))
    number = (connection.scalar(select(func.max(PriceAcceptanceRow.number))) or 0) + 1
    accepted_prices = {f"{row.key}@{row.source}": {"doubt": row.doubt, "micros": row.micros} for row in rows}
    record = {
        "number": number,
        "at": at,
        "accepted_by": by,
        "provider": provider,
        "ended": len(unreported),
        "note": note,
    }
    connection.execute(insert(PriceAcceptanceRow), {**record, "what": json.dumps(accepted_prices, sort_keys=True)})
    supersede(connection)
    return AcceptedPrices(number, provider, by, len(unreported), len(rows) - len(unreported))
