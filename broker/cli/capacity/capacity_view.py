"""Capacity, its records and its differences from what providers list, as text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.capacity import CapacityList, PurchaseChecklistResult, RecordedCapacity
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.capacity.check import CapacityCheck

_COLUMNS = (
    Column("#", align="right"),
    Column("type"),
    Column("GPUs"),
    Column("provider", 1),
    Column("site", 2),
    Column("starts", 5),
    Column("ends", 1),
    Column("$/GPU-h", 1, "right"),
    Column("in use", 3, "right"),
    Column("source", 4),
    Column("note", 6, folds=True),
)


def table(console: Console, found: CapacityList) -> Iterator[RenderableType]:
    """Recorded capacity, capacity reported by providers, and owned machines; then the providers that failed."""
    if rows := list(_rows(found)):
        yield from fitted(console, _COLUMNS, rows)
    else:
        yield "No capacity: none recorded, none reported by providers, no owned machines with GPUs."
        yield Text("gpubroker capacity add --help", style="dim")
    if found.asked:
        yield Text(f"queried: {', '.join(found.asked)}", style="dim")
    yield from (unanswered(one.provider, one.message) for one in found.problems)


def _rows(found: CapacityList) -> Iterator[list[str | Text]]:
    for held in found.recorded:
        over = held.ends <= found.as_of
        yield [
            str(held.number),
            held.kind.value,
            f"{held.accelerator} × {held.gpus}",
            held.provider,
            held.site,
            _day(held.starts),
            Text(f"{_day(held.ends)} (ended)", style="yellow") if over else _day(held.ends),
            f"{float(held.usd_per_gpu_hour):,.3f}",
            "",
            f"recorded by {held.added_by}",
            " ".join(filter(None, (held.order_id, held.note, "(proof kept)" if held.proof else ""))),
        ]
    for one in found.reported:
        yield [
            "",
            one.kind.replace("_", " "),
            f"{one.machines} × {one.instance_type}",
            one.provider,
            one.zone or one.region,
            _day(one.starts),
            _day(one.ends),
            "",
            "" if one.free is None else f"{one.machines - one.free} of {one.machines}",
            "provider",
            "" if one.holds_capacity else "discount only",
        ]
    for own in found.machines:
        price, place = formats.rate(own.usd_per_gpu_hour).lstrip("$"), own.zone or own.region
        gpus = f"{own.accelerator} × {own.gpus}"
        yield ["", "owned", gpus, own.provider, place, "", "", price, "", own.source, "owned machine"]


def sentence(held: RecordedCapacity) -> Text:
    """One record in one line."""
    place = f" at {held.site}" if held.site else ""
    return Text(
        f"#{held.number}: {held.kind.value}, {held.accelerator} × {held.gpus} from {held.provider}{place},"
        f" {_day(held.starts)} to {_day(held.ends)}, ${float(held.usd_per_gpu_hour):,.3f} per GPU-hour whether used"
        " or not"
    )


def checklist(found: PurchaseChecklistResult) -> Iterator[RenderableType]:
    """The steps in order, each with its command."""
    if found.sells:
        kinds = ", ".join(kind.replace("_", "-") for kind in found.sells)
        yield f"gpubroker buys at {found.provider} itself ({kinds}): gpubroker capacity quote --help"
        yield ""
    for number, step in enumerate(found.steps, 1):
        yield f"[ ] {number}. {step.what}"
        if step.command:
            yield Text(f"       {step.command}", style="dim")


def check(found: CapacityCheck) -> Iterator[Text]:
    """Each difference, the providers that failed, and a line of numbers."""
    for one in found.differences:
        named = f"{one.provider}/{one.region}  {one.order}  {one.kind.replace('_', ' ')}"
        yield Text(named, style="yellow").append(f"\n  {one.told}", style="")
    yield from (unanswered(*problem) for problem in found.problems.items())
    if found.asked:
        differ = formats.plural(len(found.differences), "difference")
        holds = formats.plural(found.listed, "reservation or commitment", "reservations and commitments")
        yield Text(f"{differ}; {', '.join(found.asked)} list{'s' if len(found.asked) == 1 else ''} {holds}")
    else:
        told = "No provider answered: this machine has no login to a provider that lists an account's capacity."
        yield Text(f"{told} `gpubroker doctor` explains how to log in.", style="yellow")


def unanswered(provider: str, problem: str) -> Text:
    """A provider that failed."""
    return Text(f"{provider} could not be queried: {problem}", style="yellow")


def _day(at: datetime | None) -> str:
    return formats.NOTHING if at is None else f"{at.astimezone(UTC):%Y-%m-%d}"
