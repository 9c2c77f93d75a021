"""Renders templates: formats of figures, the frame of every page, and escaping of all values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from broker.agent.names import escape_unprintable
from broker.app.jobs.documents import JobDetails
from broker.core.access.people import Permission
from broker.core.errors import BrokerError
from broker.core.events.outcomes import JobState
from broker.core.values import figures
from broker.server.page.charts import percent_of
from broker.server.page.visitors import RENEWAL_SECONDS, Renewal, Visitor, new_key


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
    return [entry for entry in MENU if entry.permission is None or visitor.may(entry.permission)]


STATIC = files("broker.server.page") / "static"


def moment(at: datetime | None) -> str:
    """``2026-11-01 12:00 UTC``"""
    return figures.NO_VALUE if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def words(code: object) -> str:
    """A code as words: ``paused_budget`` becomes ``paused budget``."""
    return str(code).replace("_", " ")


@dataclass(frozen=True, slots=True)
class Mark:
    """How a state is shown: a word, an icon, and the tone of both: good, info, warn, bad or none."""

    word: str
    icon: str
    tone: str = ""


_ICONS = {
    JobState.AWAITING_APPROVAL: ("hand", "warn"),
    JobState.PLANNED: ("calendar", ""),
    JobState.LAUNCHING: ("loader", "info"),
    JobState.RUNNING: ("play", "good"),
    JobState.INTERRUPTED: ("zap", "warn"),
    JobState.PAUSED_BUDGET: ("pause", "warn"),
    JobState.SUCCEEDED: ("check", "good"),
    JobState.FAILED: ("x", "bad"),
}


def mark_of(job: JobDetails) -> Mark:
    """How a job's state is shown, or that it may end too late, which matters more."""
    if not job.state.final and job.deadline_missed:
        return Mark(f"{job.state_in_words}, too late", "clock", "bad")
    if not job.state.final and job.deadline_at_risk:
        return Mark(f"{job.state_in_words}, deadline at risk", "clock", "warn")
    return Mark(job.state_in_words, *_ICONS.get(job.state, ("slash" if job.state.final else "clock", "")))


def figure(value: float) -> str:
    """A figure of a program: ``0.868541``, six digits below a million, whole numbers from there (``127,795,200``);
    powers of ten below 0.0001 and from 10¹⁵."""
    return f"{value:,.0f}" if 999_999.5 <= abs(value) < 1e15 else f"{value:g}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("broker.server.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "money": figures.money,
        "rate": figures.rate,
        "age": figures.age,
        "length": figures.length,
        "percent": figures.percent,
        "moment": moment,
        "shown": escape_unprintable,
        "words": words,
        "figure": figure,
        "part": percent_of,
        "iso": lambda at: at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }
    environment.globals |= {
        "plural": figures.plural,
        "mark_of": mark_of,
        "NOTHING": figures.NO_VALUE,
        "file": static_url,
        "new_key": new_key,
        "zero": timedelta(0),
    }
    return environment


@cache
def static_url(name: str) -> str:
    """The address of a file in ``static``, which changes with its content: browsers keep it for good."""
    return f"/static/{name}?v={sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


def render_page(
    template: str,
    visitor: Visitor | None,
    values: Mapping[str, Any],
    *,
    title: str,
    at: str = "",
    status: int = 200,
    live: bool = False,
) -> HTMLResponse:
    """The HTML response of a page. ``visitor``: None before signing in; ``at``: the path of its menu entry; ``live``:
    its figures change, so they are renewed in place, or without scripts by loading the page again."""
    renewal = visitor.renewal if live and visitor is not None else Renewal.NEVER
    common = {
        "title": title,
        "visitor": visitor,
        "menu": menu(visitor) if visitor else (),
        "at": at,
        "live": live,
        "in_place": renewal is Renewal.IN_PLACE,
        "reloads": renewal is Renewal.RELOAD,
        "every": RENEWAL_SECONDS,
        "now": visitor.caller.broker.clock.now() if visitor else datetime.now(UTC),
        "clock_scale": visitor.caller.broker.clock.scale if visitor else 1,
    }
    refresh_header = {"Refresh": str(RENEWAL_SECONDS)} if renewal is Renewal.RELOAD else {}
    return HTMLResponse(_environment().get_template(template).render(common | dict(values)), status, refresh_header)


def error_sentence(error: BrokerError) -> str:
    return f"{error.message[:1].upper()}{error.message[1:]}" + (f": {error.hint}." if error.hint else ".")
