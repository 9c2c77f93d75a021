"""Queries of the market tables: current offers, offers that a query omits, and price series; and the inputs of a
store's plans, except the job and the running attempts, as one small value."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, case, exists, func, select, text

from broker.core.job.reasons import Reason
from broker.core.market.offers import MoneyKind, Offer, OfferQuery
from broker.core.values.money import Money
from broker.store.engine.fields import from_micros, to_micros
from broker.store.engine.statements import cached_statement, one_of
from broker.store.market.offer_rows import OFFER_QUERY, to_offers
from broker.store.schema.jobs import SettingRow
from broker.store.schema.market import HoldingRow, OfferRow, PoolRow, PriceAcceptanceRow, PriceChangeRow, PurchaseRow
from broker.store.schema.policy import PolicySetRow

CPU = "cpu"  # as an accelerator in a query: machines without one
_CURRENT = and_(OfferRow.ended_at.is_(None), ~OfferRow.superseded)
_WILD = frozenset("*?[")


def offers(connection: Connection, query: OfferQuery) -> list[Offer]:
    """The current offers that match, including unavailable ones.

    ``count`` is the minimum number of accelerators per machine; ``"cpu"`` among the accelerators means machines without
    one, whatever the count. Reference prices superseded by a live one are not current.
    """
    statement = cached_statement(_offers_query, connection, query, looks_up=has_patterns(query))
    return to_offers(connection.execute(statement).all())


def _offers_query(connection: Connection | None, query: OfferQuery) -> Select[Any]:
    return OFFER_QUERY.where(*_current_matching(connection, query)).order_by(OfferRow.id)


def _current_matching(connection: Connection | None, query: OfferQuery) -> list[ColumnElement[bool]]:
    filters = [_CURRENT, *(condition for _, condition in conditions(connection, query))]
    return filters if query.max_price is None else [*filters, OfferRow.micros <= query.max_price.micros]


def has_patterns(query: OfferQuery) -> bool:
    """Whether some names are patterns, which have to be looked up."""
    return any(_WILD & set(name) for name in (*query.providers, *query.regions))


def count_offers(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(OfferRow).where(_CURRENT)) or 0


def rejected_in_sql(connection: Connection, query: OfferQuery, *, simulated: bool = False) -> dict[Reason, int]:
    """The number of current offers that `offers` omits, by reason; most frequent first.

    The first failing condition, in the planner's order, is the reason. ``max_price`` only narrows a list and rejects
    nothing, so it is ignored. ``simulated``: whether simulated offers are judged like others; if not, being simulated
    is their reason.
    """
    if replace(query, max_price=None) == OfferQuery():
        return {}
    simulated = simulated or MoneyKind.SANDBOX.value in query.providers
    query_of = _rejected_of_all if simulated else _rejected_of_real
    statement = cached_statement(query_of, connection, query, looks_up=has_patterns(query))
    return {Reason(row.reason): row.total for row in connection.execute(statement) if row.reason is not None}


def _rejected_of_all(connection: Connection | None, query: OfferQuery) -> Select[Any]:
    return _reason_counts([(~condition, reason.value) for reason, condition in conditions(connection, query)])


def _rejected_of_real(connection: Connection | None, query: OfferQuery) -> Select[Any]:
    filters = conditions(connection, query)
    is_omitted = ~and_(*(condition for _, condition in filters))
    simulated = and_(is_omitted, OfferRow.money == MoneyKind.SANDBOX.value)
    reasons = [(~condition, reason.value) for reason, condition in filters]
    return _reason_counts([(simulated, Reason.SANDBOX_NOT_ASKED_FOR.value), *reasons])


def _reason_counts(reasons: list[tuple[ColumnElement[bool], str]]) -> Select[Any]:
    reason = case(*reasons).label("reason")
    total = func.count().label("total")
    return (
        select(reason, total)
        .join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
        .where(_CURRENT)
        .group_by(reason)
        .order_by(total.desc(), reason)
    )


def conditions(connection: Connection | None, query: OfferQuery) -> list[tuple[Reason, ColumnElement[bool]]]:
    """The conditions of a query, each with its reason for rejection. ``connection``: needed only for patterns."""
    result: list[tuple[Reason, ColumnElement[bool]]] = []
    if query.providers:
        result.append(
            (Reason.WRONG_PROVIDER, one_of(PoolRow.provider, _matching(connection, "provider", query.providers)))
        )
    if query.regions:
        result.append((Reason.WRONG_REGION, one_of(PoolRow.region, _matching(connection, "region", query.regions))))
    if query.capacity_types:
        types = [kind.value for kind in query.capacity_types]
        result.append((Reason.WRONG_CAPACITY_TYPE, one_of(PoolRow.capacity_type, types)))
    if query.accelerators:
        names = ["" if name == CPU else name for name in query.accelerators]
        reason = Reason.NOT_A_CPU_OFFER if names == [""] else Reason.WRONG_ACCELERATOR
        result.append((reason, one_of(PoolRow.accelerator, names)))
    if query.count is not None:
        has_enough = PoolRow.count >= query.count
        if CPU in query.accelerators:
            has_enough = has_enough | (PoolRow.accelerator == "")
        result.append((Reason.TOO_FEW_ACCELERATORS, has_enough))
    return result


def _matching(connection: Connection | None, column: str, patterns: Sequence[str]) -> list[str]:
    """The existing names that match. Patterns and names are few, so they are matched here, the same on every
    database."""
    if not any(_WILD & set(pattern) for pattern in patterns):
        return list(patterns)
    assert connection is not None
    names = connection.scalars(select(getattr(PoolRow, column)).distinct())
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def names(connection: Connection, column: str) -> list[str]:
    """Every ``provider``, ``region`` or ``accelerator`` of the pools."""
    return list(connection.scalars(select(getattr(PoolRow, column)).distinct()))


SERIES = (
    select(OfferRow.id)
    .join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
    .where(PoolRow.key == bindparam("pool"), OfferRow.source == bindparam("source"))
)
_PRICED = select(PriceChangeRow.at, PriceChangeRow.micros).where(
    PriceChangeRow.series == bindparam("series"), PriceChangeRow.micros.is_not(None)
)
_IN_FORCE = _PRICED.where(PriceChangeRow.at <= bindparam("start")).order_by(PriceChangeRow.at.desc()).limit(1)
_LATER = _PRICED.where(PriceChangeRow.at > bindparam("start"), PriceChangeRow.at <= bindparam("end")).order_by(
    PriceChangeRow.at
)


def price_series(connection: Connection, offer: Offer, start: datetime, end: datetime) -> list[tuple[datetime, Money]]:
    """The prices of the offer's pool and source: the one in force at ``start`` first, then each reported up to ``end``
    (inclusive), even if only the availability changed. Without a report, the last price continues. The prices of an
    offer as adapted to a job include the job's disk.
    """
    series = connection.scalar(SERIES, {"pool": offer.pool, "source": offer.source})
    if series is None:
        return []
    parameters = {"series": series, "start": to_micros(start)}
    first = connection.execute(_IN_FORCE, parameters).first()
    later = connection.execute(_LATER, {**parameters, "end": to_micros(end)}).all()
    rows = ([first] if first else []) + list(later)
    return [(from_micros(row.at), Money(row.micros) + offer.disk) for row in rows]


CHANGED = "market_changed"
"""The setting with the number of the newest poll that changed more than the dates of offers."""
_RECORD = text(
    "INSERT INTO setting (key, value) VALUES (:key, :run) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)


@dataclass(frozen=True, slots=True)
class PlanStamp:
    """Equal stamps of one store mean equal offers and policies.

    ``policy``: the number of the version in force, 0 for none; ``runs``: the URL of the run store; ``changed``,
    ``accepted``: the numbers of the newest poll that changed more than the dates of offers, and of the newest
    acceptance of suspicious offers. ``owns``: capacity is recorded or being bought, whose offers change with time.
    """

    policy: int
    runs: str | None
    changed: str | None
    accepted: int
    owns: bool


_STAMP = select(
    select(func.coalesce(func.max(PolicySetRow.number), 0)).scalar_subquery(),
    select(SettingRow.value).where(SettingRow.key == "runs").scalar_subquery(),
    select(SettingRow.value).where(SettingRow.key == CHANGED).scalar_subquery(),
    select(func.coalesce(func.max(PriceAcceptanceRow.number), 0)).scalar_subquery(),
    exists(select(HoldingRow.number)),
    exists(select(PurchaseRow.id).where(~PurchaseRow.closed)),
)


def record_change(connection: Connection, run: int) -> None:
    """Record that offers changed, so that earlier plans are outdated.

    ``run``: the number of the poll that found it.
    """
    connection.execute(_RECORD, {"key": CHANGED, "run": str(run)})


def plan_stamp(connection: Connection) -> PlanStamp:
    policy, runs, changed, accepted, has_holdings, has_purchases = connection.execute(_STAMP).one()
    return PlanStamp(policy, runs, changed, accepted, bool(has_holdings or has_purchases))
