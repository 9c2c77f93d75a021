"""Stores one poll: current offers, changes of price or availability, and the poll itself; and the
documents of providers that a poll need not download again.

Records dated in the future after a fast clock was set back get the present date: otherwise such a price would take
effect at its future date, and count as fresh until then.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import groupby
from types import SimpleNamespace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.orm import aliased

from broker.core.extras import own_version
from broker.core.market.cached_answers import CachedAnswer
from broker.core.market.market_judge import OddPrice
from broker.core.market.offers import Availability, Doubt, Offer
from broker.core.values.money import in_microseconds
from broker.store.engine.fields import to_micros, value_of
from broker.store.engine.statements import batches, values_of
from broker.store.market.doubts import ENDED, PriceDoubts, answer_counts, forget_levels, mark_missing
from broker.store.market.market import record_change
from broker.store.market.offer_rows import (
    DOUBT_AT,
    ENDED_AT,
    ID_AT,
    OFFER_COLUMNS,
    VALUES_AT,
    KnownOffer,
    offer_values,
    pool_columns,
)
from broker.store.records import CONVERTED, PollDetails, PollRun, PollStatus
from broker.store.schema.market import KeptAnswerRow, OfferRow, PollRunRow, PoolRow, PriceChangeRow, SignalChangeRow
from broker.store.schema.row import columns_of

# After this time a document is read again, whatever its server says: a wrong "not modified" must not hold forever.
_LONGEST = in_microseconds(timedelta(days=7))


def cached_answers(connection: Connection, provider: str, now: datetime) -> dict[str, CachedAnswer]:
    """The documents that polls of ``provider`` stored, by address.

    Omits those of another version of gpubroker, those older than a week at ``now``, and damaged ones: they are read
    again.
    """
    rows = connection.execute(
        select(*columns_of(KeptAnswerRow, "address", "etag", "last_modified", "content", "digest")).where(
            KeptAnswerRow.provider == provider,
            KeptAnswerRow.version == own_version(),
            KeptAnswerRow.at.between(to_micros(now) - _LONGEST, to_micros(now)),
        )
    )
    return {
        row.address: CachedAnswer(row.etag, row.last_modified, row.content)
        for row in rows
        if sha256(row.content).hexdigest() == row.digest
    }


def keep_answers(connection: Connection, provider: str, answers: Mapping[str, CachedAnswer], now: int) -> None:
    """Store these documents; deletes earlier ones of the same addresses and those that are too old."""
    if not answers:
        return
    old = KeptAnswerRow.address.in_(list(answers)) | ~KeptAnswerRow.at.between(now - _LONGEST, now)
    connection.execute(delete(KeptAnswerRow).where(KeptAnswerRow.provider == provider, old))
    rows = [
        {
            "provider": provider,
            "address": address,
            "at": now,
            "version": own_version(),
            "etag": answer.etag,
            "last_modified": answer.last_modified,
            "digest": sha256(answer.content).hexdigest(),
            "content": answer.content,
        }
        for address, answer in answers.items()
    ]
    connection.execute(insert(KeptAnswerRow), rows)


# Codes of `price_change.availability`, besides ENDED.
CODES = {
    Availability.AVAILABLE.value: 0,
    Availability.UNAVAILABLE.value: 1,
    Availability.NO_QUOTA.value: 2,
    Availability.UNKNOWN.value: 3,
}
_SIGNALS = slice(OFFER_COLUMNS.index("score"), OFFER_COLUMNS.index("interruption_rate") + 1)
_BATCH = 2_000


@dataclass(slots=True)
class _PollWrites:
    """The writes of one poll, collected first: its number, its start and end, the moment to which it refers
    (microseconds), skipped rows by reason, and rows to write.
    """

    run: int
    begun: int
    now: int
    speaks_of: int
    counts: Counter[str]
    touched: list[tuple[int, int]] = field(default_factory=list)
    updated: list[dict[str, Any]] = field(default_factory=list)
    fresh: list[tuple[str, Offer, int, tuple[Any, ...], OddPrice | None]] = field(default_factory=list)
    ended: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    signals: list[dict[str, Any]] = field(default_factory=list)
    untold: list[int] = field(default_factory=list)
    suspicious: list[dict[str, Any]] = field(default_factory=list)


_UNKNOWN = {"unknown_machine", "unknown_accelerator"}  # skip reasons that only an update of gpubroker can fix


def record_poll(
    connection: Connection,
    provider: str,
    started: datetime,
    finished: datetime,
    offers: Sequence[Offer],
    details: PollDetails,
) -> PollRun:
    """Store a poll (see `Store.record_poll`); returns its record, including rows skipped here.

    An invalid price is stored as unknown and counted (``invalid_price``); of two offers with one id, the first counts
    (``duplicate``); a future date is replaced by the end of the poll (``dated_ahead``). If a poll that began later is
    already stored, this one changes nothing (``overtaken``). If ``judge`` considers the answer incomplete, missing
    offers remain, as suspicious; prices that it considers odd are stored as suspicious. If they seem to be in another
    unit, none is stored (``another_unit``).
    """
    counts, judge, speaks_of = Counter(details.get("skipped") or {}), details.get("judge"), details.get("speaks_of")
    complete, error, hint = details.get("complete", True), details.get("error", ""), details.get("hint", "")
    status = details.get("status") or (PollStatus.FAILED if error else PollStatus.OK)
    status = PollStatus.INCOMPLETE if status is PollStatus.OK and _UNKNOWN & counts.keys() else status
    start_micros, now = to_micros(started), to_micros(finished)
    last, newest = connection.execute(_NEWEST_POLLS, {"provider": provider}).one()
    run = (last or 0) + 1
    # A stored poll that began after this one ended shows that the clock was set back; it must not block polls until
    # time catches up.
    if newest is not None and start_micros < newest <= now:
        counts["overtaken"] = len(offers)
        complete, offers = False, ()
    else:
        redate(connection, provider, start_micros, now, CODES, ENDED)
    known_offers = _known_offers(connection, provider)
    rescaled = "" if judge is None or not complete else judge.rescaled(_price_changes(known_offers, offers))
    if rescaled:
        counts["another_unit"], offers = len(offers), ()
    writes = _PollWrites(run, start_micros, now, start_micros if speaks_of is None else to_micros(speaks_of), counts)
    prices = PriceDoubts(connection, provider, judge, offers, now)
    reported: set[tuple[str, str]] = set()
    touched, last_micros, last_as_of = writes.touched, 0, None
    for offer in offers:
        key = (offer.pool, offer.source)
        if key in reported:
            counts["duplicate"] += 1
            continue
        reported.add(key)
        micros = _price(offer, counts)
        as_of = last_micros if offer.as_of == last_as_of else to_micros(offer.as_of)
        last_micros, last_as_of = as_of, offer.as_of  # most offers of a poll share their date
        if as_of > now:
            counts["dated_ahead"] += 1
            as_of = now
        values = offer_values(offer, micros)
        stored = known_offers.get(key)
        if stored is None:
            writes.fresh.append((key[0], offer, as_of, values, prices.about(offer, None)))
        elif values != stored[VALUES_AT] or stored[ENDED_AT] is not None or stored[DOUBT_AT] is not None:
            _collect_known(writes, stored, offer, as_of, values, prices)
        elif (odd := prices.about_unchanged(offer)) is not None:
            dates = {"b_id": stored[ID_AT], "as_of": as_of, "run": run}
            writes.suspicious.append({**dates, **_doubt_columns(odd, None)})
        else:
            touched.append((stored[ID_AT], as_of))
    if (
        complete
        and judge is not None
        and (reason := rescaled or judge.incomplete(answer_counts(connection, provider, known_offers, reported)))
    ):
        complete, status = False, PollStatus.SUSPECT
        error = f"{provider}: {_suspect_message(reason, known_offers, counts)}"
        hint = (_UNIT_HINT if rescaled else _SUSPECT_HINT).format(provider=provider)
        writes.untold += [r[ID_AT] for key, r in known_offers.items() if key not in reported and _is_believed(r)]
    if complete:
        _end_missing(writes, known_offers, reported)
    _insert_new(connection, writes, provider)
    _write(connection, writes)
    _record_changes(connection, writes)
    keep_answers(connection, provider, {} if status is PollStatus.SUSPECT else details.get("answers", {}), now)
    samples = _samples(connection, provider, details.get("samples") or {}, complete=complete)
    row: dict[str, Any] = {"provider": provider, "complete": complete, "status": status.value, "error": error}
    row |= {"hint": hint, "gone": len(writes.ended), "samples": json.dumps(samples)}
    row |= {"changed": len(writes.changes), "skipped": json.dumps(counts)}
    if not details.get("keep_unchanged", True):
        _drop_equal_poll(connection, row)
    row |= {"id": run, "started": start_micros, "finished": now, "seen": len(reported)}
    connection.execute(insert(PollRunRow), row)
    return value_of(PollRun, SimpleNamespace(**row))


def _price_changes(known: Mapping[tuple[str, str], KnownOffer], offers: Sequence[Offer]) -> Iterator[tuple[int, int]]:
    """The stored and the new price, in micro-dollars, of each offer that is current and not in doubt."""
    for offer in offers:
        stored = known.get((offer.pool, offer.source))
        if stored is None or stored[ENDED_AT] is not None or stored[DOUBT_AT] not in (None, Doubt.UNTOLD.value):
            continue
        if (micros := stored[VALUES_AT][0]) is not None and offer.price is not None:
            yield micros, offer.price.micros


def _record_changes(connection: Connection, writes: _PollWrites) -> None:
    """Record the changes of a poll that changed more than the dates of offers."""
    if writes.fresh or writes.updated or writes.ended or writes.suspicious:
        supersede(connection)
    if writes.fresh or writes.updated or writes.ended or writes.untold or writes.suspicious:
        record_change(connection, writes.run)


def _price(offer: Offer, counts: Counter[str]) -> int | None:
    """Micro-dollars; None for an unknown price, and for an invalid one, which is counted."""
    if offer.price is None:
        return None
    if offer.price.micros <= 0 and not offer.has_valid_price():
        counts["invalid_price"] += 1
        return None
    return offer.price.micros


def _samples(
    connection: Connection, provider: str, samples: Mapping[str, Sequence[str]], *, complete: bool
) -> Mapping[str, Sequence[str]]:
    """The details of the poll besides offers.

    If it is incomplete and converted no prices, the remaining offers were converted at the rates of the previous poll,
    so those are kept.
    """
    if complete or CONVERTED in samples:
        return samples
    newest = select(PollRunRow.samples).where(PollRunRow.provider == provider).order_by(PollRunRow.id.desc()).limit(1)
    previous: dict[str, Sequence[str]] = json.loads(connection.scalar(newest) or "{}")
    return {**samples, CONVERTED: previous[CONVERTED]} if previous.get(CONVERTED) else samples


_SUSPECT_HINT = (
    "check the provider's own page; if the missing offers are really gone, run: gpubroker prices accept {provider}"
)
_UNIT_HINT = (
    "check the provider's own page; to have the new prices judged one by one: gpubroker prices accept {provider}"
)


def _suspect_message(cause: str, known: Mapping[tuple[str, str], KnownOffer], counts: Mapping[str, int]) -> str:
    """The error text: why an answer is suspect, and the consequences."""
    skipped = sum(count for reason, count in counts.items() if reason != "duplicate")
    rows = [f"{skipped:,} rows were skipped"] if skipped else []
    consequence = ["missing offers are kept, and no job starts on them"] if known else []
    return "; ".join([cause, *rows, *consequence])


def _is_believed(row: KnownOffer) -> bool:
    return row[ENDED_AT] is None and row[DOUBT_AT] is None


# The number of the last poll of any provider, and the start of the provider's newest poll.
_NEWEST_POLLS = select(
    select(func.max(PollRunRow.id)).scalar_subquery(),
    select(func.max(PollRunRow.started)).where(PollRunRow.provider == bindparam("provider")).scalar_subquery(),
)


def _drop_equal_poll(connection: Connection, row: Mapping[str, Any]) -> None:
    """Delete the provider's previous poll if it also changed nothing and ended in the same way."""
    newest = select(func.max(PollRunRow.id)).where(PollRunRow.provider == row["provider"]).scalar_subquery()
    is_same = (getattr(PollRunRow, name) == row[name] for name in ("complete", "status", "error", "skipped"))
    connection.execute(delete(PollRunRow).where(PollRunRow.id == newest, PollRunRow.changed == 0, *is_same))


