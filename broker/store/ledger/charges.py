"""The charges of providers, as last reported, and what the attempts that they may be for cost by the ledger."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, case, delete, func, insert, select
from sqlalchemy.orm import join

from broker.core.errors import InvalidInput
from broker.core.market.capacity import Charge
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import EGRESS, Account, Movement
from broker.ledger.journal import PaidAttempt
from broker.store.engine.database import Database, reads
from broker.store.engine.fields import from_micros, to_micros
from broker.store.schema.jobs import STILL_RUNNING, JobRow, MachineTimeRow
from broker.store.schema.ledger import ChargeRow, LedgerEntryRow
from broker.store.schema.row import columns_of

API = "api"


@dataclass(frozen=True, slots=True)
class ChargeScope:
    """The charges of a provider and account (empty: of all) that start in the half-open time (UTC; None: no end)."""

    provider: str
    since: datetime
    until: datetime | None = None
    account: str = ""

    def contains(self, row: Mapping[str, Any]) -> bool:
        """Whether a stored charge belongs to it. One of no known account belongs to each account."""
        since, until = to_micros(self.since), to_micros(self.until) if self.until else None
        matches_account = row["provider"] == self.provider and (
            row["account"] in ("", self.account) or not self.account
        )
        return matches_account and since <= row["starts"] and (until is None or row["starts"] < until)


@dataclass(frozen=True, slots=True)
class RecordedCharges:
    """By provider, how many charges are new, changed or gone, and how many stored ones were replaced or deleted."""

    changed: Mapping[str, int]
    replaced: Mapping[str, int]


def read(connection: Connection, provider: str | None = None, since: datetime | None = None) -> list[Charge]:
    """All charges, or a provider's, or those that end after ``since`` (UTC); oldest first."""
    query = select(ChargeRow).order_by(ChargeRow.starts, ChargeRow.provider, ChargeRow.key, ChargeRow.line)
    if provider is not None:
        query = query.where(ChargeRow.provider == provider)
    if since is not None:
        query = query.where(ChargeRow.ends > to_micros(since))
    return [_charge(row) for row in connection.execute(query)]


def _sources(connection: Connection, provider: str) -> set[str]:
    """The sources of the provider's charges: ``api``, or names of files."""
    return set(connection.scalars(select(ChargeRow.source).where(ChargeRow.provider == provider).distinct()))


