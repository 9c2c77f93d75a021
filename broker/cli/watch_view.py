"""Watches on the screen and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from broker.app import notify
from broker.app.watches import Checked, Listed, Looked
from broker.cli import words
from broker.cli.tables import Column, fitting, left_out
from broker.core.watches import Watch, WatchState

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.wiring import Broker
    from broker.store.outbox import Dispatch

HOW_TO_TELL = "set GPUBROKER_NOTIFY__<NAME> to an address as Apprise writes it, such as slack://… or mailto://…"


def added(looked: Looked) -> list[RenderableType]:
    """What was added, and how it stands."""
    lines = [Text.assemble("watching ", (looked.watch.name, "bold"), f": {looked.watch.sentence}")]
    if looked.seen.holds:
        lines.append(Text(f"  it is so already: {looked.seen.words}; the first look will tell", style="yellow"))
    else:
        lines.append(Text(f"  now {looked.seen.words}", style="dim"))
    return [*lines]


def warnings(broker: Broker, watch: Watch) -> list[Text]:
    """What keeps anybody from being told."""
    found = []
    if not broker.settings.notify:
        found.append(f"warning: nobody is told yet: {HOW_TO_TELL}")
    for name in watch.targets:
        if name not in broker.settings.notify:
            found.append(f"warning: the settings have no target {name!r}: set {notify.variable(name)}")
    found.append("looks are taken by `gpubroker serve`, or by `gpubroker prices watch check` when you say")
    return [Text(line, style="yellow" if line.startswith("warning") else "dim") for line in found]


def table(console: Console, found: Sequence[Listed], broker: Broker) -> list[RenderableType]:
    """One row a watch, and who is told."""
    now = broker.clock.now()
    targets = broker.settings.notify
    told = ", ".join(f"{name} ({notify.shown(address)})" for name, address in targets.items())
    below = [Text(f"told: {told}" if told else f"nobody is told: {HOW_TO_TELL}", style="" if told else "yellow")]
    if not found:
        return [Text("no watches; add one: gpubroker prices watch add --help", style="dim"), *below]
    columns = (
        Column("name"),
        Column("waits for", 3, folds=True),
        Column("stands", folds=True),
        Column("looked", 4, align="right"),
        Column("last notice", 2, align="right"),
        Column("delivered", 1, folds=True),
        Column("tells", 5),
    )
    built, hidden = fitting(console, columns, [_cells(one, targets, now) for one in found])
    trouble = [
        Text.assemble(f"{one.watch.name}: ", _delivered(one.dispatches, targets, now))
        for one in found
        if "delivered" in hidden and any(it.delivered_at is None for it in one.dispatches)
    ]
    return [built, *trouble, *(Text(line, style="dim") for line in [left_out(hidden)] if line), *below]


def _cells(one: Listed, targets: notify.Targets, now: datetime) -> list[str | Text]:
    watch, state = one.watch, one.state
    return [
        watch.name,
        watch.sentence,
        _stand(state),
        "never" if state.checked_at is None else f"{words.age(now - state.checked_at)} ago",
        "" if state.noticed_at is None else f"{words.age(now - state.noticed_at)} ago",
        _delivered(one.dispatches, targets, now),
        ", ".join(watch.targets) or "all",
    ]


def _stand(state: WatchState) -> Text:
    if state.checked_at is None:
        return Text("not looked at yet", style="dim")
    if not state.known:
        return Text(f"cannot be told: {state.seen}", style="yellow")
    return Text(f"it is so; {state.seen}", style="green") if state.firing else Text(f"not so; {state.seen}")


def _delivered(dispatches: Sequence[Dispatch], targets: notify.Targets, now: datetime) -> Text:
    """Whether its notices arrived: one that is waiting first, then one that was given up."""
    for one in dispatches:
        if one.next_try is None:
            continue
        if one.target not in targets:
            return Text(f"{one.target}: the settings have no such target", style="red")
        due = f"in {words.age(one.next_try - now)}" if one.next_try > now else "at the next look"
        why = one.error or "not sent yet"
        return Text(f"{one.target}: {why}; tried {words.plural(one.tries, 'time')}, again {due}", style="yellow")
    lost = next((one for one in dispatches if one.given_up), None)
    if lost is not None:
        return Text(f"{lost.target}: {lost.error}", style="red")
    return Text("yes" if dispatches else "")


def checked(found: Checked, broker: Broker) -> list[RenderableType]:
    """What was seen, one line a watch, and what was sent."""
    if not found.looked:
        return [Text("no watches; add one: gpubroker prices watch add --help", style="dim")]
    lines: list[RenderableType] = []
    for one in found.looked:
        if one.notice is not None:
            lines += noticed(one)
        else:
            lines.append(Text.assemble((f"{one.watch.name}: ", "bold"), _stand(one.state)))
    for delivered in found.deliveries:
        lines += delivery(delivered, broker.settings.notify)
    if any(one.notice is not None for one in found.looked) and not broker.settings.notify:
        lines.append(Text(f"nobody was told: {HOW_TO_TELL}", style="yellow"))
    return lines


def noticed(one: Looked) -> list[RenderableType]:
    """That a watch has something to tell."""
    return [
        Text.assemble((f"{one.watch.name}: ", "bold"), (one.watch.sentence, "bold green")),
        *(Text(f"  {line}") for line in (one.seen.words, *one.seen.details)),
    ]


def delivery(one: notify.Delivery, targets: notify.Targets) -> list[RenderableType]:
    """Whether one was told."""
    address = f" ({notify.shown(targets[one.target])})" if one.target in targets else ""
    if one.ok:
        return [Text(f"  told {one.target}{address}", style="green")]
    again = f"; tried again in {words.length(one.next_try_in)}" if one.next_try_in else ""
    return [Text(f"  could not tell {one.target}{address}: {one.error}{again}", style="red")]


def checked_json(found: Checked) -> dict[str, Any]:
    """The document of a look."""
    looked = [
        watch_json(one.watch, one.state, ())
        | {"noticed": one.notice is not None, "details": list(one.seen.details) if one.notice else []}
        for one in found.looked
    ]
    return {"watches": looked, "deliveries": [delivery_json(one) for one in found.deliveries]}


def watch_json(watch: Watch, state: WatchState, dispatches: Sequence[Dispatch]) -> dict[str, Any]:
    """A watch, where it stands, and its notices."""
    return {
        "name": watch.name,
        "waits_for": watch.sentence,
        "trigger": watch.trigger,
        "machines": watch.machines,
        "providers": watch.providers,
        "regions": watch.regions,
        "capacity_types": watch.capacity_types,
        "price_per_gpu_hour": watch.price,
        "rises_by": watch.part,
        "within_seconds": watch.within,
        "stale_after_seconds": watch.age,
        "targets": watch.targets,
        "pause_seconds": watch.pause,
        "made_at": watch.made_at,
        "made_by": watch.made_by,
        "holds": bool(state.firing) if state.known else None,
        "holds_for": [name for name in state.firing if name],
        "seen": state.seen,
        "since": state.since,
        "checked_at": state.checked_at,
        "noticed_at": state.noticed_at,
        "notices": state.number,
        "deliveries": [_dispatch_json(one) for one in dispatches],
    }


def _dispatch_json(one: Dispatch) -> dict[str, Any]:
    status = "delivered" if one.delivered_at else "given_up" if one.given_up else "waiting"
    return {
        "target": one.target,
        "status": status,
        "made_at": one.made_at,
        "delivered_at": one.delivered_at,
        "tries": one.tries,
        "next_try": one.next_try,
        "error": one.error,
    }


def delivery_json(one: notify.Delivery) -> dict[str, Any]:
    """One try to tell somebody."""
    return {
        "target": one.target,
        "ok": one.ok,
        "title": one.title,
        "error": one.error,
        "next_try_in_seconds": one.next_try_in,
    }


def targets_json(broker: Broker) -> list[dict[str, str]]:
    """Who is told, without what must not be shown."""
    found = broker.settings.notify.items()
    return [{"name": name, "address": notify.shown(it), "setting": notify.variable(name)} for name, it in found]
