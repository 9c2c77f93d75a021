"""`gpubroker prices import`: import a price catalogue file as a dated source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import filters
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.text import Text

    from broker.app.results.price_history import ImportedPrices

EXAMPLES = examples(
    "gpubroker prices import vms.csv --provider aws",
    "gpubroker prices import quote.csv --provider acme --dated 2026-11-01 --json",
)


def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Price table with a header: CSV, UTF-8.")],
    provider: Annotated[str, typer.Option("--provider", "-p", help="Provider of these prices.")],
    dated: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Date of the prices: 2026-11-01, 2026-11-01T12:00Z or 7d (ago). Default: the file's time.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import a price catalogue of one provider: SkyPilot's vms.csv, a gpuhunt file, or columns as in `offers --json`.

    Imported prices carry the file's date and age like live prices: once stale, they are shown but not used for
    launches. A newer file of the same provider replaces the earlier import. Files of several dates, imported oldest
    first, become the history that `prices history` reads.
    """
    from broker.app.market.imports import import_catalogue

    terminal = Terminal.of(context)
    broker = terminal.broker()
    at = None if dated is None else filters.moment("--dated", dated, broker.clock.now())
    done = import_catalogue(broker, file, provider, at)
    terminal.result(done, lambda: _told(done))
    if done.meant:
        terminal.say(f"note: {done.provider!r} is a new provider; {done.meant}")


def _told(done: ImportedPrices) -> Iterator[Text]:
    from rich.text import Text

    from broker.cli.render.formats import age, moment, plural

    counts = f"{plural(done.offers_seen, 'offer')}, {done.offers_changed:,} changed"
    yield Text.assemble((f"{done.provider}: ", "bold"), f"{counts} (layout {done.layout})")
    whence = "the file's time" if done.as_of_from == "file" else "--dated"
    dated = f"  as of {moment(done.as_of)}, from {whence}, {age(done.age_seconds)} ago"
    yield Text(f"{dated}; source {', '.join(done.sources)}", style="dim")
    if done.offers_stale:
        stale = f"  {plural(done.offers_stale, 'offer')} too old for launches: shown as stale until a newer import"
        yield Text(stale, style="yellow")
    if done.offers_doubted:
        hint = "gpubroker offers --where price_kind=doubted"
        doubted = f"  {plural(done.offers_doubted, 'offer')} in doubt, not used for launches: {hint}"
        yield Text(doubted, style="yellow")
    for reason, count in sorted(done.rows_skipped.items(), key=lambda item: -item[1]):
        yield Text(f"  {plural(count, 'row')} skipped, {reason}: {done.samples[reason]}", style="yellow")
