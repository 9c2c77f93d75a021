"""Compares quoted, metered and charged costs, and posts the difference. Pure.

An attempt is compared once its job is closed, its machine is gone, and its charges cover all its time: a missing
charge, for example one without a tag, must not look like a saving. Charges that may still change count once they are
`RIPE_AFTER` old. An adjustment is the total charge less metered and earlier adjusted amounts, so it is idempotent, and
a changed charge leads to a further adjustment.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from broker.core.events.views import AttemptView, JobView
from broker.core.market.capacity import Charge
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Account, Entry, Movement, move
from broker.ledger.holds import Metering, cost_of, ledger_rate
from broker.ledger.journal import PaidAttempt
from broker.reconciler.settlement.settlement import charged_elsewhere, tags_of

RIPE_AFTER = timedelta(days=3)  # AWS and Azure change the figures of a day for up to three days
_TOLERANCE = timedelta(minutes=5)  # tolerance between a provider's times and ours: clocks differ, ends are seen late
LONGEST_AFTER = timedelta(days=62)
"""How long after the end of a machine its charges may begin. Bills are closed by then: what is dated later is not asked
for, and is the charge of something else."""
BILLED = "billed"  # part of the ids of movements that adjust the ledger to a charge


class ComparisonState(StrEnum):
    """The state of the comparison of an attempt."""

    RUNNING = "running"
    AWAITED = "awaited"
    COMPARED = "compared"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The costs of one attempt, in USD.

    ``quoted``: its machine time at the price of its placement. ``metered``: the amount settled in the ledger, without
    the egress that other providers charge. ``billed``: the provider's charges so far; None without any.
    ``difference``: billed less metered; None before the two can be compared. ``adjusted``: the adjustments posted for
    it. ``estimated``: some of the charges may still change. ``standing``: ``running``, ``awaited`` (charges are
    outstanding) or ``compared``. ``gone_at``: UTC.
    """

    job: str
    attempt: int
    key: str
    provider: str
    capacity_type: CapacityType
    standing: ComparisonState
    gone_at: datetime | None
    quoted: Money
    metered: Money
    billed: Money | None
    difference: Money | None
    adjusted: Money
    estimated: bool


class ChargeIndex:
    """Charges by provider and attempt."""

    def __init__(self, charges: Iterable[Charge], now: datetime) -> None:
        self._now = now
        self._of: dict[tuple[str, str], list[Charge]] = defaultdict(list)
        self._horizon: dict[str, datetime] = {}
        for charge in charges:
            self._of[charge.provider, charge.key].append(charge)
            if self._ripe(charge):
                self._horizon[charge.provider] = max(charge.ends, self._horizon.get(charge.provider, charge.ends))

    def of(self, provider: str, key: str, gone_at: datetime | None) -> Sequence[Charge]:
        """The charges for an attempt. ``gone_at``: when its machine was gone; None: it is there."""
        return [charge for charge in self._of.get((provider, key), ()) if not is_late(charge, gone_at)]

    def complete(self, provider: str, key: str, since: datetime, until: datetime) -> bool:
        """Whether the attempt's charges are all ripe and cover that time, and the provider's ripe charges reach its
        end."""
        charges = self.of(provider, key, until)
        horizon = self._horizon.get(provider)
        ripe = bool(charges) and all(map(self._ripe, charges)) and horizon is not None and horizon >= until
        return ripe and _cover(charges, since, until)

    def for_others(self, ends: Mapping[str, datetime | None]) -> Mapping[str, Money]:
        """The charges by provider (USD) that belong to none of these attempts: without a tag, of another store, or
        dated long after the attempt's machine was gone. ``ends``: when that was, by key; None: it is there."""
        totals = dict[str, Money]()
        for (provider, key), charges in self._of.items():
            if others := [charge.amount for charge in charges if key not in ends or is_late(charge, ends[key])]:
                totals[provider] = sum(others, totals.get(provider, Money.ZERO))
        return totals

    def _ripe(self, charge: Charge) -> bool:
        return not charge.estimated or self._now - charge.ends >= RIPE_AFTER


def is_late(charge: Charge, gone_at: datetime | None) -> bool:
    """Whether a charge begins too long after the machine was gone (UTC; None: it is there) to be for it."""
    return gone_at is not None and charge.starts >= gone_at + LONGEST_AFTER


def _cover(charges: Iterable[Charge], since: datetime, until: datetime) -> bool:
    """Whether the charges cover that time without a gap; a row for a day covers the day.

    Credits do not count: one may cover months.
    """
    for charge in sorted(
        (charge for charge in charges if charge.amount >= Money.ZERO), key=lambda charge: charge.starts
    ):
        if charge.starts > since + _TOLERANCE:
            break
        since = max(since, charge.ends)
    return since + _TOLERANCE >= until


def is_billed(attempt: AttemptView) -> bool:
    """Whether a provider charges for the attempt: its machine was up and costs cash."""
    costs_cash = attempt.placement.money is MoneyKind.CASH
    return costs_cash and attempt.up_since is not None and not attempt.refused