def _known_offers(connection: Connection, provider: str) -> dict[tuple[str, str], KnownOffer]:
    """The provider's offers by (pool, source), read from the driver's cursor, as rows of SQLAlchemy take longer."""
    state_columns = columns_of(OfferRow, "id", "as_of", "changed_at", "ended_at", "signalled_at", "doubt", "trusted")
    columns = (PoolRow.key, OfferRow.source, *state_columns, *(getattr(OfferRow, name) for name in OFFER_COLUMNS))
    query = (
        select(*columns)
        .join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
        .where(OfferRow.polled_by == provider)
    )
    return {row[:2]: row for row in connection.execute(query).cursor.fetchall()}


def _collect_known(
    writes: _PollWrites, stored: KnownOffer, offer: Offer, as_of: int, values: tuple[Any, ...], prices: PriceDoubts
) -> None:
    _, _, series, _, changed_at, ended_at, signalled_at, doubt, before_doubt, *_ = stored
    stored_values = stored[VALUES_AT]
    in_doubt = doubt is not None and doubt != Doubt.UNTOLD.value
    trusted = before_doubt if in_doubt else stored_values[0]
    odd = prices.about(offer, trusted) if in_doubt or values[0] != stored_values[0] else None
    if ended_at is not None or values[:2] != stored_values[:2]:
        # An offer that had ended returns with this poll, not at an earlier date of its own.
        at = as_of if ended_at is None or as_of > ended_at else writes.speaks_of
        # Two changes of a series never have the same time: a correction of a dated price is stored just after it.
        changed_at = max(at, changed_at + 1)
        _change(writes, series, changed_at, values[0], CODES[values[1]])
    if values[_SIGNALS] != stored_values[_SIGNALS]:
        signalled_at = _signal(writes, series, values, signalled_at)
    row = {"changed_at": changed_at, "signalled_at": signalled_at, **dict(zip(OFFER_COLUMNS, values, strict=True))}
    row |= _doubt_columns(odd, trusted)
    writes.updated.append({"b_id": series, "as_of": as_of, "run": writes.run, **row})


