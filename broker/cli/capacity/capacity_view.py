"""Capacity as a table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.capacity.capacity import CapacityInventory
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted
from broker.economics.reserve.holdings import RecordedHolding

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def table(console: Console, found: CapacityInventory) -> list[RenderableType]:
    """Recorded capacity, capacity reported by providers, and owned machines; then the providers that failed."""
    columns = (
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
    rows = [*_recorded(found), *_reported(found), *_machines(found)]
    shown: list[RenderableType] = []
    if rows:
        shown += fitted(console, columns, rows)
    else:
        shown.append("No capacity: none recorded, none reported by providers, no owned machines with GPUs.")
        shown.append(Text("gpubroker capacity add --help", style="dim"))
    if found.asked:
        shown.append(Text(f"queried: {', '.join(found.asked)}", style="dim"))
    shown += [Text(f"{name} could not be queried: {problem}", style="yellow") for name, problem in found.problems]
    return shown


def _recorded(found: CapacityInventory) -> list[list[str | Text]]:
    rows: list[list[str | Text]] = []
    for recorded in found.recorded:
        held = recorded.holding
        over = held.ends <= found.now
        ends = Text(f"{_day(held.ends)} (ended)", style="yellow") if over else Text(_day(held.ends))
        rows.append(
            [
                str(recorded.number),
                held.kind.value,
                f"{held.accelerator} × {held.gpus}",
                held.provider,
                held.site,
                _day(held.starts),
                ends,
                f"{held.usd_per_gpu_hour:,.3f}",
                "",
                f"recorded by {recorded.added_by}",
                " ".join(filter(None, (held.order_id, held.note, "(proof kept)" if held.proof else ""))),
            ]
        )
    return rows


def _reported(found: CapacityInventory) -> list[list[str | Text]]:
    return [
        [
            "",
            held.kind.replace("_", " "),
            f"{held.machines} × {held.instance_type}",
            held.provider,
            held.zone or held.region,
            _day(held.starts),
            _day(held.ends),
            "",
            "" if held.free is None else f"{held.machines - held.free} of {held.machines}",
            "provider",
            "" if held.holds_capacity else "discount only",
        ]
        for held in found.reported
    ]


def _machines(found: CapacityInventory) -> list[list[str | Text]]:
    return [
        [
            "",
            "owned",
            f"{offer.accelerator} × {offer.count * (offer.slots or 1)}",
            offer.provider,
            offer.zone or offer.region,
            "",
            "",
            formats.rate(offer.amortised.share(1, offer.count) if offer.amortised else None).lstrip("$"),
            "",
            offer.source,
            "owned machine",
        ]
        for offer in found.machines
    ]


def sentence(recorded: RecordedHolding) -> Text:
    """One record in one line."""
    held = recorded.holding
    place = f" at {held.site}" if held.site else ""
    return Text(
        f"#{recorded.number}: {held.kind.value}, {held.accelerator} × {held.gpus} from {held.provider}{place},"
        f" {_day(held.starts)} to {_day(held.ends)}, ${held.usd_per_gpu_hour:,.3f} per GPU-hour whether used or not"
    )


def _day(at: datetime | None) -> str:
    return formats.NOTHING if at is None else f"{at.astimezone(UTC):%Y-%m-%d}"
