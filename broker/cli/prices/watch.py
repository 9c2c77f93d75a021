"""`gpubroker prices watch`: alerts when prices, availability or the age of prices change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from broker.cli import completion, filters
from broker.cli.filters import RowFilter
from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, build_table
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.alerts.notify import Delivery, NoticeResult
    from broker.app.market.watches import (
        AddedWatch,
        AlertDelivery,
        WatchEvaluation,
        WatchList,
        WatchResult,
    )
    from broker.app.wiring import Broker


from collections.abc import Iterable
from typing import TYPE_CHECKING

app = typer.Typer(no_args_is_help=True, help="Send alerts on price drops, price rises, availability and stale prices.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Watch name, as in `prices watch list`.")]


_OFFER_FILTER = RowFilter(
    provider=completion.providers, region=completion.regions, capacity_type=completion.capacity_types
)


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
    gpu: filters.GpuOption = None,
    where: Annotated[list[str] | None, _OFFER_FILTER.option] = None,
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
    `gpubroker serve` checks watches every 15 seconds; `gpubroker prices watch list --check` checks them now.
    """
    from broker.app.alerts.notify import SETUP_HINT
    from broker.app.market import watches
    from broker.app.market.offer_rows import OfferFilter
    from broker.app.market.watches import AddedWatch

    terminal = Terminal.of(context)
    offer_filter = OfferFilter.of({"gpu": gpu, **_OFFER_FILTER.read(where)}, gpus_from="--gpu")
    trigger = _parse_trigger(condition)
    broker = terminal.broker()
    watch = watches.watch_of(
        offer_filter,
        name=name or "",
        made_at=broker.clock.now(),
        made_by=terminal.actor.identity,
        targets=tuple(dict.fromkeys(target.lower() for target in tell or [])),
        pause=filters.duration_option("--every", every),
        **trigger,
    )
    watch = watch if name is not None else replace(watch, name=watches.default_name(broker, watch))
    added_watch = AddedWatch.of_look(watches.add(broker, watch))
    terminal.result(added_watch, lambda: added_lines(added_watch))
    if not broker.settings.notify:
        terminal.say(Text(f"warning: no recipient is configured: {SETUP_HINT}", style="yellow"))
    check_hint = "`gpubroker serve` checks watches continuously; `gpubroker prices watch list --check` checks them once"
    terminal.say(Text(check_hint, style="dim"))


def _parse_trigger(condition: str) -> dict[str, Any]:
    """The fields of the watch that a condition sets. Raises `InvalidInput`."""
    from broker.core.market.watches import Trigger

    kind, _, value = condition.partition("=")
    match kind:
        case "available" if not value:
            return {"trigger": Trigger.AVAILABLE}
        case "below":
            return {"trigger": Trigger.BELOW, "price": filters.price_option("below", value)}
        case "rises":
            percent, _, time = value.partition("/")
            return {
                "trigger": Trigger.RISES,
                "part": _parse_rise(percent),
                "within": filters.duration_option("rises", time or "24h"),
            }
        case "stale":
            return {"trigger": Trigger.STALE, "age": filters.duration_option("stale", value)}
    raise InvalidInput(
        f"expected below=USD, rises=PERCENT/TIME, available or stale=TIME; got {condition!r}", where="CONDITION"
    )


def _parse_rise(text: str) -> float:
    try:
        rise = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        rise = 0
    if not 0 < rise <= 1000:  # also false for NaN
        raise InvalidInput(f"expected a rise in percent, such as rises=20%/24h; got {text!r}", where="rises")
    return rise


