"""Watches as text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.alerts.notify import HOW_TO_TELL
from broker.app.results.watches import AddedWatch, AlertDelivery, CheckedWatch, WatchCheckResult, WatchList, WatchResult
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listing

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_NONE = Text("no watches; see gpubroker prices watch add --help", style="dim")


def added(watch: AddedWatch) -> Iterator[Text]:
    """The added watch and its current state."""
    yield Text.assemble("watching ", (watch.name, "bold"), f": {watch.waits_for}")
    if watch.holds_now:
        yield Text(f"  already true: {watch.now}; the first check sends an alert", style="yellow")
    else:
        yield Text(f"  now: {watch.now}", style="dim")


def table(console: Console, found: WatchList) -> Iterator[RenderableType]:
    """One row per watch, and the recipients."""
    known = {one.name for one in found.targets}

    def ago(at: datetime | None, never: str = "") -> str:
        return never if at is None else f"{formats.age(found.as_of - at)} ago"

    def delivered(one: WatchResult) -> Text:
        """Delivery of the watch's alerts: one that is still queued first, then one that was given up."""
        for alert in one.deliveries:
            if alert.next_try is None:
                continue
            if alert.target not in known:
                return Text(f"{alert.target}: no such recipient in the settings", style="red")
            wait = alert.next_try - found.as_of
            due = f"in {formats.age(wait)}" if alert.next_try > found.as_of else "at the next check"
            tried = f"tried {formats.plural(alert.tries, 'time')}, next try {due}"
            return Text(f"{alert.target}: {alert.error or 'not sent yet'}; {tried}", style="yellow")
        lost = next((alert for alert in one.deliveries if alert.status == "given_up"), None)
        if lost is not None:
            return Text(f"{lost.target}: {lost.error}", style="red")
        return Text("yes" if one.deliveries else "")

    columns: tuple[ValueColumn[WatchResult], ...] = (
        ValueColumn("name", lambda one: one.name),
        ValueColumn("condition", lambda one: one.waits_for, 3, folds=True),
        ValueColumn("state", _state, folds=True),
        ValueColumn("last check", lambda one: ago(one.checked_at, "never"), 4, "right"),
        ValueColumn("last alert", lambda one: ago(one.noticed_at), 2, "right"),
        ValueColumn("delivered", delivered, 1, folds=True),
        ValueColumn("recipients", lambda one: ", ".join(one.targets) or "all", 5),
    )
    if found.watches:
        built = listing(console, columns, found.watches)
        yield built
        for one in found.watches if "delivered" in built.hidden else ():
            if any(alert.delivered_at is None for alert in one.deliveries):
                yield Text.assemble(f"{one.name}: ", delivered(one))
    else:
        yield _NONE
    told = ", ".join(f"{one.name} ({one.address})" for one in found.targets)
    yield Text(f"recipients: {told}") if told else Text(f"no recipients: {HOW_TO_TELL}", style="yellow")


def _state(one: WatchResult) -> Text:
    if one.checked_at is None:
        return Text("not checked yet", style="dim")
    if one.holds is None:
        return Text(f"unknown: {one.seen}", style="yellow")
    return Text(f"true; {one.seen}", style="green") if one.holds else Text(f"false; {one.seen}")


def checked(found: WatchCheckResult) -> Iterator[Text]:
    """The state of each watch, one line each, and the deliveries."""
    for one in found.watches:
        if one.noticed:
            yield from noticed(one)
        else:
            yield Text.assemble((f"{one.name}: ", "bold"), _state(one))
    for sent in found.deliveries:
        yield delivery(sent)
    if not found.watches:
        yield _NONE
    elif any(one.noticed for one in found.watches) and not found.targets:
        yield Text(f"no alert was sent: {HOW_TO_TELL}", style="yellow")


def noticed(one: CheckedWatch) -> Iterator[Text]:
    """The alert of a watch."""
    yield Text.assemble((f"{one.name}: ", "bold"), (one.waits_for, "bold green"))
    yield from (Text(f"  {line}") for line in (one.seen, *one.details))


def delivery(one: AlertDelivery) -> Text:
    """The result of one delivery."""
    address = f" ({one.address})" if one.address else ""
    if one.ok:
        return Text(f"  sent to {one.target}{address}", style="green")
    again = f"; next try in {formats.length(one.next_try_in_seconds)}" if one.next_try_in_seconds else ""
    return Text(f"  not sent to {one.target}{address}: {one.error}{again}", style="red")
