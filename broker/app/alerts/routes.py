"""The recipients of a notice by the routes of the settings. Pure.

A recipient without a route receives every notice. A notice about teams that no route names goes to the recipients of
all teams; if there are none, to every recipient: no notice is lost because a route is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from broker.core.notices import Notice, Severity

if TYPE_CHECKING:
    from broker.settings import RouteSettings, Settings

_ORDER = list(Severity)


def recipients(settings: Settings, notice: Notice) -> tuple[str, ...]:
    routes = settings.routes
    general = {name for name in settings.notify if name not in routes or not routes[name].teams}
    team_recipients = {name for name in settings.notify if name in routes and _matches_teams(routes[name], notice)}
    candidates = general | team_recipients or set(settings.notify)
    return tuple(
        name
        for name in settings.notify
        if name in candidates and (name not in routes or _is_severe_enough(routes[name], notice))
    )


def combine_notices(notices: Sequence[Notice]) -> Notice:
    """Several notices as one message, the most severe first; a single notice is unchanged. The message has a thread
    only if all notices have the same one."""
    first, *others = sorted(notices, key=lambda notice: -_ORDER.index(notice.severity))
    if not others:
        return first
    threads = {notice.thread for notice in notices}
    title = f"gpubroker: {len(notices)} alerts: {first.title}, and {len(others)} more"
    return Notice(
        first.key,
        title,
        "\n\n".join(f"{notice.title}\n{notice.body}" for notice in (first, *others)),
        first.severity,
        threads.pop() if len(threads) == 1 else "",
    )


def _is_severe_enough(route: RouteSettings, notice: Notice) -> bool:
    return _ORDER.index(notice.severity) >= _ORDER.index(route.at_least)


def _matches_teams(route: RouteSettings, notice: Notice) -> bool:
    return any(fnmatchcase(team, pattern) for team in notice.teams for pattern in route.teams)
