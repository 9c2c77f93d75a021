"""`gpubroker prices watch`: alerts when prices, availability or the age of prices change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from broker.cli import completion, filters
from broker.cli.filters import RowFilter
from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listing
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.alerts.notify import Delivery
    from broker.app.alerts.watches import Looked
    from broker.app.results.watches import (
        AddedWatch,
        AlertDelivery,
        CheckedWatch,
        WatchCheckResult,
        WatchList,
        WatchResult,
    )
    from broker.app.wiring import Broker

app = typer.Typer(no_args_is_help=True, help="Send alerts on price drops, price rises, availability and stale prices.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Watch name, as in `prices watch list`.")]


_OFFERS = RowFilter(provider=completion.providers, region=completion.regions, capacity_type=completion.capacity_types)


@app.command(
    epilog=examples(
        "gpubroker prices watch add 'below=$2' --gpu H100:8 --where capacity_type=spot",
        "gpubroker prices watch add rises=20%/24h --gpu A100-80GB --where 'region=us-*'",
        "gpubroker prices watch add available --gpu H200:8 --where provider=lambda --tell ops --every 4h",
        "gpubroker prices watch add stale=2h --where provider=aws",
    )
)
def add(
    context: typer.Context,
    condition: Annotated[
        str,
        typer.Argument(
            metavar="CONDITION",
            help="below=USD (of a GPU-hour), rises=PERCENT/TIME (of the cheapest price), available, or stale=TIME"
            " (without a successful poll).",
        ),
    ],
    gpu: filters.Gpus = None,
    where: Annotated[list[str] | None, _OFFERS.option] = None,
    name: Annotated[str | None, typer.Option(help="Name of the watch. Default: derived from the condition.")] = None,
    tell: Annotated[
        list[str] | None,
        typer.Option("--tell", "-t", metavar="TARGET", help="Recipient, by its name in the settings. Default: all."),
    ] = None,
    every: Annotated[str, typer.Option(metavar="TIME", help="Minimum time between two alerts of this watch.")] = "1h",
    as_json: AsJson = False,
) -> None:
    """Add a watch: an alert when its condition becomes true, and again only after it has become false in between.

    Recipients are Apprise URLs (mail, Slack, Teams, webhooks, …) in the settings: GPUBROKER_NOTIFY__OPS='slack://…'.
    `gpubroker serve` checks watches every 15 seconds; `gpubroker prices watch check` checks them now.
    """
    from rich.text import Text

    from broker.app.alerts import watches
    from broker.app.alerts.notify import HOW_TO_TELL
    from broker.app.market.offer_rows import OfferFilter
    from broker.app.results.watches import AddedWatch
    from broker.core.market.watches import Watch

    terminal = Terminal.of(context)
    wanted = OfferFilter.of({"gpu": gpu, **_OFFERS.read(where)}, gpus_from="--gpu")
    trigger = _trigger(condition)
    broker = terminal.broker()
    written = [f"{machine}:{count}" for machine, counts in wanted.counts.items() for count in sorted(counts)]
    watch = Watch(
        name=name or "",
        made_at=broker.clock.now(),
        made_by=terminal.actor.identity,
        machines=(*written, *(machine for machine, counts in wanted.counts.items() if not counts)),
        providers=wanted.providers,
        regions=wanted.regions,
        capacity_types=tuple(sorted(wanted.capacity_types)),
        targets=tuple(dict.fromkeys(target.lower() for target in tell or [])),
        pause=filters.duration("--every", every),
        **trigger,
    )
    if watch.age is not None and (watch.machines or watch.regions or watch.capacity_types):
        raise InvalidInput(
            "a poll covers a whole provider, so only `--where provider=…` can be combined with stale", where="CONDITION"
        )
    watch = watch if name is not None else replace(watch, name=watches.name_for(broker, watch))
    found = AddedWatch.of_look(watches.add(broker, watch))
    terminal.result(found, lambda: added(found))
    if not broker.settings.notify:
        terminal.say(Text(f"warning: no recipient is configured: {HOW_TO_TELL}", style="yellow"))
    how = "`gpubroker serve` checks watches continuously; `gpubroker prices watch check` checks them once"
    terminal.say(Text(how, style="dim"))


def _trigger(condition: str) -> dict[str, Any]:
    """The fields of the watch that a condition sets. Raises `InvalidInput`."""
    from broker.core.market.watches import Trigger

    kind, _, value = condition.partition("=")
    match kind:
        case "available" if not value:
            return {"trigger": Trigger.AVAILABLE}
        case "below":
            return {"trigger": Trigger.BELOW, "price": filters.price("below", value)}
        case "rises":
            percent, _, time = value.partition("/")
            return {
                "trigger": Trigger.RISES,
                "part": _part(percent),
                "within": filters.duration("rises", time or "24h"),
            }
        case "stale":
            return {"trigger": Trigger.STALE, "age": filters.duration("stale", value)}
    raise InvalidInput(
        f"expected below=USD, rises=PERCENT/TIME, available or stale=TIME; got {condition!r}", where="CONDITION"
    )


def _part(text: str) -> float:
    try:
        found = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        found = 0
    if not 0 < found <= 1000:  # also false for NaN
        raise InvalidInput(f"expected a rise in percent, such as rises=20%/24h; got {text!r}", where="rises")
    return found


@app.command("list", epilog=examples("gpubroker prices watch list", "gpubroker prices watch list --json"))
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List all watches: condition, state, and delivery of alerts."""
    from broker.app.alerts.watches import listed
    from broker.app.results.watches import WatchList

    terminal = Terminal.of(context)
    broker = terminal.broker()
    found = WatchList.of(listed(broker), broker.settings.notify, broker.clock.now())
    terminal.result(found, lambda: table(terminal.out, found))


