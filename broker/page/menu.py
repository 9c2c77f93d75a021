"""The menu: its entries, and the permission for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.core.access.permissions import Permission
from broker.page.visitors import Visitor


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """One entry. ``permission``: the one that its page needs."""

    path: str
    name: str
    permission: Permission | None


MENU = (
    MenuEntry("/", "Overview", None),
    MenuEntry("/jobs", "Jobs", Permission.SEE_JOBS),
    MenuEntry("/queue", "Queue", Permission.SEE_JOBS),
    MenuEntry("/approvals", "Approvals", Permission.SEE_JOBS),
    MenuEntry("/budgets", "Budgets", Permission.SEE_BUDGETS),
    MenuEntry("/reports", "Reports", Permission.SEE_BUDGETS),
    MenuEntry("/policies", "Policies", Permission.SEE_POLICIES),
    MenuEntry("/offers", "Offers", Permission.SEE_MARKET),
    MenuEntry("/capacity", "Capacity", Permission.SEE_ALL_TEAMS),
    MenuEntry("/people", "People", Permission.SEE_PEOPLE),
    MenuEntry("/health", "Health", Permission.SEE_MARKET),
)


def menu(visitor: Visitor) -> Sequence[MenuEntry]:
    """The entries that the visitor may open."""
    return [one for one in MENU if one.permission is None or visitor.may(one.permission)]