def _doubt_columns(odd: OddPrice | None, trusted: int | None) -> dict[str, Any]:
    if odd is None:
        return {"doubt": None, "doubt_detail": "", "trusted": None}
    return {"doubt": odd.doubt.value, "doubt_detail": odd.detail, "trusted": trusted}


def _signal(writes: _PollWrites, series: int, values: tuple[Any, ...], previous_at: int | None) -> int:
    """Collect a change of score and rate; these have no date of their own and apply from the start of the poll."""
    at = writes.begun if previous_at is None else max(writes.begun, previous_at + 1)
    score, rate = values[_SIGNALS]
    writes.signals.append({"series": series, "at": at, "score": score, "interruption_rate": rate})
    return at


def _change(writes: _PollWrites, series: int, at: int, micros: int | None, availability: int) -> None:
    learned = writes.now if at < writes.begun else None
    row = {"series": series, "at": at, "micros": micros, "availability": availability, "learned": learned}
    writes.changes.append(row)


def _end_missing(
    writes: _PollWrites, known_offers: Mapping[tuple[str, str], KnownOffer], reported: set[tuple[str, str]]
) -> None:
    """Collect the ends of offers missing from a complete poll: at the moment to which the poll refers, or just after
    the offer's last date if that is later.
    """
    for key, row in known_offers.items():
        if key not in reported and row[ENDED_AT] is None:
            _, _, series, as_of, changed_at, *_ = row
            at = max(writes.speaks_of, as_of + 1, changed_at + 1)
            writes.ended.append({"b_id": series, "changed_at": at, "ended_at": at})
            _change(writes, series, at, row[VALUES_AT][0], ENDED)


