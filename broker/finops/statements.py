"""What teams are charged for a closed month: a statement that stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from broker.core.values.money import Money
from broker.finops.showback import SharingRules, TeamCost


@dataclass(frozen=True, slots=True)
class Correction:
    """An amount (USD) that a team is charged late: for ``month``, billed in ``billed_in`` (``2026-11``)."""

    month: str
    billed_in: str
    team: str
    amount: Money


@dataclass(frozen=True, slots=True)
class Statement:
    """The rows of a month by ``rules``, and the corrections of earlier months that are billed with it, which go to the
    teams themselves. ``bought``: paid in advance in the month, charged to nobody (USD)."""

    month: str
    frozen_at: datetime
    frozen_by: str
    rules: SharingRules
    rows: Sequence[TeamCost]
    corrections: Sequence[Correction]
    bought: Money

    @property
    def total(self) -> Money:
        """All that is charged."""
        amounts = [*(row.total for row in self.rows), *(one.amount for one in self.corrections)]
        return sum(amounts, Money.ZERO)
