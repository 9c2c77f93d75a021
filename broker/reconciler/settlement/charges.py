"""Compares quoted, metered and charged costs, and posts the difference. Pure.

An attempt is compared once its job is closed, its machine is gone, and its charges cover all its time: a missing
charge, for example one without a tag, must not look like a saving. Charges that may still change count once they are
`RIPE_AFTER` old. An adjustment is the total charge less metered and earlier adjusted amounts, so it is idempotent, and
a changed charge leads to a further adjustment.
"""

from __future__ import annotations

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
_BLUR = timedelta(minutes=5)  # tolerance between a provider's times and ours: clocks differ, ends are seen late
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
    the egress that other providers charge. ``billed``: the provider's charges so far; None without any. ``adjusted``:
    the adjustments posted for it. ``estimated``: some of the charges may still change.
    """

    job_id: str
    attempt: int
    key: str
    provider: str
    capacity_type: CapacityType
    standing: ComparisonState
    gone_at: datetime | None
    quoted: Money
    metered: Money
    billed: Money | None
    adjusted: Money
    estimated: bool

    @property
    def difference(self) -> Money | None:
        """Billed less metered; None before the two can be compared."""
        if self.standing is not ComparisonState.COMPARED or self.billed is None:
            return None
        return self.billed - self.metered


class Charged:
    """Charges by provider and attempt."""

    def __init__(self, charges: Iterable[Charge], now: datetime) -> None:
        self._now = now
        self._of: dict[tuple[str, str], list[Charge]] = defaultdict(list)
        self._horizon: dict[str, datetime] = {}
        for one in charges:
            self._of[one.provider, one.key].append(one)
            if self._ripe(one):
                self._horizon[one.provider] = max(one.ends, self._horizon.get(one.provider, one.ends))

    def of(self, provider: str, key: str, gone_at: datetime | None) -> Sequence[Charge]:
        """The charges for an attempt. ``gone_at``: when its machine was gone; None: it is there."""
        return [one for one in self._of.get((provider, key), ()) if not is_late(one, gone_at)]

    def complete(self, provider: str, key: str, since: datetime, until: datetime) -> bool:
        """Whether the attempt's charges are all ripe and cover that time, and the provider's ripe charges reach its
        end."""
        own = self.of(provider, key, until)
        horizon = self._horizon.get(provider)
        ripe = bool(own) and all(map(self._ripe, own)) and horizon is not None and horizon >= until
        return ripe and _cover(own, since, until)

    def for_others(self, ends: Mapping[str, datetime | None]) -> Mapping[str, Money]:
        """The charges by provider (USD) that belong to none of these attempts: without a tag, of another store, or
        dated long after the attempt's machine was gone. ``ends``: when that was, by key; None: it is there."""
        found = dict[str, Money]()
        for (provider, key), charges in self._of.items():
            if others := [one.amount for one in charges if key not in ends or is_late(one, ends[key])]:
                found[provider] = sum(others, found.get(provider, Money.ZERO))
        return found

    def _ripe(self, charge: Charge) -> bool:
        return not charge.estimated or self._now - charge.ends >= RIPE_AFTER


def is_late(charge: Charge, gone_at: datetime | None) -> bool:
    """Whether a charge begins too long after the machine was gone (UTC; None: it is there) to be for it."""
    return gone_at is not None and charge.starts >= gone_at + LONGEST_AFTER


def _cover(charges: Iterable[Charge], since: datetime, until: datetime) -> bool:
    """Whether the charges cover that time without a gap; a row for a day covers the day.

    Credits do not count: one may cover months.
    """
    for one in sorted((one for one in charges if one.amount >= Money.ZERO), key=lambda one: one.starts):
        if one.starts > since + _BLUR:
            break
        since = max(since, one.ends)
    return since + _BLUR >= until


def is_billed(attempt: AttemptView) -> bool:
    """Whether a provider charges for the attempt: its machine was up and costs cash."""
    cash = attempt.placement.money is MoneyKind.CASH
    return cash and attempt.up_since is not None and not attempt.refused


