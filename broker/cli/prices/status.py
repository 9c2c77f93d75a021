"""`gpubroker prices status`: the age of each provider's prices, and poll failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from rich.text import Text

    from broker.app.market.polling import ProviderStatus

EXAMPLES = examples("gpubroker prices status", "gpubroker prices status --skipped", "gpubroker prices status --json")


def status(
    context: typer.Context,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="Show the rows that the last polls could not use, by reason.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the age of each provider's prices: last poll, last successful poll, errors, and the number of stale offers
    (too old to plan with) and doubted offers (not used until accepted)."""
    from broker.app.market.polling import is_scheduled, statuses

    terminal = Terminal.of(context)
    broker = terminal.broker()
    now = broker.clock.now()
    found = statuses(broker, now)
    if as_json:
        from broker.app.results.prices import PriceStatus

        terminal.answer(PriceStatus.of(found, now, scheduled=is_scheduled(broker)))
        return
    if skipped:
        _show_skipped(terminal, found)
    else:
        _show(terminal, found, now)


def _show(terminal: Terminal, found: Sequence[ProviderStatus], now: datetime) -> None:
    from rich.text import Text

    from broker.cli.prices.poll import failures
    from broker.cli.render import formats
    from broker.cli.render.tables import Column, fitted

    columns = (
        Column("provider"),
        Column("status"),
        Column("last success", 1, align="right"),
        Column("last poll", 2, align="right"),
        Column("offers", align="right"),
        Column("stale", align="right"),
        Column("doubted", 2, align="right"),
        Column("changed", 4, align="right"),
        Column("skipped", 5, align="right"),
        Column("max age", 3, align="right"),
    )
    cells: list[list[str | Text]] = []
    for one in found:
        last, fresh = one.last, one.fresh
        if last is None or fresh is None:
            continue
        succeeded = None if fresh.last_success is None else now - fresh.last_success
        cells.append(
            [
                one.provider,
                Text(last.status.replace("_", " "), style=_STYLES[last.status.value]),
                f"{formats.age(succeeded)} ago" if succeeded is not None else "never",
                f"{formats.age(now - last.finished)} ago",
                f"{fresh.offers:,}",
                Text(f"{fresh.stale:,}", style="yellow" if fresh.stale else ""),
                Text(f"{fresh.doubted:,}", style="yellow" if fresh.doubted else ""),
                f"{last.changed:,}",
                f"{sum(last.skipped.values()):,}",
                formats.age(fresh.limit),
            ]
        )
    if cells:
        terminal.show(*fitted(terminal.out, columns, cells))
    for one in found:
        if one.last is not None and one.last.error:
            style, told = _STYLES[one.last.status.value], failures(one.provider, one.last.error)
            alone = told.pop() if len(told) == 1 else ""
            terminal.show(Text.assemble((f"{one.provider}:", "bold"), (f" {alone}" if alone else "", style)))
            terminal.show(*(Text(f"  {failure}", style=style) for failure in told))
            if one.last.hint:
                terminal.show(Text(f"  hint: {one.last.hint}", style="cyan"))
    terminal.show(*converted({one.provider: one.last.converted for one in found if one.last is not None}))
    if never := [one.provider for one in found if one.last is None]:
        terminal.show(Text(f"never polled: {', '.join(never)}", style="dim"))


def converted(rates: Mapping[str, Sequence[str]]) -> list[Text]:
    """Providers with converted prices, and the exchange rates."""
    from rich.text import Text

    return [Text(f"{who}: converted, {rate}", style="dim") for who, told in rates.items() for rate in told]


def _show_skipped(terminal: Terminal, found: Sequence[ProviderStatus]) -> None:
    """The unusable rows of each provider's last poll: their number by reason, with samples."""
    from rich.text import Text

    from broker.cli.render import formats

    any_skipped = False
    for one in found:
        if one.last is None or not one.last.skipped:
            continue
        any_skipped = True
        of = formats.plural(sum(one.last.skipped.values()), "row")
        terminal.show(Text.assemble((f"{one.provider}: ", "bold"), f"{of} skipped; {one.last.seen:,} offers"))
        for reason, count in sorted(one.last.skipped.items(), key=lambda found: (-found[1], found[0])):
            samples = one.last.samples.get(reason, ())
            terminal.show(Text(f"  {count:,} × {reason}"))
            terminal.show(*(Text(f"    {detail}", style="dim") for detail in samples))
    if not any_skipped:
        terminal.show("The last polls skipped no rows.")


_STYLES = {
    "ok": "",
    "accepted": "",
    "suspect": "red",
    "failed": "red",
    "login_missing": "dim",
    "login_refused": "red",
    "extra_missing": "dim",
}
