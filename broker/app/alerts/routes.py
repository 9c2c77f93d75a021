"""The recipients of a notice, and the times of delivery, by the routes of the settings. Pure.

A recipient without a route hears everything at once. Failures wait for nothing: neither quiet hours nor digests hold
them back. A notice about teams that no route names goes to the recipients of all teams, and where there are none of
those, to everybody: nothing is lost for want of a route.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from broker.core.notices import Notice, Severity

if TYPE_CHECKING:
    from broker.settings import QuietHours, RouteSettings, Settings

    Routes = Mapping[str, RouteSettings]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ORDER = list(Severity)


def recipients(settings: Settings, notice: Notice) -> tuple[str, ...]:
    """The names of its recipients."""
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
    """The recipients that hear of little now, each with a time (UTC): what was noticed since then has to wait. In quiet
    hours that is everything."""
    return {name: until for name, route in routes.items() if (until := _told_until(route, now)) is not None}


def gathers(routes: Routes, target: str) -> bool:
    """Whether all that is due to the recipient comes as one message, because it had to wait."""
    route = routes.get(target)
    return route is not None and (route.digest is not None or route.quiet is not None)


def as_one(notices: Sequence[Notice]) -> Notice:
    """One message of several notices, the gravest first; a single one as it is. Its thread is that of all of them, or
    none."""
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
    """By what the clocks show, so that hours end even where clocks skip their beginning or end."""
    shown = now.astimezone(ZoneInfo(quiet.timezone)).time()
    if quiet.start < quiet.end:
        return quiet.start <= shown < quiet.end
    return shown >= quiet.start or shown < quiet.end