def _insert_new(connection: Connection, writes: _PollWrites, provider: str) -> None:
    """Insert rows for new offers. Ids are assigned here, as the transaction excludes other writers."""
    if not writes.fresh:
        return
    forget_levels(connection)
    next_pool, next_series = _next_id(connection, PoolRow), _next_id(connection, OfferRow)
    pools: dict[str, int] = {}
    for batch in batches(writes.fresh, _BATCH):
        keys = [key for key, *_ in batch]
        known_pools = connection.execute(select(PoolRow.key, PoolRow.id).where(PoolRow.key.in_(keys)))
        pools |= {row.key: row.id for row in known_pools}
        same_pool = OfferRow.pool_id.in_([pools[key] for key in keys if key in pools])
        known_offers = select(OfferRow.pool_id, OfferRow.source).where(same_pool)
        taken = {(row.pool_id, row.source) for row in connection.execute(known_offers)}
        new_pools: list[dict[str, Any]] = []
        new_offers: list[dict[str, Any]] = []
        for key, offer, as_of, values, odd in batch:
            pool = pools.get(key)
            if pool is None:
                pool = pools[key] = next_pool
                next_pool += 1
                new_pools.append({"id": pool, "key": key, **pool_columns(offer)})
            elif (pool, offer.source) in taken:
                writes.counts["told_by_another_provider"] += 1
                continue
            identity = {"id": next_series, "pool_id": pool, "source": offer.source, "polled_by": provider}
            signal_time = _signal(writes, next_series, values, None) if values[_SIGNALS] != (None, None) else None
            dates = {"run": writes.run, "as_of": as_of, "changed_at": as_of, "signalled_at": signal_time}
            columns = dict(zip(OFFER_COLUMNS, values, strict=True))
            new_offers.append(
                {**identity, **dates, "ended_at": None, "superseded": False, **columns, **_doubt_columns(odd, None)}
            )
            _change(writes, next_series, as_of, values[0], CODES[values[1]])
            next_series += 1
        _execute_batches(connection, insert(PoolRow), new_pools)
        _execute_batches(connection, insert(OfferRow), new_offers)