class Charges:
    """Reached as ``store.charges``. Every method is a transaction of its own and may raise `StoreProblem`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(
        self,
        charges: Iterable[Charge],
        *,
        source: str,
        at: datetime,
        whole: Sequence[ChargeScope] = (),
        replace: bool = True,
    ) -> RecordedCharges:
        """Store charges. Idempotent, in one transaction. ``at``: UTC.

        ``whole``: of what these charges are all; other stored ones are deleted there. So are those of an attempt and
        account for a time that a new charge of them touches. Several charges of one attempt and time are told apart by
        their amounts, whatever their order. Without ``replace``, raises `InvalidInput` if a charge that was not
        estimated would change or be deleted.
        """
        new_rows = _rows_by_key(charges, source, at)
        with self._database.writing() as connection:
            return _record(connection, new_rows, whole, replace=replace)

    all = reads(read)
    sources = reads(_sources)


_KEY = ("provider", "key", "starts", "ends", "line", "account")


def _rows_by_key(charges: Iterable[Charge], source: str, at: datetime) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows by primary key."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for charge in sorted(charges, key=lambda item: item.amount.micros):
        row: dict[str, Any] = {
            "provider": charge.provider,
            "key": charge.key,
            "starts": to_micros(charge.starts),
            "ends": to_micros(charge.ends),
            "line": charge.about.get("line", ""),
            "account": charge.account,
        }
        line, number = row["line"], 1
        while (key := tuple(row[name] for name in _KEY)) in rows:
            number += 1
            row["line"] = f"{line}#{number}"
        rows[key] = row | {
            "micros": charge.amount.micros,
            "estimated": charge.estimated,
            "source": source,
            "read_at": to_micros(at),
        }
    return rows


def _record(
    connection: Connection,
    new_rows: dict[tuple[Any, ...], dict[str, Any]],
    whole: Sequence[ChargeScope],
    *,
    replace: bool,
) -> RecordedCharges:
    edges = [row["starts"] for row in new_rows.values()] + [to_micros(scope.since) for scope in whole]
    if not edges:
        return RecordedCharges({}, {})
    providers = {row["provider"] for row in new_rows.values()} | {scope.provider for scope in whole}
    same_providers = and_(ChargeRow.provider.in_(providers), ChargeRow.ends >= min(edges))
    stored = {
        tuple(getattr(row, name) for name in _KEY): row._asdict()
        for row in connection.execute(select(ChargeRow).where(same_providers))
    }
    times: defaultdict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for row in new_rows.values():
        times[row["provider"], row["key"]].append((row["starts"], row["ends"], row["account"]))

    def is_superseded(row: Mapping[str, Any]) -> bool:
        of_attempt = times[row["provider"], row["key"]] if row["key"] else ()
        return any(
            starts < row["ends"] and row["starts"] < ends and (row["account"] in ("", account) or not account)
            for starts, ends, account in of_attempt
        )

    changed = [
        key
        for key, row in new_rows.items()
        if any(stored.get(key, {}).get(n) != row[n] for n in ("micros", "estimated"))
    ]
    removed = [
        key
        for key, row in stored.items()
        if key not in new_rows and (any(scope.contains(row) for scope in whole) or is_superseded(row))
    ]
    replaced = [*(key for key in changed if key in stored), *removed]
    final = [stored[key] for key in replaced if not stored[key]["estimated"]]
    if final and not replace:
        raise InvalidInput(
            f"would replace {len(final)} of the charges that were imported from"
            f" {', '.join(sorted({row['source'] for row in final}))}, {Money(sum(row['micros'] for row in final))}",
            hint="a corrected bill: say --replace; another part of the bill: give each part another `account`",
        )
    for key in replaced:
        is_same = and_(*(getattr(ChargeRow, name) == value for name, value in zip(_KEY, key, strict=True)))
        connection.execute(delete(ChargeRow).where(is_same))
    if changed:
        connection.execute(insert(ChargeRow), [new_rows[key] for key in changed])
    return RecordedCharges(*(Counter(key[0] for key in keys) for keys in ([*changed, *removed], replaced)))


def _charge(row: Any) -> Charge:
    return Charge(
        provider=row.provider,
        starts=from_micros(row.starts),
        ends=from_micros(row.ends),
        amount=Money(row.micros),
        key=row.key,
        estimated=bool(row.estimated),
        about={"source": row.source} | ({"line": row.line} if row.line else {}),
        account=row.account,
    )


_TYPES = {kind.value: kind for kind in CapacityType}


def paid_attempts(
    connection: Connection, since: datetime | None, until: datetime | None, billed: str
) -> Iterator[PaidAttempt]:
    """The spend of attempts paid in cash with machines in the half-open period (UTC; None: no limit) that are gone, in
    any order. ``billed``: the part of the ids of movements that adjust to a charge.
    """
    is_adjustment = and_(
        LedgerEntryRow.movement == Movement.ADJUST.value, LedgerEntryRow.movement_id.like(f"%/{billed}/%")
    )
    same_attempt = and_(
        LedgerEntryRow.job_id == MachineTimeRow.job_id,
        LedgerEntryRow.attempt == MachineTimeRow.attempt,
        LedgerEntryRow.account == Account.SPENT.value,
    )
    query = (
        select(
            *columns_of(
                MachineTimeRow, "job_id", "attempt", "provider", "capacity_type", "since", "until", "micros", "nodes"
            ),
            JobRow.closed,
            func.coalesce(func.sum(LedgerEntryRow.micros), 0),
            func.sum(case((is_adjustment, LedgerEntryRow.micros), else_=0)),
            func.sum(case((LedgerEntryRow.movement_id.like(f"%/{EGRESS}/%"), 1), else_=0)),
        )
        .select_from(
            join(MachineTimeRow, JobRow, JobRow.id == MachineTimeRow.job_id).outerjoin(LedgerEntryRow, same_attempt)
        )
        .where(
            MachineTimeRow.money == MoneyKind.CASH.value,
            MachineTimeRow.micros.is_not(None),
            MachineTimeRow.until < STILL_RUNNING,
        )
        .group_by(
            MachineTimeRow.until, MachineTimeRow.job_id, MachineTimeRow.attempt, JobRow.closed
        )  # in the order of the index that finds them
    )
    if since is not None:
        query = query.where(MachineTimeRow.until >= to_micros(since))
    if until is not None:
        query = query.where(MachineTimeRow.since < to_micros(until))
    for (
        job_id,
        attempt,
        provider,
        kind,
        first,
        last,
        price,
        nodes,
        closed,
        spent,
        adjusted,
        moved,
    ) in connection.execute(query):
        yield PaidAttempt(
            job_id, attempt, provider, _TYPES[kind], from_micros(first), from_micros(last), Money(price or 0), nodes,
            bool(closed), Money(int(spent)), Money(int(adjusted)), bool(moved),
        )  # fmt: skip
