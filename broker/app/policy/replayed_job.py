"""The course and cost of a job when decisions are replayed under another policy. Pure.

A job that would have run on another offer is charged for its metered time, not its expected time: at the other offer's
rate and billing steps; if the job states its work, the time is scaled by the ratio of the throughputs. Time lost to
interruptions is included. A job that never ran costs what its plan expects: if its work is unknown, its whole maximum
duration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from broker.core.job.placements import Placement
from broker.core.policy.policy import Action, LiveAttempt
from broker.core.values.money import Money
from broker.ledger.entries import Account, Entry, Movement, Tags, move
from broker.ledger.holds import Metering, cost_of, ledger_rate

Window = tuple[datetime, datetime]


class ReplayBasis(StrEnum):
    """The source of the cost of a replayed job."""

    RECORD = "record"
    METERED_TIME = "metered_time"
    CONVERTED_TIME = "converted_time"
    PLAN = "plan"


@dataclass(slots=True)
class ReplayedJob:
    """A job in the replay: its ledger entries; ``since``: when it was stopped (UTC; None: it was not); and the capacity
    that it occupies, if that is not recorded."""

    entries: Sequence[Entry]
    since: datetime | None = None
    occupies: tuple[Window, LiveAttempt] | None = None
    basis: ReplayBasis = ReplayBasis.RECORD

    def until(self, now: datetime) -> Iterable[Entry]:
        """The entries posted up to ``now``."""
        return (e for e in self.entries if e.at <= now and (self.since is None or e.at <= self.since))

    def holding(self, job: str, now: datetime) -> LiveAttempt | None:
        """The capacity that the job occupies while it holds money, from the tags of its entries; None if it holds
        nothing, or if the capacity is free of charge."""
        held = sum((e.amount for e in self.until(now) if e.account is Account.HELD), Money.ZERO)
        placed = next((e for e in self.entries if e.tags.provider), None)
        if held <= Money.ZERO or placed is None or (self.since is not None and self.since <= now):
            return None
        tags = placed.tags
        return LiveAttempt(
            job, tags.user, tags.team, tags.project, tags.workload or "", tags.environment, tags.gpus,
            tags.accelerator, tags.provider or "", placed.money, capacity_type=tags.capacity_type,
        )  # fmt: skip


def spent(entries: Iterable[Entry]) -> Money:
    """The spending of these entries in USD, of all kinds of money."""
    return sum((e.amount for e in entries if e.account is Account.SPENT), Money.ZERO)


def planned(key: str, action: Action, placement: Placement, at: datetime) -> ReplayedJob:
    """The course of a job that never ran, as its plan expects it. ``at``: when it was decided (UTC)."""
    window = action.window or (at, at)
    lasts = min(placement.duration or (window[1] - window[0]), window[1] - window[0])
    cost = placement.expected_cost if placement.duration else placement.rate.for_duration(lasts)
    return _course(key, action, placement, at, (at, at + max(lasts, timedelta(0))), cost, ReplayBasis.PLAN)


def elsewhere(
    key: str, recorded: Sequence[Entry], was: Placement | None, action: Action, placement: Placement, at: datetime
) -> ReplayedJob:
    """The course of a job that ran, as if it had run on ``placement`` instead of ``was``; according to its plan if
    nothing was metered because it ran free of charge."""
    metered: dict[int | None, list[Entry]] = defaultdict(list)
    for entry in recorded:
        if entry.account is Account.SPENT:
            metered[entry.tags.attempt].append(entry)
    if not metered:
        free = was is None or not ledger_rate(was.offer)
        # A job on priced capacity without metered cost never got a machine; assume the same on other capacity.
        return planned(key, action, placement, at) if free or not recorded else ReplayedJob(recorded)
    lasted = sum(
        (max(e.covers_to for e in mine) - min(e.covers_from for e in mine) for mine in metered.values()), timedelta(0)
    )
    basis = ReplayBasis.METERED_TIME
    if was is not None and was.duration and placement.duration and was.throughput != placement.throughput:
        lasted, basis = lasted * (was.throughput / placement.throughput), ReplayBasis.CONVERTED_TIME
    begins = min(e.covers_from for mine in metered.values() for e in mine)
    runs = sum((e.amount for e in recorded if e.account is Account.HELD), Money.ZERO) > Money.ZERO
    cost = cost_of(
        ledger_rate(placement.offer), placement.nodes, begins, begins + lasted, placement.offer.billing,
        metering=Metering.RUNNING if runs else Metering.ENDED,
    )  # fmt: skip
    return _course(key, action, placement, at, (begins, begins + lasted), cost, basis, _given(recorded))


def _given(recorded: Sequence[Entry]) -> Money:
    """The money (USD) that a job was given in addition to its first hold."""
    given = (e.amount for e in recorded if e.movement is Movement.TOP_UP and e.account is Account.HELD)
    return sum(given, Money.ZERO)


def _course(
    key: str, action: Action, placement: Placement, at: datetime, ran: Window, cost: Money, basis: ReplayBasis,
    given: Money = Money.ZERO,
) -> ReplayedJob:  # fmt: skip
    """A job that holds its money from ``at`` on and spends its cost, at most the hold, at the end of its run."""
    job, kind = action.job, placement.money
    held = (action.hold or {}).get(kind, Money.ZERO) + given
    dated = next(iter(action.dated([kind])), None)
    rate, window = (dated.rate, (dated.start, dated.end)) if dated else (None, (at, at))
    cost, ends = min(cost, held), ran[1]
    tags = Tags(key, action.user, job.team, job.project, job.workload.value, job.environment)

    def movement(what: Movement, amount: Money, when: datetime, covers: Window) -> tuple[Entry, ...]:
        return move(
            what,
            amount,
            movement_id=f"{key}/{what}",
            money=kind,
            at=when,
            covers=covers,
            tags=tags,
            rate=rate if what is Movement.HOLD else None,
        )

    entries = [
        *movement(Movement.HOLD, held, at, window),
        *movement(Movement.SETTLE, cost, ends, ran),
        *movement(Movement.RELEASE, held - cost, ends, (ends, ends)),
    ]
    offer = placement.offer
    live = LiveAttempt(
        key, action.user, job.team, job.project, job.workload.value, job.environment, placement.gpus,
        offer.accelerator, offer.provider, kind, offer.pool, placement.nodes, offer.capacity_type,
    )  # fmt: skip
    return ReplayedJob(entries, occupies=((at, ends), live), basis=basis)
