"""`gpubroker prices watch`: alerts when prices, availability or the age of prices change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli import filters
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.alerts.notify import Delivery
    from broker.app.alerts.watches import Looked
    from broker.app.wiring import Broker
    from broker.core.market.watches import Watch

app = typer.Typer(no_args_is_help=True, help="Send alerts on price drops, price rises, availability and stale prices.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Watch name, as in `prices watch list`.")]


@dataclass(frozen=True)
class WatchOptions:
    """The options of `add`."""

    gpu: filters.Gpus = None
    provider: filters.Providers = None
    region: filters.Regions = None
    capacity_type: filters.CapacityTypes = None
    below: Annotated[str | None, typer.Option(metavar="USD", help="Alert when a GPU-hour costs less than this.")] = None
    rises: Annotated[
        str | None,
        typer.Option(metavar="PERCENT", help="Alert when the cheapest price rises by this much, such as 20%."),
    ] = None
    within: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --rises: the period of the rise. Default: 24h.")
    ] = None
    available: Annotated[bool, typer.Option("--available", help="Alert when a provider reports availability.")] = False
    stale: Annotated[
        str | None, typer.Option(metavar="TIME", help="Alert after this time without a successful poll.")
    ] = None
    name: Annotated[str | None, typer.Option(help="Name of the watch. Default: derived from the options.")] = None
    tell: Annotated[
        list[str] | None,
        typer.Option("--tell", "-t", metavar="TARGET", help="Recipient, by its name in the settings. Default: all."),
    ] = None
    every: Annotated[str, typer.Option(metavar="TIME", help="Minimum time between two alerts of this watch.")] = "1h"


@app.command(
    epilog=examples(
        "gpubroker prices watch add --gpu H100:8 --capacity-type spot --below '$2'",
        "gpubroker prices watch add --gpu A100-80GB --region 'us-*' --rises 20% --within 24h",
        "gpubroker prices watch add --gpu H200:8 --provider lambda --available --tell ops --every 4h",
        "gpubroker prices watch add --provider aws --stale 2h",
    )
)
@gathered
def add(context: typer.Context, given: WatchOptions, as_json: AsJson = False) -> None:
    """Add a watch with one condition: --below, --rises, --available or --stale.

    A watch sends one alert when its condition becomes true, and the next one only after the condition was false again.
    Recipients are Apprise URLs (mail, Slack, Teams, webhooks, …) in the settings: GPUBROKER_NOTIFY__OPS='slack://…'.
    `gpubroker serve` checks watches every 15 seconds; `gpubroker prices watch check` checks them now.
    """
    from rich.text import Text

    from broker.app.alerts import watches
    from broker.app.alerts.notify import HOW_TO_TELL
    from broker.app.results.watches import AddedWatch
    from broker.cli.prices import watch_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    watch = _watch(terminal, given)
    watch = _waiting_for(watch, given)
    watch = replace(watch, name=watches.name_for(broker, watch) if given.name is None else given.name)
    added = AddedWatch.of_look(watches.add(broker, watch))
    terminal.result(added, lambda: watch_view.added(added))
    if not broker.settings.notify:
        terminal.say(Text(f"warning: no recipient is configured: {HOW_TO_TELL}", style="yellow"))
    how = "`gpubroker serve` checks watches continuously; `gpubroker prices watch check` checks them once"
    terminal.say(Text(how, style="dim"))


def _watch(terminal: Terminal, given: WatchOptions) -> Watch:
    """The watch with its offers and recipients, but without its condition."""
    from broker.core.market.watches import Trigger, Watch

    broker = terminal.broker()
    machines = filters.machines(given.gpu or [])
    written = [f"{name}:{count}" for name in machines for count in sorted(machines[name])]
    return Watch(
        name="",
        trigger=Trigger.AVAILABLE,
        made_at=broker.clock.now(),
        made_by=terminal.actor.identity,
        machines=(*written, *(name for name, counts in machines.items() if not counts)),
        providers=tuple(given.provider or []),
        regions=tuple(given.region or []),
        capacity_types=filters.capacity_types(given.capacity_type or []),
        targets=tuple(dict.fromkeys(name.lower() for name in given.tell or [])),
        pause=filters.duration("--every", given.every),
    )


def _waiting_for(watch: Watch, given: WatchOptions) -> Watch:
    from broker.core.market.watches import Trigger

    conditions = {
        "--below": given.below,
        "--rises": given.rises,
        "--available": given.available or None,
        "--stale": given.stale,
    }
    named = [option for option, value in conditions.items() if value is not None]
    if len(named) != 1:
        what = f"a watch has one condition, not {' and '.join(named)}" if named else "a watch needs a condition"
        raise InvalidInput(what, hint=f"give one of {', '.join(conditions)}")
    if given.within is not None and given.rises is None:
        raise InvalidInput("needs --rises", where="--within")
    if given.below is not None:
        return replace(watch, trigger=Trigger.BELOW, price=filters.price("--below", given.below))
    if given.rises is not None:
        time = filters.duration("--within", given.within or "24h")
        return replace(watch, trigger=Trigger.RISES, part=_part("--rises", given.rises), within=time)
    if given.stale is not None:
        others = watch.machines or watch.regions or watch.capacity_types
        if others:
            raise InvalidInput(
                "a poll covers a whole provider, so only --provider can be combined with --stale", where="--stale"
            )
        return replace(watch, trigger=Trigger.STALE, age=filters.duration("--stale", given.stale))
    return watch


def _part(option: str, text: str) -> float:
    try:
        found = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        found = 0
    if not 0 < found <= 1000:  # also false for NaN
        raise InvalidInput(f"expected a rise in percent, such as 20%; got {text!r}", where=option)
    return found


@app.command("list", epilog=examples("gpubroker prices watch list", "gpubroker prices watch list --json"))
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List all watches: condition, state, and delivery of alerts."""
    from broker.app.alerts.watches import listed
    from broker.app.results.watches import WatchList
    from broker.cli.prices import watch_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    found = WatchList.of(listed(broker), broker.settings.notify, broker.clock.now())
    terminal.result(found, lambda: watch_view.table(terminal.out, found))


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
    from broker.cli.prices import watch_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    found = WatchCheckResult.of(watches.check(broker), broker.settings.notify)
    terminal.result(found, lambda: watch_view.checked(found))
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
    from broker.cli.prices import watch_view

    terminal = Terminal.of(context)
    targets = terminal.broker().settings.notify
    found = AlertTest.of(try_out(targets, [name.lower() for name in target or []]), targets)
    terminal.result(found, lambda: map(watch_view.delivery, found.deliveries))
    if not all(one.ok for one in found.deliveries):
        raise typer.Exit(5)


def told(what: Looked | Delivery, broker: Broker) -> list[Any]:
    """The lines of `gpubroker serve` about an alert or its delivery."""
    from broker.app.alerts.notify import Delivery
    from broker.app.results.watches import AlertDelivery, CheckedWatch
    from broker.cli.prices import watch_view

    if isinstance(what, Delivery):
        return [watch_view.delivery(AlertDelivery.of(what, broker.settings.notify))]
    return list(watch_view.noticed(CheckedWatch.of_look(what)))