def compared_as_placed(found: PaidAttempt, key: str, charged: Charged) -> Comparison | None:
    """The comparison of an attempt from sums alone, if it was settled by the second at the price of its placement: the
    quoted amount then equals the metered one, and its job need not be read. ``key``: the attempt's.

    None if the job must be read: the price changed, the provider bills otherwise, there was no machine, or data was
    moved.
    """
    metered = found.spent - found.adjusted
    if found.moved or found.until <= found.since:
        return None
    quoted = cost_of(found.price, found.nodes, found.since, found.until, metering=Metering.ENDED)
    if quoted != metered:
        return None
    charges, standing = charged.of(found.provider, key, found.until), ComparisonState.RUNNING
    if found.closed:
        complete = charged.complete(found.provider, key, found.since, found.until)
        standing = ComparisonState.COMPARED if complete else ComparisonState.AWAITED
    return Comparison(
        found.job_id, found.attempt, key, found.provider, found.capacity_type, standing, found.until, quoted, metered,
        sum((one.amount for one in charges), Money.ZERO) if charges else None,
        found.adjusted, any(one.estimated for one in charges),
    )  # fmt: skip


def compare(
    view: JobView, attempt: AttemptView, entries: Iterable[Entry], charged: Charged, now: datetime
) -> Comparison:
    """The comparison of an attempt for which `is_billed` holds. ``entries``: the job's."""
    assert attempt.up_since is not None, "called for an attempt whose machine was never up"
    offer = attempt.placement.offer
    spent = [e for e in entries if e.tags.attempt == attempt.number and e.account is Account.SPENT]
    adjusted = sum((e.amount for e in spent if _is_ours(e)), Money.ZERO)
    end = attempt.gone_at if attempt.gone and attempt.gone_at else max(now, attempt.up_since)
    charges = charged.of(offer.provider, attempt.key, attempt.gone_at)
    standing = ComparisonState.RUNNING
    if view.closed:
        complete = charged.complete(offer.provider, attempt.key, attempt.up_since, end)
        standing = ComparisonState.COMPARED if complete else ComparisonState.AWAITED
    return Comparison(
        job_id=view.id,
        attempt=attempt.number,
        key=attempt.key,
        provider=offer.provider,
        capacity_type=offer.capacity_type,
        standing=standing,
        gone_at=attempt.gone_at,
        quoted=_quoted(attempt, end),
        metered=sum((e.amount for e in spent), Money.ZERO) - adjusted - charged_elsewhere(spent),
        billed=sum((one.amount for one in charges), Money.ZERO) if charges else None,
        adjusted=adjusted,
        estimated=any(one.estimated for one in charges),
    )


def _quoted(attempt: AttemptView, end: datetime) -> Money:
    assert attempt.up_since is not None, "called for an attempt whose machine was never up"
    metering = Metering.RUNNING
    if attempt.gone:
        metering = Metering.INTERRUPTED if attempt.taken_back else Metering.ENDED
    offer = attempt.placement.offer
    rate = ledger_rate(offer)
    return cost_of(rate, attempt.placement.nodes, attempt.up_since, end, offer.billing, metering=metering)


def adjustment(
    view: JobView, attempt: AttemptView, compared: Comparison, entries: Iterable[Entry], now: datetime
) -> Sequence[Entry]:
    """The entries that bring the ledger to the charged amount, or back to the metered one where it cannot be compared
    (any more); none if it matches.

    They are dated in the time in which the machine ran and do not depend on the hold.
    """
    if attempt.up_since is None:
        return ()
    charged = "has no complete charge" if compared.difference is None else f"charged {compared.billed}"
    before = {e.movement_id for e in entries if e.tags.attempt == attempt.number and _is_ours(e)}
    return move(
        Movement.ADJUST,
        (compared.difference or Money.ZERO) - compared.adjusted,
        movement_id=f"{view.id}/{attempt.number}/{BILLED}/{len(before)}",
        money=attempt.placement.money,
        at=now,
        covers=(attempt.up_since, attempt.gone_at or attempt.up_since),
        tags=tags_of(view, attempt),
        note=f"{compared.provider} {charged}, metered {compared.metered}",
    )


def _is_ours(entry: Entry) -> bool:
    """Whether the entry was made by `adjustment`."""
    return entry.movement is Movement.ADJUST and entry.movement_id.split("/")[-2] == BILLED