def _next_id(connection: Connection, row: type[PoolRow] | type[OfferRow]) -> int:
    return (connection.scalar(select(func.max(row.id))) or 0) + 1


def _execute_batches(connection: Connection, statement: Executable, rows: Sequence[Mapping[str, Any]]) -> None:
    for batch in batches(rows, _BATCH):
        connection.execute(statement, batch)


def _write(connection: Connection, writes: _PollWrites) -> None:
    def change(rows: Sequence[Mapping[str, Any]], **fixed: Any) -> None:
        parameters: dict[str, Any] = {name: bindparam(name) for name in (rows[0] if rows else ()) if name != "b_id"}
        _execute_batches(
            connection, update(OfferRow).where(OfferRow.id == bindparam("b_id")).values(**parameters, **fixed), rows
        )

    _touch(connection, writes)
    change(writes.updated, ended_at=None)
    change(writes.suspicious)
    end_offers(connection, writes.ended)
    mark_missing(connection, writes.untold)
    _execute_batches(connection, insert(PriceChangeRow), writes.changes)
    _execute_batches(connection, insert(SignalChangeRow), writes.signals)


def end_offers(connection: Connection, ended: Sequence[Mapping[str, Any]]) -> None:
    """End offers; ``ended``: ``b_id``, ``changed_at`` and ``ended_at`` of each."""
    unavailable = {"availability": Availability.UNAVAILABLE.value, "unavailable_because": "no longer offered"}
    dates: dict[str, Any] = {name: bindparam(name) for name in ("changed_at", "ended_at")}
    no_doubt = {"doubt": None, "doubt_detail": ""}
    _execute_batches(
        connection,
        update(OfferRow).where(OfferRow.id == bindparam("b_id")).values(**dates, **unavailable, **no_doubt),
        ended,
    )


def _touch(connection: Connection, writes: _PollWrites) -> None:
    """Update the dates of unchanged offers. Most share one date and have consecutive ids, so few statements suffice."""
    by_date: dict[int, list[int]] = defaultdict(list)
    for series, as_of in writes.touched:
        by_date[as_of].append(series)
    rows: list[dict[str, int]] = []
    for as_of, ids in by_date.items():
        for _, run in groupby(enumerate(sorted(ids)), key=lambda item: item[1] - item[0]):
            members = [series for _, series in run]
            rows.append({"b_first": members[0], "b_last": members[-1], "as_of": as_of, "run": writes.run})
    within = OfferRow.id.between(bindparam("b_first"), bindparam("b_last"))
    _execute_batches(
        connection, update(OfferRow).where(within).values(as_of=bindparam("as_of"), run=bindparam("run")), rows
    )


