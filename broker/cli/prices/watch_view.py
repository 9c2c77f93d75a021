"""Watches as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.alerts import notify
from broker.app.alerts.watches import Listed, Looked, WatchCheck
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitting
from broker.core.market.watches import Watch, WatchState

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.wiring import Broker
    from broker.store.outbox import Dispatch

HOW_TO_TELL = "set GPUBROKER_NOTIFY__<NAME> to an Apprise URL, such as slack://… or mailto://…"


def added(looked: Looked) -> list[RenderableType]:
    """The added watch and its current state."""
    lines = [Text.assemble("watching ", (looked.watch.name, "bold"), f": {looked.watch.sentence}")]
    if looked.seen.holds:
        lines.append(Text(f"  already true: {looked.seen.words}; the first check sends an alert", style="yellow"))
    else:
        lines.append(Text(f"  now: {looked.seen.words}", style="dim"))
    return [*lines]


def warnings(broker: Broker, watch: Watch) -> list[Text]:
    """Obstacles to the delivery of alerts, and how watches are checked."""
    found = []
    if not broker.settings.notify:
        found.append(f"warning: no recipient is configured: {HOW_TO_TELL}")
    for name in watch.targets:
        if name not in broker.settings.notify:
            found.append(f"warning: the settings have no recipient {name!r}: set {notify.variable(name)}")
    found.append("`gpubroker serve` checks watches continuously; `gpubroker prices watch check` checks them once")
    return [Text(line, style="yellow" if line.startswith("warning") else "dim") for line in found]


def table(console: Console, found: Sequence[Listed], broker: Broker) -> list[RenderableType]:
    """One row per watch, and the recipients."""
    now = broker.clock.now()
    targets = broker.settings.notify
    told = ", ".join(f"{name} ({notify.shown(address)})" for name, address in targets.items())
    below = [Text(f"recipients: {told}" if told else f"no recipients: {HOW_TO_TELL}", style="" if told else "yellow")]
    if not found:
        return [Text("no watches; see gpubroker prices watch add --help", style="dim"), *below]
    columns = (
        Column("name"),
        Column("condition", 3, folds=True),
        Column("state", folds=True),
        Column("last check", 4, align="right"),
        Column("last alert", 2, align="right"),
        Column("delivered", 1, folds=True),
        Column("recipients", 5),
    )
    built = fitting(console, columns, [_cells(one, targets, now) for one in found])
    trouble = [
        Text.assemble(f"{one.watch.name}: ", _delivered(one.dispatches, targets, now))
        for one in found
        if "delivered" in built.hidden and any(it.delivered_at is None for it in one.dispatches)
    ]
    return [built, *trouble, *below]


def _cells(one: Listed, targets: notify.Targets, now: datetime) -> list[str | Text]:
    watch, state = one.watch, one.state
    return [
        watch.name,
        watch.sentence,
        _stand(state),
        "never" if state.checked_at is None else f"{formats.age(now - state.checked_at)} ago",
        "" if state.noticed_at is None else f"{formats.age(now - state.noticed_at)} ago",
        _delivered(one.dispatches, targets, now),
        ", ".join(watch.targets) or "all",
    ]


def _stand(state: WatchState) -> Text:
    if state.checked_at is None:
        return Text("not checked yet", style="dim")
    if not state.known:
        return Text(f"unknown: {state.seen}", style="yellow")
    return Text(f"true; {state.seen}", style="green") if state.firing else Text(f"false; {state.seen}")


def _delivered(dispatches: Sequence[Dispatch], targets: notify.Targets, now: datetime) -> Text:
    """Delivery of the watch's alerts: one that is still queued first, then one that was given up."""
    for one in dispatches:
        if one.next_try is None:
            continue
        if one.target not in targets:
            return Text(f"{one.target}: no such recipient in the settings", style="red")
        due = f"in {formats.age(one.next_try - now)}" if one.next_try > now else "at the next check"
        why = one.error or "not sent yet"
        return Text(f"{one.target}: {why}; tried {formats.plural(one.tries, 'time')}, next try {due}", style="yellow")
    lost = next((one for one in dispatches if one.given_up), None)
    if lost is not None:
        return Text(f"{lost.target}: {lost.error}", style="red")
    return Text("yes" if dispatches else "")


def checked(found: WatchCheck, broker: Broker) -> list[RenderableType]:
    """The state of each watch, one line each, and the deliveries."""
    if not found.looked:
        return [Text("no watches; see gpubroker prices watch add --help", style="dim")]
    lines: list[RenderableType] = []
    for one in found.looked:
        if one.notice is not None:
            lines += noticed(one)
        else:
            lines.append(Text.assemble((f"{one.watch.name}: ", "bold"), _stand(one.state)))
    for delivered in found.deliveries:
        lines += delivery(delivered, broker.settings.notify)
    if any(one.notice is not None for one in found.looked) and not broker.settings.notify:
        lines.append(Text(f"no alert was sent: {HOW_TO_TELL}", style="yellow"))
    return lines


def noticed(one: Looked) -> list[RenderableType]:
    """The alert of a watch."""
    return [
        Text.assemble((f"{one.watch.name}: ", "bold"), (one.watch.sentence, "bold green")),
        *(Text(f"  {line}") for line in (one.seen.words, *one.seen.details)),
    ]


def delivery(one: notify.Delivery, targets: notify.Targets) -> list[RenderableType]:
    """The result of one delivery."""
    address = f" ({notify.shown(targets[one.target])})" if one.target in targets else ""
    if one.ok:
        return [Text(f"  sent to {one.target}{address}", style="green")]
    again = f"; next try in {formats.length(one.next_try_in)}" if one.next_try_in else ""
    return [Text(f"  not sent to {one.target}{address}: {one.error}{again}", style="red")]