@app.command(epilog=examples("gpubroker prices watch remove h100-8-spot-below-2.00"))
def remove(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Delete a watch. Queued alerts are still sent."""
    from broker.app.alerts import watches
    from broker.app.results.watches import RemovedWatch

    terminal = Terminal.of(context)
    watches.remove(terminal.broker(), name)
    terminal.result(RemovedWatch(removed=name), lambda: [f"removed {name}"])


@app.command(epilog=examples("gpubroker prices watch check", "gpubroker prices watch check --json"))
def check(context: typer.Context, as_json: AsJson = False) -> None:
    """Check all watches now and send the alerts that are due. Exits with 5 if a delivery failed."""
    from broker.app.alerts import watches
    from broker.app.results.watches import WatchCheckResult

    terminal = Terminal.of(context)
    broker = terminal.broker()
    found = WatchCheckResult.of(watches.check(broker), broker.settings.notify)
    terminal.result(found, lambda: checked(found))
    if not all(delivery.ok for delivery in found.deliveries):
        raise typer.Exit(5)


@app.command("test", epilog=examples("gpubroker prices watch test", "gpubroker prices watch test ops --json"))
def trial(
    context: typer.Context,
    target: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET...", help="Recipients, by name in the settings. Default: all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send a test alert and report its delivery. Exits with 5 if a delivery failed."""
    from broker.app.alerts.notify import try_out
    from broker.app.results.watches import AlertTest

    terminal = Terminal.of(context)
    targets = terminal.broker().settings.notify
    found = AlertTest.of(try_out(targets, [name.lower() for name in target or []]), targets)
    terminal.result(found, lambda: map(delivery, found.deliveries))
    if not all(one.ok for one in found.deliveries):
        raise typer.Exit(5)


def told(what: Looked | Delivery, broker: Broker) -> list[Any]:
    """The lines of `gpubroker serve` about an alert or its delivery."""
    from broker.app.alerts.notify import Delivery
    from broker.app.results.watches import AlertDelivery, CheckedWatch

    if isinstance(what, Delivery):
        return [delivery(AlertDelivery.of(what, broker.settings.notify))]
    return list(noticed(CheckedWatch.of_look(what)))


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
    from broker.app.alerts.notify import HOW_TO_TELL

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
    from broker.app.alerts.notify import HOW_TO_TELL

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