def supersede(connection: Connection) -> None:
    """Mark reference prices as superseded while a live source, or a list with a later date, has a price of the same
    machine.
    """
    listed, live, live_pool = (
        aliased(PoolRow, name="listed"),
        aliased(OfferRow, name="live"),
        aliased(PoolRow, name="live_pool"),
    )
    same_machine = [
        getattr(live_pool, name).is_not_distinct_from(getattr(listed, name))
        for name in ("provider", "region", "instance_type", "accelerator", "count", "capacity_type", "term_months")
    ]
    has_live_price = exists().where(
        listed.id == OfferRow.pool_id,
        *same_machine,
        live.pool_id == live_pool.id,
        or_(~live.reference, and_(live.source != OfferRow.source, live.as_of > OfferRow.as_of)),
        live.ended_at.is_(None),
        live.micros.is_not(None),
    )
    connection.execute(update(OfferRow).where(OfferRow.reference).values(superseded=has_live_price))


_PROVIDERS = values_of(PollRunRow.provider)
_NEWEST = select(func.max(PollRunRow.id)).where(PollRunRow.provider == _PROVIDERS.c.value).scalar_subquery()
_LAST = (
    select(PollRunRow).where(PollRunRow.id.in_(select(_NEWEST).select_from(_PROVIDERS))).order_by(PollRunRow.provider)
)


def last_polls(connection: Connection) -> dict[str, PollRun]:
    """The newest poll of each provider."""
    return {row.provider: value_of(PollRun, row) for row in connection.execute(_LAST)}


def poll_runs(
    connection: Connection, provider: str | None = None, *, since: datetime | None = None, limit: int | None = None
) -> list[PollRun]:
    """Polls of a provider, or of all, newest first."""
    query = select(PollRunRow).order_by(PollRunRow.id.desc()).limit(limit)
    if provider is not None:
        query = query.where(PollRunRow.provider == provider)
    if since is not None:
        query = query.where(PollRunRow.finished >= to_micros(since))
    return [value_of(PollRun, row) for row in connection.execute(query)]


def redate(connection: Connection, provider: str, started: int, now: int, codes: Mapping[str, int], ended: int) -> None:
    """Run before storing a poll of ``provider`` from ``started`` to ``now`` (microseconds): in each of its series with
    a change later than ``now``, the newest state is dated just before the poll. ``codes``, ``ended``: availability
    codes of `price_change`.
    """
    just_before = started - 1
    latest = select(func.max(OfferRow.changed_at), func.max(OfferRow.as_of), func.max(OfferRow.signalled_at)).where(
        OfferRow.polled_by == provider
    )
    if all(date is None or date <= now for date in connection.execute(latest).one()):
        return
    rows = connection.execute(select(OfferRow).where(OfferRow.polled_by == provider, OfferRow.changed_at > now)).all()
    states = [
        {
            "series": row.id,
            "at": just_before,
            "micros": row.micros,
            "availability": codes[row.availability] if row.ended_at is None else ended,
            "learned": None,
        }
        for row in rows
    ]
    _replace(connection, PriceChangeRow, states, changed_at=just_before)
    rows = connection.execute(select(OfferRow).where(OfferRow.polled_by == provider, OfferRow.signalled_at > now)).all()
    signals = [
        {"series": row.id, "at": just_before, "score": row.score, "interruption_rate": row.interruption_rate}
        for row in rows
    ]
    _replace(connection, SignalChangeRow, signals, signalled_at=just_before)
    from_provider = OfferRow.polled_by == provider
    connection.execute(update(OfferRow).where(from_provider, OfferRow.as_of > now).values(as_of=started))
    connection.execute(update(OfferRow).where(from_provider, OfferRow.ended_at > now).values(ended_at=just_before))


def _replace(
    connection: Connection,
    row: type[PriceChangeRow] | type[SignalChangeRow],
    states: list[dict[str, int | float | None]],
    **dates: int,
) -> None:
    if not states:
        return
    from_date: ColumnElement[bool] = row.at >= bindparam("b_at")
    keys = [{"b_series": state["series"], "b_at": state["at"]} for state in states]
    connection.execute(delete(row).where(row.series == bindparam("b_series"), from_date), keys)
    connection.execute(insert(row), states)
    ids = [{"b_series": state["series"]} for state in states]
    connection.execute(update(OfferRow).where(OfferRow.id == bindparam("b_series")).values(**dates), ids)
