"""Provider charges as results: quoted, metered and billed cost. All amounts are USD."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from pydantic import Field

from broker.app.documents import Moment, Result
from broker.core.errors import UnknownName
from broker.core.market.offers import BOUGHT
from broker.core.values.money import Money
from broker.reconciler.settlement.charges import Comparison

BILLED_BY = ("provider", "capacity_type", "job", "attempt")


class ComparedSums(Result):
    """Sums over attempts. ``difference`` (billed less metered) and ``compared_metered`` cover only the attempts that
    could be compared; ``billed``: null where no charge is known. ``on_own``: the part of ``metered`` on owned and
    reserved machines, ``rented``: on on-demand and spot ones. ``estimated``: some charges may still change."""

    attempts: int
    compared: int
    quoted: Money
    metered: Money
    on_own: Money
    rented: Money
    billed: Money | None
    difference: Money | None
    compared_metered: Money
    adjusted: Money
    estimated: bool

    @classmethod
    def of(cls, rows: Sequence[Comparison], **extra: Any) -> Self:
        compared = [row for row in rows if row.difference is not None]
        billed_amounts = [row.billed for row in rows if row.billed is not None]
        differences = [row.difference for row in compared if row.difference is not None]
        return cls(
            attempts=len(rows),
            compared=len(compared),
            quoted=_sum(row.quoted for row in rows),
            metered=_sum(row.metered for row in rows),
            on_own=_sum(row.metered for row in rows if row.capacity_type in BOUGHT),
            rented=_sum(row.metered for row in rows if row.capacity_type not in BOUGHT),
            billed=_sum(billed_amounts) if billed_amounts else None,
            difference=_sum(differences) if differences else None,
            compared_metered=_sum(row.metered for row in compared),
            adjusted=_sum(row.adjusted for row in rows),
            estimated=any(row.estimated for row in rows),
            **extra,
        )


class ComparedGroup(ComparedSums):
    """The sums of one group."""

    group: str


class SkippedRows(Result):
    """Skipped rows of an export: the reason, and the position of the first ones (``FILE:LINE``)."""

    reason: str
    rows: int
    samples: list[str]


class BilledReport(Result):
    """Quoted, metered and billed cost by one dimension, the most expensive group first; times null where the period is
    open. ``for_others``: charges by provider for resources outside gpubroker; ``sources``: of the charges in the
    period: ``api``, or imported files with their exchange rates; ``skipped``: rows of the export that are left out;
    ``superseded``: its files of earlier runs, which are skipped."""

    by: str
    since: Moment | None = Field(validation_alias="from", serialization_alias="from")
    until: Moment | None = Field(validation_alias="to", serialization_alias="to")
    timezone: str
    rows: list[ComparedGroup]
    total: ComparedSums
    attempts: list[Comparison]
    for_others: dict[str, Money]
    sources: list[str]
    skipped: list[SkippedRows]
    superseded: list[str]

    @classmethod
    def of(
        cls, billed_attempts: BilledAttempts, by: str, since: datetime | None, until: datetime | None, timezone: str
    ) -> Self:
        """``by``: one of `BILLED_BY`. Raises `UnknownName`."""
        if by not in BILLED_BY:
            raise UnknownName("dimension", by, BILLED_BY)
        return cls(
            by=by,
            since=since,
            until=until,
            timezone=timezone,
            rows=[ComparedGroup.of(rows, group=group) for group, rows in _group_rows(billed_attempts.rows, by)],
            total=ComparedSums.of(billed_attempts.rows),
            attempts=list(billed_attempts.rows),
            for_others=dict(billed_attempts.for_others),
            sources=list(billed_attempts.sources),
            skipped=list(billed_attempts.skipped),
            superseded=list(billed_attempts.superseded),
        )


class AdjustedAttempt(Result):
    """An attempt whose ledger entries were adjusted by the difference."""

    key: str
    metered: Money
    billed: Money | None
    difference: Money | None


class ChargesResult(Result):
    """Charges that were fetched or imported. ``changed``: how many are new, changed or gone, by provider; ``replaced``:
    how many earlier ones they replace; ``alerts``: titles of the notices of differences over the threshold;
    ``trouble``: providers that could not be queried, with the reason; ``unknown``: keys of no attempt in this store;
    ``skipped``: rows of an export that count nothing; ``rate``: by which amounts became dollars, with its day."""

    changed: dict[str, int]
    replaced: dict[str, int]
    adjusted: list[AdjustedAttempt]
    alerts: list[str]
    trouble: dict[str, str] = Field(default_factory=dict)
    without_login: list[str] = Field(default_factory=list)
    unknown: list[str] = Field(default_factory=list)
    skipped: list[SkippedRows] = Field(default_factory=list)
    rate: str | None = None


def _group_rows(rows: Sequence[Comparison], by: str) -> list[tuple[str, list[Comparison]]]:
    groups: dict[str, list[Comparison]] = {}
    for row in rows:
        values_by_dimension = {
            "provider": row.provider,
            "capacity_type": row.capacity_type.value,
            "job": row.job,
            "attempt": row.key,
        }
        groups.setdefault(values_by_dimension[by], []).append(row)
    return sorted(
        groups.items(), key=lambda item: (-_sum(comparison.metered for comparison in item[1]).micros, item[0])
    )


def _sum(amounts: Iterable[Money]) -> Money:
    return sum(amounts, Money.ZERO)


@dataclass(frozen=True, slots=True)
class BilledAttempts:
    """Comparisons, oldest attempt first. ``for_others``: charges that belong to no attempt (USD, by provider).
    ``sources``: where charges of the period were read; ``skipped``: rows of the export that are left out;
    ``superseded``: its files that are, as those of earlier runs."""

    rows: tuple[Comparison, ...]
    for_others: Mapping[str, Money]
    skipped: Sequence[SkippedRows] = ()
    superseded: Sequence[str] = ()
    sources: Sequence[str] = ()