def compare_from_sums(attempt: PaidAttempt, key: str, charged: ChargeIndex) -> Comparison | None:
    """The comparison of an attempt from sums alone, if it was settled by the second at the price of its placement: the
    quoted amount then equals the metered one, and its job need not be read. ``key``: the attempt's.

    None if the job must be read: the price changed, the provider bills otherwise, there was no machine, or data was
    moved.
    """
    metered = attempt.spent - attempt.adjusted
    if attempt.moved or attempt.until <= attempt.since:
        return None
    quoted = cost_of(attempt.price, attempt.nodes, attempt.since, attempt.until, metering=Metering.ENDED)
    if quoted != metered:
        return None
    charges, standing = charged.of(attempt.provider, key, attempt.until), ComparisonState.RUNNING
    billed = sum((charge.amount for charge in charges), Money.ZERO) if charges else None
    if attempt.closed:
        complete = charged.complete(attempt.provider, key, attempt.since, attempt.until)
        standing = ComparisonState.COMPARED if complete else ComparisonState.AWAITED
    return Comparison(
        attempt.job_id, attempt.attempt, key, attempt.provider, attempt.capacity_type, standing, attempt.until,
        quoted, metered, billed, _difference(standing, billed, metered), attempt.adjusted,
        any(charge.estimated for charge in charges),
    )  # fmt: skip


def compare(
    view: JobView, attempt: AttemptView, entries: Iterable[Entry], charged: ChargeIndex, now: datetime
) -> Comparison:
    """The comparison of an attempt for which `is_billed` holds. ``entries``: the job's."""
    assert attempt.up_since is not None, "called for an attempt whose machine was never up"
    offer = attempt.placement.offer
    spent = [e for e in entries if e.tags.attempt == attempt.number and e.account is Account.SPENT]
    adjusted = sum((e.amount for e in spent if _is_adjustment(e)), Money.ZERO)
    end = attempt.gone_at if attempt.gone and attempt.gone_at else max(now, attempt.up_since)
    charges = charged.of(offer.provider, attempt.key, attempt.gone_at)
    standing = ComparisonState.RUNNING
    if view.closed:
        complete = charged.complete(offer.provider, attempt.key, attempt.up_since, end)
        standing = ComparisonState.COMPARED if complete else ComparisonState.AWAITED
    billed = sum((charge.amount for charge in charges), Money.ZERO) if charges else None
    metered = sum((e.amount for e in spent), Money.ZERO) - adjusted - charged_elsewhere(spent)
    return Comparison(
        job=view.id,
        attempt=attempt.number,
        key=attempt.key,
        provider=offer.provider,
        capacity_type=offer.capacity_type,
        standing=standing,
        gone_at=attempt.gone_at,
        quoted=_quoted_cost(attempt, end),
        metered=metered,
        billed=billed,
        difference=_difference(standing, billed, metered),
        adjusted=adjusted,
        estimated=any(charge.estimated for charge in charges),
    )


def _difference(standing: ComparisonState, billed: Money | None, metered: Money) -> Money | None:
    return billed - metered if standing is ComparisonState.COMPARED and billed is not None else None


def _quoted_cost(attempt: AttemptView, end: datetime) -> Money:
    assert attempt.up_since is not None, "called for an attempt whose machine was never up"
    metering = Metering.RUNNING
    if attempt.gone:
        metering = Metering.INTERRUPTED if attempt.taken_back else Metering.ENDED
    offer = attempt.placement.offer
    rate = ledger_rate(offer)
    return cost_of(rate, attempt.placement.nodes, attempt.up_since, end, offer.billing, metering=metering)


def adjustment(
    view: JobView, attempt: AttemptView, comparison: Comparison, entries: Iterable[Entry], now: datetime
) -> Sequence[Entry]:
    """The entries that bring the ledger to the charged amount, or back to the metered one where it cannot be compared
    (any more); none if it matches.

    They are dated in the time in which the machine ran and do not depend on the hold.
    """
    if attempt.up_since is None:
        return ()
    outcome = "has no complete charge" if comparison.difference is None else f"charged {comparison.billed}"
    earlier_ids = {e.movement_id for e in entries if e.tags.attempt == attempt.number and _is_adjustment(e)}
    return move(
        Movement.ADJUST,
        (comparison.difference or Money.ZERO) - comparison.adjusted,
        movement_id=f"{view.id}/{attempt.number}/{BILLED}/{len(earlier_ids)}",
        money=attempt.placement.money,
        at=now,
        covers=(attempt.up_since, attempt.gone_at or attempt.up_since),
        tags=tags_of(view, attempt),
        note=f"{comparison.provider} {outcome}, metered {comparison.metered}",
    )


def _is_adjustment(entry: Entry) -> bool:
    """Whether the entry was made by `adjustment`."""
    return entry.movement is Movement.ADJUST and entry.movement_id.split("/")[-2] == BILLED
