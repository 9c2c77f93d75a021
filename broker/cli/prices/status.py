"""`gpubroker prices status`: the age of each provider's prices, and poll failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.results.prices import PolledProvider, PollOutcome, PriceStatus

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

    terminal = Terminal.of(context)
    found = _found(terminal)
    terminal.result(found, lambda: skipped_rows(found) if skipped else table(terminal.out, found))


def _found(terminal: Terminal) -> PriceStatus:
    from broker.app.results.prices import PriceStatus

    if terminal.through_server:
        return terminal.api.fetch(PriceStatus, "/prices/status")
    from broker.app.market.polling import price_status

    return price_status(terminal.broker())


_STYLES = {
    "ok": "",
    "accepted": "",
    "incomplete": "yellow",
    "suspect": "red",
    "failed": "red",
    "login_missing": "dim",
    "login_refused": "red",
    "extra_missing": "dim",
}


# Shown for a provider that returned no offers.
_NOT_ASKED = {"login_missing": "no login", "login_refused": "login refused", "extra_missing": "not installed"}


def table(console: Console, found: PriceStatus) -> Iterator[RenderableType]:
    """One row per polled provider, then the failures of last polls, and the rates of converted prices."""

    def ago(age: timedelta | None) -> str:
        return "never" if age is None else f"{formats.age(age)} ago"

    def odd(count: int) -> Text:
        return Text(f"{count:,}", style="yellow" if count else "")

    columns: tuple[ValueColumn[PolledProvider], ...] = (
        ValueColumn("provider", lambda one: one.provider),
        ValueColumn("status", lambda one: Text(one.status.replace("_", " "), style=_STYLES[one.status.value])),
        ValueColumn("last success", lambda one: ago(one.success_age_seconds), 1, "right"),
        ValueColumn("last poll", lambda one: ago(one.age_seconds), 2, "right"),
        ValueColumn("offers", lambda one: f"{one.offers:,}", align="right"),
        ValueColumn("stale", lambda one: odd(one.offers_stale), align="right"),
        ValueColumn("doubted", lambda one: odd(one.offers_doubted), 2, "right"),
        ValueColumn("changed", lambda one: f"{one.offers_changed:,}", 4, "right"),
        ValueColumn("skipped", lambda one: f"{sum(one.rows_skipped.values()):,}", 5, "right"),
        ValueColumn("max age", lambda one: formats.age(one.max_age_seconds), 3, "right"),
    )
    if found.providers:
        yield from listed(console, columns, found.providers)
    for one in found.providers:
        if one.failures:
            style, alone = _STYLES[one.status.value], one.failures[0] if len(one.failures) == 1 else ""
            yield Text.assemble((f"{one.provider}:", "bold"), (f" {alone}" if alone else "", style))
            yield from (Text(f"  {failure}", style=style) for failure in one.failures if not alone)
            yield from [Text(f"  hint: {one.hint}", style="cyan")] if one.hint else ()
    yield from converted({one.provider: one.converted for one in found.providers})
    if found.never_polled:
        yield Text(f"never polled: {', '.join(found.never_polled)}", style="dim")


def outcome(one: PollOutcome, *, hint: bool = False) -> Iterator[Text]:
    """The result of one poll. ``hint``: with its hint, which several providers often share."""
    if one.status in _NOT_ASKED and not one.offers_seen:
        counts = _NOT_ASKED[one.status]
    else:
        took = formats.length(one.seconds)
        counts = f"{formats.plural(one.offers_seen, 'offer')}, {one.offers_changed:,} changed, {took}"
    if one.rows_skipped:
        why = ", ".join(f"{count} × {reason}" for reason, count in one.rows_skipped.items())
        counts += f"; {formats.plural(sum(one.rows_skipped.values()), 'row')} skipped ({why})"
    yield Text.assemble((f"{one.provider}: ", "bold"), counts)
    yield from (Text(f"  {failure}", style="red" if one.failed else "dim") for failure in one.failures)
    if hint and one.error and one.hint:
        yield Text(f"  hint: {one.hint}", style="cyan")


def skipped_rows(found: PriceStatus) -> Iterator[RenderableType]:
    """The unusable rows of each provider's last poll: their number by reason, with samples."""
    shown = [one for one in found.providers if one.rows_skipped]
    for one in shown:
        of = formats.plural(sum(one.rows_skipped.values()), "row")
        yield Text.assemble((f"{one.provider}: ", "bold"), f"{of} skipped; {one.offers_seen:,} offers")
        for reason, count in sorted(one.rows_skipped.items(), key=lambda row: (-row[1], row[0])):
            yield Text(f"  {count:,} × {reason}")
            yield from (Text(f"    {detail}", style="dim") for detail in one.skipped_samples.get(reason, ()))
    if not shown:
        yield "The last polls skipped no rows."


def converted(rates: Mapping[str, Sequence[str]]) -> list[Text]:
    """Providers with converted prices, and the exchange rates."""
    return [Text(f"{who}: converted, {rate}", style="dim") for who, told in rates.items() for rate in told]
