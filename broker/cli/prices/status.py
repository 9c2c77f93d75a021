"""`gpubroker prices status`: the age of each provider's prices, and poll failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, table_parts
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.app.market.price_documents import PolledProvider, PollOutcome, PriceStatus

EXAMPLES = examples("gpubroker prices status", "gpubroker prices status --skipped", "gpubroker prices status --json")


def status(
    context: typer.Context,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="Show the rows that the last polls could not use, by reason.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the age of each provider's prices: last poll, last successful poll, errors, and the number of stale offers
    (too old to plan with) and suspicious offers (not used until accepted)."""
    from broker.app.use_cases.market import price_status as use_case

    terminal = Terminal.of(context)
    price_status = terminal.ask(use_case)
    terminal.result(
        price_status, lambda: skipped_row_lines(price_status) if skipped else status_lines(terminal.out, price_status)
    )


_STATUS_STYLES = {
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
_NOT_ASKED_TEXTS = {"login_missing": "no login", "login_refused": "login refused", "extra_missing": "not installed"}


def status_lines(console: Console, price_status: PriceStatus) -> Iterator[RenderableType]:
    """One row per polled provider, then the failures of last polls, and the rates of converted prices."""

    def ago(age: timedelta | None) -> str:
        return "never" if age is None else f"{formats.age(age)} ago"

    def odd(count: int) -> Text:
        return Text(f"{count:,}", style="yellow" if count else "")

    columns: tuple[ValueColumn[PolledProvider], ...] = (
        ValueColumn("provider", lambda row: row.provider),
        ValueColumn("status", lambda row: Text(row.status.replace("_", " "), style=_STATUS_STYLES[row.status.value])),
        ValueColumn("last success", lambda row: ago(row.success_age_seconds), 1, "right"),
        ValueColumn("last poll", lambda row: ago(row.age_seconds), 2, "right"),
        ValueColumn("offers", lambda row: f"{row.offers:,}", align="right"),
        ValueColumn("stale", lambda row: odd(row.offers_stale), align="right"),
        ValueColumn("suspicious", lambda row: odd(row.offers_suspicious), 2, "right"),
        ValueColumn("changed", lambda row: f"{row.offers_changed:,}", 4, "right"),
        ValueColumn("skipped", lambda row: f"{sum(row.rows_skipped.values()):,}", 5, "right"),
        ValueColumn("max age", lambda row: formats.age(row.max_age_seconds), 3, "right"),
    )
    if price_status.providers:
        yield from table_parts(console, columns, price_status.providers)
    for provider in price_status.providers:
        if provider.failures:
            style, single_failure = (
                _STATUS_STYLES[provider.status.value],
                provider.failures[0] if len(provider.failures) == 1 else "",
            )
            yield Text.assemble(
                (f"{provider.provider}:", "bold"), (f" {single_failure}" if single_failure else "", style)
            )
            yield from (Text(f"  {failure}", style=style) for failure in provider.failures if not single_failure)
            yield from [Text(f"  hint: {provider.hint}", style="cyan")] if provider.hint else ()
    yield from conversion_notes({provider.provider: provider.converted for provider in price_status.providers})
    if price_status.never_polled:
        yield Text(f"never polled: {', '.join(price_status.never_polled)}", style="dim")


def poll_outcome_lines(poll: PollOutcome, *, hint: bool = False) -> Iterator[Text]:
    """The result of one poll. ``hint``: with its hint, which several providers often share."""
    if poll.status in _NOT_ASKED_TEXTS and not poll.offers_seen:
        counts = _NOT_ASKED_TEXTS[poll.status]
    else:
        duration_text = formats.length(poll.seconds)
        counts = f"{formats.plural(poll.offers_seen, 'offer')}, {poll.offers_changed:,} changed, {duration_text}"
    if poll.rows_skipped:
        reasons_text = ", ".join(f"{count} × {reason}" for reason, count in poll.rows_skipped.items())
        counts += f"; {formats.plural(sum(poll.rows_skipped.values()), 'row')} skipped ({reasons_text})"
    yield Text.assemble((f"{poll.provider}: ", "bold"), counts)
    yield from (Text(f"  {failure}", style="red" if poll.failed else "dim") for failure in poll.failures)
    if hint and poll.error and poll.hint:
        yield Text(f"  hint: {poll.hint}", style="cyan")


def skipped_row_lines(price_status: PriceStatus) -> Iterator[RenderableType]:
    """The unusable rows of each provider's last poll: their number by reason, with samples."""
    providers = [provider for provider in price_status.providers if provider.rows_skipped]
    for provider in providers:
        row_count_text = formats.plural(sum(provider.rows_skipped.values()), "row")
        yield Text.assemble(
            (f"{provider.provider}: ", "bold"), f"{row_count_text} skipped; {provider.offers_seen:,} offers"
        )
        for reason, count in sorted(provider.rows_skipped.items(), key=lambda row: (-row[1], row[0])):
            yield Text(f"  {count:,} × {reason}")
            yield from (Text(f"    {detail}", style="dim") for detail in provider.skipped_samples.get(reason, ()))
    if not providers:
        yield "The last polls skipped no rows."


def conversion_notes(rates: Mapping[str, Sequence[str]]) -> list[Text]:
    """Providers with converted prices, and the exchange rates."""
    return [
        Text(f"{provider}: converted, {rate}", style="dim")
        for provider, rate_texts in rates.items()
        for rate in rate_texts
    ]
