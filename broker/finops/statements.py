"""The charges of teams for a closed month: an unchangeable statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from broker.core.values.money import Money
from broker.finops.showback import SharingRules, TeamCost


@dataclass(frozen=True, slots=True)
class Correction:
    """An amount (USD) that a team is charged late: for ``month``, billed in ``billed_in`` (``2026-11``); None: with the
    statement that is frozen next."""

    month: str
    billed_in: str | None
    team: str
    amount: Money


@dataclass(frozen=True, slots=True)
class Statement:
    """The rows of a month by ``rules``, and the corrections of earlier frozen months that are billed with it: to the
    teams concerned; those of idle capacity to nobody. ``bought``: paid in advance, charged to nobody (USD).
    ``entries``: the number of the last ledger entry that was counted; what is recorded after it is in a later
    statement."""

    month: str
    frozen_at: datetime
    frozen_by: str
    rules: SharingRules
    rows: Sequence[TeamCost]
    corrections: Sequence[Correction]
    bought: Money
    entries: int

    @property
    def total(self) -> Money:
        """The total of all charges (USD)."""
        amounts = [*(row.total for row in self.rows), *(one.amount for one in self.corrections)]
        return sum(amounts, Money.ZERO)
