"""Documents of a team server as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.text import Text

from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted
from broker.core.values.money import Money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Document = Mapping[str, Any]
_COLOURS = {
    "succeeded": "green",
    "running": "green",
    "failed": "red",
    **dict.fromkeys(("cancelled", "stopped", "paused_budget", "awaiting_approval", "interrupted"), "yellow"),
}
_JOBS = (
    Column("job"),
    Column("state"),
    Column("team", 6),
    Column("user", 7),
    Column("submitted", 4, align="right"),
    Column("machine", 2),
    Column("cost", align="right"),
    Column("wait reason", 3, folds=True),
)
_ATTEMPTS = (
    Column("attempt", align="right"),
    Column("machine"),
    Column("price per h", 2, align="right"),
    Column("state"),
    Column("cause"),
    Column("step", 3, align="right"),
    Column("launched", 4),
)
_PLACEMENTS = (
    Column("rank", align="right"),
    Column("offer", folds=True),
    Column("purchase type"),
    Column("per h", align="right"),
    Column("expected cost", align="right"),
    Column("finish", 2),
)
_REQUESTS = (
    Column("job"),
    Column("requester"),
    Column("team", 2),
    Column("amount", align="right"),
    Column("state", 1),
    Column("approvers", 3),
    Column("reason", folds=True),
)
_BUDGETS = (
    Column("budget"),
    Column("limit", align="right"),
    Column("spent", align="right"),
    Column("held", 1, align="right"),
    Column("left", align="right"),
    Column("forecast", 2, align="right"),
    Column("period ends", 3),
)
_OFFERS = (
    Column("gpu"),
    Column("purchase type"),
    Column("provider"),
    Column("region", 2),
    Column("machine", 3),
    Column("per h", align="right"),
    Column("age", 4, align="right"),
)


def words(code: object) -> str:
    """A code as words: ``paused_budget`` becomes ``paused budget``."""
    return str(code).replace("_", " ")


def usd(text: object) -> str:
    """An amount of a document, rounded for people; a dash for an unknown one."""
    return formats.NOTHING if text is None else formats.money(Money.usd(str(text)))


def hourly(text: object) -> str:
    """An hourly price of a document."""
    return formats.rate(None if text is None else Money.usd(str(text)))


def when(text: str | None) -> datetime | None:
    """A time of a document (UTC)."""
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def state(job: Document) -> Text:
    """A job's state in its colour; ``stopping`` once its end was requested."""
    final = job["ended_at"] is not None
    said = "stopping" if job["cancel_requested"] and not final else words(job["state"])
    return Text(said, style=_COLOURS.get(job["state"], ""))


def jobs(console: Console, found: Sequence[Document], now: datetime) -> list[RenderableType]:
    """One row per job."""
    rows: list[list[str | Text]] = []
    for job in found:
        submitted = when(job["submitted_at"]) or now
        rows.append(
            [
                job["id"],
                state(job),
                job["team"] or "",
                job["user"],
                f"{formats.age(max(now - submitted, timedelta(0)))} ago",
                _machine(job["attempts"][-1]["placement"]) if job["attempts"] else "",
                usd(job["cost_so_far"]),
                job["waiting_because"],
            ]
        )
    return fitted(console, _JOBS, rows, formats.plural(len(rows), "job"))


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
    rows: list[list[str | Text]] = [
        [
            str(one["number"]),
            _machine(one["placement"]),
            hourly(one["placement"]["rate_per_hour"]),
            words(one["state"]),
            words(one["cause"] or ""),
            "" if one["step"] is None else f"{one['step']:,}",
            formats.moment(when(one["launched_at"])),
        ]
        for one in found
    ]
    return fitted(console, _ATTEMPTS, rows, formats.plural(len(rows), "attempt"))


