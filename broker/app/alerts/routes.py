"""The recipients of a notice, and the times of delivery, by the routes of the settings. Pure.

A recipient without a route receives every notice at once. Notices of failures are delayed neither by quiet hours nor by
digests. A notice about teams that no route names goes to the recipients of all teams; if there are none, to every
recipient: no notice is lost because a route is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from broker.core.notices import Notice, Severity
from broker.core.values.units import zone

if TYPE_CHECKING:
    from broker.settings import QuietHours, RouteSettings, Settings

    Routes = Mapping[str, RouteSettings]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ORDER = list(Severity)


def recipients(settings: Settings, notice: Notice) -> tuple[str, ...]:
    """The names of the recipients of a notice."""
    routes = settings.routes
    of_all = {name for name in settings.notify if name not in routes or not routes[name].teams}
    of_teams = {name for name in settings.notify if name in routes and _of_its_teams(routes[name], notice)}
    concerned = of_all | of_teams or set(settings.notify)
    return tuple(
        name
        for name in settings.notify
        if name in concerned and (name not in routes or _grave_enough(routes[name], notice))
    )


def waits(routes: Routes, now: datetime) -> Mapping[str, datetime]:
    """The recipients whose notices have to wait now, each with a time (UTC): notices since then wait. In quiet hours
    all notices wait."""
    return {name: until for name, route in routes.items() if (until := _told_until(route, now)) is not None}


def gathers(routes: Routes, target: str) -> bool:
    """Whether all notices due to the recipient are sent as one message, because they had to wait."""
    route = routes.get(target)
    return route is not None and (route.digest is not None or route.quiet is not None)


def as_one(notices: Sequence[Notice]) -> Notice:
    """Several notices as one message, the most severe first; a single notice is unchanged. The message has a thread
    only if all notices have the same one."""
    first, *others = sorted(notices, key=lambda one: -_ORDER.index(one.severity))
    if not others:
        return first
    threads = {one.thread for one in notices}
    title = f"gpubroker: {len(notices)} notices: {first.title}, and {len(others)} more"
    return Notice(
        first.key,
        title,
        "\n\n".join(f"{one.title}\n{one.body}" for one in (first, *others)),
        first.severity,
        threads.pop() if len(threads) == 1 else "",
    )


def _grave_enough(route: RouteSettings, notice: Notice) -> bool:
    return _ORDER.index(notice.severity) >= _ORDER.index(route.at_least)


def _of_its_teams(route: RouteSettings, notice: Notice) -> bool:
    return any(fnmatchcase(team, pattern) for team in notice.teams for pattern in route.teams)


def _told_until(route: RouteSettings, now: datetime) -> datetime | None:
    if route.quiet is not None and _is_quiet(route.quiet, now):
        return _EPOCH
    if route.digest is not None:
        return now - (now - _EPOCH) % route.digest
    return None


def _is_quiet(quiet: QuietHours, now: datetime) -> bool:
    """Compares local clock times, so that quiet hours also end on days on which the clocks skip their start or end."""
    shown = now.astimezone(zone(quiet.timezone)).time()
    if quiet.start < quiet.end:
        return quiet.start <= shown < quiet.end
    return shown >= quiet.start or shown < quiet.end
