"""Importing a catalog file: a table of prices as a dated source of one provider.

An import is a poll of its own, ``csv:NAME``: an offer that a newer file does not list ends at that file's date; other
sources of the same provider are not affected. Imported prices hold as of the file's date and have a maximum age like
live prices, so that no job starts on a stale table. They are not reference prices, which have no maximum age and need a
policy's permission.

A file describes one moment: of several dated rows of one offer the newest counts, and the others are reported. An offer
that an earlier file lacked starts again at the date of the new file, or of its row if that is later. An offer from a
row dated after its file ends just after that date at the earliest. For a history, import several files, the oldest
first.
"""

import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from broker.app.market.polling import book_levels
from broker.app.market.price_documents import ImportedPrices
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, did_you_mean
from broker.core.market.offers import SANDBOX, Offer, OfferQuery, SkippedRow
from broker.market.suspicion import Suspicion

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_NOT_CLOUDS = frozenset(
    {SANDBOX, "owned", "slurm", "kubernetes", "pricebook", "gpuhunt", "csv"}
)  # sources of offers, not clouds
_ONE_MOMENT_HINT = "the newest counts; for a history, import one file for each moment, with --dated"


def import_catalogue(broker: Broker, file: Path, provider: str, date: datetime | None = None) -> ImportedPrices:
    """Read ``file`` as prices of ``provider`` at ``date`` (UTC; default: the file's modification time) and store them,
    all or none. Idempotent.

    Raises `InvalidInput` for a name that no provider can have, and for a file with an unknown layout, another currency,
    no usable row, a date in the future, or a date before the last import of this provider.
    """
    _check_provider(provider)
    now = broker.clock.now()
    at = _price_date(file, date, now)
    catalogue = broker.registries.open_catalogue(file, provider=provider, dated=at, now=now)
    setting_key = f"imported:{provider}"
    last_import = broker.store.setting(setting_key)
    is_known = last_import is not None or provider in broker.registries.providers
    if last_import and datetime.fromisoformat(last_import) > at:
        raise InvalidInput(
            f"dated {_short(at)}, but prices of {_short(datetime.fromisoformat(last_import))} were imported before",
            where=str(file),
            hint="import the oldest file first; if the file's time is wrong, give the date of its prices with --dated",
        )
    offers, skipped, samples = _newest_rows(catalogue.offers(OfferQuery()))
    if not offers:
        reasons = "; ".join(f"{count} × {reason} ({samples[reason]})" for reason, count in skipped.most_common(3))
        raise InvalidInput(f"no row can be used: {reasons}", where=str(file))
    finished = broker.clock.now()
    run = broker.store.record_poll(
        f"csv:{provider}",
        started=now,
        finished=finished,
        offers=offers,
        skipped=skipped,
        keep_unchanged=False,
        speaks_of=at,
        judge=Suspicion(book_levels(broker), judges_gaps=False),
    )
    broker.store.set_setting(setting_key, at.isoformat())
    sources = {offer.source for offer in offers}
    stored_offers = (offer for offer in broker.store.offers() if offer.provider == provider and offer.source in sources)
    return ImportedPrices(
        provider=provider,
        file=file,
        layout=catalogue.layout,
        as_of=at,
        as_of_from="file" if date is None else "option",
        age_seconds=finished - at,
        sources=sorted(sources),
        offers_seen=len(offers),
        offers_changed=run.changed,
        offers_stale=sum(offer.max_age is not None and now - offer.as_of > offer.max_age for offer in offers),
        offers_suspicious=sum(offer.doubt is not None for offer in stored_offers),
        rows_skipped=dict(skipped),
        samples=samples,
        meant="" if is_known else _suggest_provider(broker, provider),
        seconds=finished - now,
    )


def _check_provider(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r} cannot be a provider's name", where="--provider", hint="lower-case letters and digits, as in aws"
        )
    if name in _NOT_CLOUDS:
        raise InvalidInput(f"{name!r} is not a provider whose prices can be imported", where="--provider")


def _newest_rows(rows: Iterable[Offer | SkippedRow]) -> tuple[list[Offer], Counter[str], dict[str, str]]:
    """The newest row of each offer; the skipped rows by reason, and a detail for each reason."""
    newest: dict[str, Offer] = {}
    skipped: Counter[str] = Counter()
    samples: dict[str, str] = {}
    for row in rows:
        if isinstance(row, SkippedRow):
            skipped[row.reason] += 1
            samples.setdefault(row.reason, row.detail)
            continue
        earlier = newest.get(row.id)
        if earlier is not None:
            older, row = sorted((earlier, row), key=lambda offer: offer.as_of)
            skipped["older_row"] += 1
            samples.setdefault("older_row", f"{row.id}, as of {_short(older.as_of)}; {_ONE_MOMENT_HINT}")
        newest[row.id] = row
    return list(newest.values()), skipped, samples


def _suggest_provider(broker: Broker, provider: str) -> str:
    """The known provider whose name resembles a new one, as a suggestion; empty without one."""
    known_names = {name.removeprefix("csv:") for name in (*broker.registries.providers, *broker.store.last_polls())}
    return did_you_mean(provider, known_names - {provider}).removeprefix("; ")


def _short(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _price_date(file: Path, date: datetime | None, now: datetime) -> datetime:
    """The time as of which the prices hold. Raises `InvalidInput` for the future and for an unreadable file."""
    if date is None:
        try:
            date = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        except OSError as error:
            raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(file)) from error
    if date > now:
        raise InvalidInput(
            f"dated {_short(date)}, which is in the future",
            where=str(file),
            hint="give the date of its prices with --dated; is the clock of this machine right?",
        )
    return date