def plan(console: Console, one: Document) -> Iterator[RenderableType]:
    """The placements, the verdict, and the money that a submission would hold."""
    rows: list[list[str | Text]] = []
    for placed in one["placements"] or one["estimate"]:
        offer = placed["offer"]
        kind = words(offer["capacity_type"]).replace(" ", "-")
        cost, finish = usd(placed["expected_cost"]), formats.moment(when(placed["finish"]))
        rows.append([str(placed["rank"]), _offer(offer), kind, hourly(placed["rate_per_hour"]), cost, finish])
    yield f"{one['feasible']} of {one['offers_seen']} offers match; costs are estimates"
    if rows:
        yield from fitted(console, _PLACEMENTS, rows)
    verdict = one["verdict"]
    if verdict["answer"] is not None:
        because = "; ".join(said["message"] for said in verdict["verdicts"] if said.get("answer") != "allow")
        yield f"policies: {words(verdict['answer'])}{f': {because}' if because else ''}"
    if one["hold"]:
        yield f"held at submission: {', '.join(f'{usd(amount)} {kind}' for kind, amount in one['hold'].items())}"
    for reason in one["reasons"] if not rows else ():
        yield f"  {reason['count']} × {reason['text']}: {reason['what_would_change_it']}"
    for note in one["notes"]:
        yield f"note: {note}"
    for other in one["alternatives"]:
        yield f"would pass: {other['instruction']}"


def requests(console: Console, found: Document) -> list[RenderableType]:
    """Approval requests."""
    rows: list[list[str | Text]] = [
        [
            one["job"],
            one["user"],
            one["team"] or "",
            usd(one["total"]),
            words(one["state"]),
            ", ".join(sorted({who for question in one["questions"] for who in question["approvers"]})),
            "; ".join(question["because"] for question in one["questions"]),
        ]
        for one in found["requests"]
    ]
    return fitted(console, _REQUESTS, rows, formats.plural(len(rows), "request")) if rows else [Text("no requests")]


def budgets(console: Console, found: Document) -> list[RenderableType]:
    """Budgets in their current periods."""
    rows: list[list[str | Text]] = [
        [
            one["id"],
            usd(one["limit"]),
            usd(one["spent"]),
            usd(one["held"]),
            usd(one["left"]),
            usd(one["forecast"]["expected"]),
            formats.moment(when(one["period_end"])),
        ]
        for one in found["budgets"]
    ]
    return fitted(console, _BUDGETS, rows) if rows else [Text("no budgets")]


def queue(found: Document) -> Iterator[RenderableType]:
    """The waiting jobs in order."""
    for number, one in enumerate(found["waiting"], 1):
        yield f"{number}. {one['job']}  {one['user']}{_of_team(one)}"
    if not found["waiting"]:
        yield "no job waits"


def offers(console: Console, found: Sequence[Document], matching: int) -> list[RenderableType]:
    """Offers, the cheapest GPU-hour first."""
    rows: list[list[str | Text]] = [
        [
            f"{one['accelerator']}:{one['count']}" if one["accelerator"] else "cpu",
            words(one["capacity_type"]).replace(" ", "-"),
            one["provider"],
            one["zone"] or one["region"],
            one["instance_type"],
            hourly(one["price_per_hour"]),
            formats.age(timedelta(seconds=one["age_seconds"])),
        ]
        for one in found
    ]
    return fitted(console, _OFFERS, rows, f"{len(rows)} of {formats.plural(matching, 'offer')}")


def sum_of(amounts: Mapping[str, Any]) -> str:
    """Amounts by kind of money, added up."""
    return formats.money(sum((Money.usd(str(amount)) for amount in amounts.values() if amount), Money(0)))


def _offer(one: Document) -> str:
    return f"{one['provider']} {one['zone'] or one['region']} {one['instance_type']}"


def _machine(placed: Document) -> str:
    gpu = f" {placed['accelerator']}:{placed['count']}" if placed["accelerator"] else ""
    return f"{placed['provider']} {placed['zone'] or placed['region']}{gpu}"


def _of_team(one: Document) -> str:
    return f", team {one['team']}" if one["team"] else ""


def _limit(one: Document) -> str:
    return f" of at most {usd(one['max_cost'])}" if one["max_cost"] is not None else ""