@app.command("list", epilog=examples("gpubroker prices watch list", "gpubroker prices watch list --check --json"))
def list_(
    context: typer.Context,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check them now and send due alerts; exit code 5 if a delivery failed."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List all watches: condition, state, and delivery of alerts."""
    from broker.app.market import watches

    terminal = Terminal.of(context)
    broker = terminal.broker()
    watch_list = watches.list_watches(broker, watches.check(broker).deliveries if check else ())
    terminal.result(watch_list, lambda: watch_lines(terminal.out, watch_list))
    if not all(delivery.ok for delivery in watch_list.deliveries):
        raise typer.Exit(5)


@app.command(epilog=examples("gpubroker prices watch remove h100-8-spot-below-2.00"))
def remove(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Delete a watch. Queued alerts are still sent."""
    from broker.app.market import watches
    from broker.app.market.watches import RemovedWatch

    terminal = Terminal.of(context)
    watches.remove(terminal.broker(), name)
    terminal.result(RemovedWatch(removed=name), lambda: [f"removed {name}"])


def alert_lines(event: WatchEvaluation | Delivery, broker: Broker) -> list[Any]:
    """The lines of `gpubroker serve` about an alert or its delivery."""
    from broker.app.alerts.notify import Delivery
    from broker.app.market.watches import AlertDelivery

    if isinstance(event, Delivery):
        return [delivery_text(AlertDelivery.of(event, broker.settings.notify))]
    heading = Text.assemble((f"{event.watch.name}: ", "bold"), (event.watch.sentence, "bold green"))
    return [heading, *(Text(f"  {line}") for line in (event.state.seen, *event.seen.details))]


def added_lines(watch: AddedWatch) -> Iterator[Text]:
    """The added watch and its current state."""
    yield Text.assemble("watching ", (watch.name, "bold"), f": {watch.waits_for}")
    if watch.holds_now:
        yield Text(f"  already true: {watch.now}; the first check sends an alert", style="yellow")
    else:
        yield Text(f"  now: {watch.now}", style="dim")


def watch_lines(console: Console, watch_list: WatchList) -> Iterator[RenderableType]:
    """One row per watch, the deliveries of alerts, and the recipients."""
    from broker.app.alerts.notify import SETUP_HINT

    target_names = {watch.name for watch in watch_list.targets}

    def ago(at: datetime | None, never: str = "") -> str:
        return never if at is None else f"{formats.age(watch_list.as_of - at)} ago"

    def delivered(watch: WatchResult) -> Text:
        """Delivery of the watch's alerts: one that is still queued first, then one that was given up."""
        for alert in watch.deliveries:
            if alert.next_try is None:
                continue
            if alert.target not in target_names:
                return Text(f"{alert.target}: no such recipient in the settings", style="red")
            wait = alert.next_try - watch_list.as_of
            due_text = f"in {formats.age(wait)}" if alert.next_try > watch_list.as_of else "at the next check"
            tries_text = f"tried {formats.plural(alert.tries, 'time')}, next try {due_text}"
            return Text(f"{alert.target}: {alert.error or 'not sent yet'}; {tries_text}", style="yellow")
        given_up = next((alert for alert in watch.deliveries if alert.status == "given_up"), None)
        if given_up is not None:
            return Text(f"{given_up.target}: {given_up.error}", style="red")
        return Text("yes" if watch.deliveries else "")

    columns: tuple[ValueColumn[WatchResult], ...] = (
        ValueColumn("name", lambda row: row.name),
        ValueColumn("condition", lambda row: row.waits_for, 3, folds=True),
        ValueColumn("state", _state_text, folds=True),
        ValueColumn("last check", lambda row: ago(row.checked_at, "never"), 4, "right"),
        ValueColumn("last alert", lambda row: ago(row.noticed_at), 2, "right"),
        ValueColumn("delivered", delivered, 1, folds=True),
        ValueColumn("recipients", lambda row: ", ".join(row.targets) or "all", 5),
    )
    if watch_list.watches:
        watch_table = build_table(console, columns, watch_list.watches)
        yield watch_table
        for watch in watch_list.watches if "delivered" in watch_table.hidden else ():
            if any(alert.delivered_at is None for alert in watch.deliveries):
                yield Text.assemble(f"{watch.name}: ", delivered(watch))
    else:
        yield Text("no watches; see gpubroker prices watch add --help", style="dim")
    yield from map(delivery_text, watch_list.deliveries)
    recipients_text = ", ".join(f"{watch.name} ({watch.address})" for watch in watch_list.targets)
    yield (
        Text(f"recipients: {recipients_text}")
        if recipients_text
        else Text(f"no recipients: {SETUP_HINT}", style="yellow")
    )


def _state_text(watch: WatchResult) -> Text:
    if watch.checked_at is None:
        return Text("not checked yet", style="dim")
    if watch.holds is None:
        return Text(f"unknown: {watch.seen}", style="yellow")
    return Text(f"true; {watch.seen}", style="green") if watch.holds else Text(f"false; {watch.seen}")


def delivery_text(alert_delivery: AlertDelivery) -> Text:
    """The result of one delivery."""
    address = f" ({alert_delivery.address})" if alert_delivery.address else ""
    if alert_delivery.ok:
        return Text(f"  sent to {alert_delivery.target}{address}", style="green")
    retry_text = (
        f"; next try in {formats.length(alert_delivery.next_try_in_seconds)}"
        if alert_delivery.next_try_in_seconds
        else ""
    )
    return Text(f"  not sent to {alert_delivery.target}{address}: {alert_delivery.error}{retry_text}", style="red")


def notice_text(notice: NoticeResult) -> str:
    """The delivery state of one alert to one recipient."""
    if notice.delivered_at is not None:
        return f"sent to {notice.target} on {formats.moment(notice.delivered_at)}: {notice.title}"
    if notice.next_try is None:
        return f"never sent to {notice.target}: {notice.title} ({notice.error})"
    error_note = f" ({notice.error})" if notice.error else ""
    return f"not yet sent to {notice.target}, tried {formats.plural(notice.tries, 'time')}{error_note}: {notice.title}"


def deliveries_text(made_deliveries: Iterable[Delivery]) -> str:
    """The deliveries just made: ``sent to ops``; ``not yet sent to ops (…), will be retried``."""
    return "; ".join(
        f"not yet sent to {delivery.target} ({delivery.error}), will be retried"
        if delivery.error
        else f"sent to {delivery.target}"
        for delivery in made_deliveries
    )
