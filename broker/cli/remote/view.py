"""Documents of a team server as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.text import Text

from broker.cli.remote.tables import (
    Document,
    DocumentColumn,
    hourly,
    money,
    number,
    table,
    text,
    time,
    usd,
    when,
    words,
)
from broker.cli.render import formats
from broker.core.values.money import Money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_COLOURS = {
    "succeeded": "green",
    "running": "green",
    "failed": "red",
    **dict.fromkeys(("cancelled", "stopped", "paused_budget", "awaiting_approval", "interrupted"), "yellow"),
}


def state(job: Document) -> Text:
    """A job's state in its colour; ``stopping`` once its end was requested."""
    final = job["ended_at"] is not None
    said = "stopping" if job["cancel_requested"] and not final else words(job["state"])
    return Text(said, style=_COLOURS.get(job["state"], ""))


def jobs(console: Console, found: Sequence[Document], now: datetime) -> list[RenderableType]:
    """One row per job."""

    def submitted(job: Document) -> str:
        return f"{formats.age(max(now - (when(job['submitted_at']) or now), timedelta(0)))} ago"

    columns = (
        text("id", "job"), DocumentColumn("state", state), text("team", rank=6), text("user", rank=7),
        DocumentColumn("submitted", submitted, 4, "right"),
        DocumentColumn("machine", lambda job: _machine(job["attempts"][-1]["placement"]) if job["attempts"] else "", 2),
        money("cost_so_far", "cost"), text("waiting_because", "wait reason", 3, folds=True),
    )  # fmt: skip
    return table(console, columns, found, "", formats.plural(len(found), "job"))


def job(one: Document) -> Iterator[RenderableType]:
    """One job: state, cost, reason, and its events."""
    yield Text.assemble(f"{one['id']}  ", state(one), f"  {one['user']}{_of_team(one)}")
    yield f"cost      {usd(one['cost_so_far'])}{_limit(one)}; {sum_of(one['held'])} held"
    if one["attempts"]:
        placed = one["attempts"][-1]["placement"]
        yield f"machine   {_machine(placed)} at {hourly(placed['rate_per_hour'])}/h (as of {placed['price_as_of']})"
    if one["step"] is not None:
        total = f" of {one['total_steps']:,}" if one["total_steps"] else ""
        yield f"progress  step {one['step']:,}{total}"
    if reason := one["because"] or one["waiting_because"]:
        yield f"reason    {reason}"
    if one["asked"]:
        yield f"approval  {', '.join(one['asked']['approvers'])}: {one['asked']['because']}"
    yield ""
    for event in one.get("events", ()):
        yield _event(event)


def _event(event: Document) -> str:
    attempt = f"attempt {event['attempt']}: " if event["attempt"] is not None else ""
    because = f" ({event['because']})" if event.get("because") else ""
    return f"{formats.moment(when(event['at']))}  {attempt}{words(event['kind'])}{because}"


def attempts(console: Console, found: Sequence[Document]) -> list[RenderableType]:
    """One row per attempt."""
    columns = (
        number("number", "attempt"), DocumentColumn("machine", lambda one: _machine(one["placement"])),
        DocumentColumn("price per h", lambda one: hourly(one["placement"]["rate_per_hour"]), 2, "right"),
        text("state"), text("cause"),
        DocumentColumn("step", lambda one: "" if one["step"] is None else f"{one['step']:,}", 3, "right"),
        time("launched_at", "launched", 4),
    )  # fmt: skip
    return table(console, columns, found, "no attempts", formats.plural(len(found), "attempt"))


def requests(console: Console, found: Document) -> list[RenderableType]:
    """Approval requests."""

    def approvers(one: Document) -> str:
        return ", ".join(sorted({who for question in one["questions"] for who in question["approvers"]}))

    def reason(one: Document) -> str:
        return "; ".join(question["because"] for question in one["questions"])

    columns = (
        text("job"), text("user", "requester"), text("team", rank=2), money("total", "amount"), text("state", rank=1),
        DocumentColumn("approvers", approvers, 3), DocumentColumn("reason", reason, folds=True),
    )  # fmt: skip
    rows = found["requests"]
    return table(console, columns, rows, "no requests", formats.plural(len(rows), "request"))


def queue(found: Document) -> Iterator[RenderableType]:
    """The waiting jobs in order."""
    for place, one in enumerate(found["waiting"], 1):
        yield f"{place}. {one['job']}  {one['user']}{_of_team(one)}"
    if not found["waiting"]:
        yield "no job waits"


def _kind(offer: Document) -> str:
    return words(offer["capacity_type"]).replace(" ", "-")


def sum_of(amounts: Mapping[str, Any]) -> str:
    """Amounts by kind of money, added up."""
    return formats.money(sum((Money.usd(str(amount)) for amount in amounts.values() if amount), Money(0)))


def _machine(placed: Document) -> str:
    gpu = f" {placed['accelerator']}:{placed['count']}" if placed["accelerator"] else ""
    return f"{placed['provider']} {placed['zone'] or placed['region']}{gpu}"


def _of_team(one: Document) -> str:
    return f", team {one['team']}" if one["team"] else ""


def _limit(one: Document) -> str:
    return f" of at most {usd(one['max_cost'])}" if one["max_cost"] is not None else ""
