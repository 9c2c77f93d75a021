"""Importing a catalogue file: prices that somebody gathered into a table, as a dated source of one provider.

An import is a poll of its own, ``csv:NAME``: what a newer file no longer lists is no longer offered from that file's
date on; other sources of the same provider stay. Its prices are as of the file's date and obey an age limit as live
ones do, so that a stale table is shown and not launched on; they are no reference prices, which have no limit and need
the policy's leave.

A file tells of one moment: of several rows of one offer with dates of their own the newest counts, the others are told.
What an earlier file lacked is back from the date of the file that has it again, or of its row where that is after the
end. What a row said of a day after its file's ends just after that day at the earliest.
History is made of several files, the oldest imported first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, did_you_mean
from broker.core.market.offers import SANDBOX, Offer, OfferQuery, SkippedRow

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
# Sources of offers that are no clouds, and one that is called otherwise than the cloud whose prices it asks for.
_NO_CLOUDS = frozenset({SANDBOX, "owned", "slurm", "pricebook", "gpuhunt", "csv"})
_ONE_MOMENT = "the newest counts; for history import a file for each moment, with --dated"
_CALLED_OTHERWISE = {"lambda_cloud": "lambda"}


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import brought. ``dated``: as of when its prices hold (UTC); ``by_file``: that is the file's modification
    time. ``stale``: how many offers are past their age limit already. ``samples``: one detail for each reason.
    ``meant``: the known provider that a name new to this store resembles, as a sentence; empty otherwise."""

    provider: str
    file: Path
    layout: str
    dated: datetime
    by_file: bool
    started: datetime
    finished: datetime
    offers_seen: int
    offers_changed: int
    stale: int
    sources: tuple[str, ...]
    rows_skipped: Mapping[str, int] = field(default_factory=dict)
    samples: Mapping[str, str] = field(default_factory=dict)
    meant: str = ""


def import_catalogue(broker: Broker, file: Path, provider: str, dated: datetime | None = None) -> Imported:
    """Read ``file`` as prices of ``provider`` at ``dated`` (the file's modification time otherwise) and store them.

    All or nothing; the same file again changes nothing. Raises `InvalidInput` for a name that no provider can have, a
    file in no known layout, of another currency, without a usable row, from the future, or older than what was imported
    of this provider before.
    """
    if not _NAME.fullmatch(provider):
        raise InvalidInput(
            f"{provider!r} cannot be a provider's name", where="--provider", hint="small letters and digits, as in aws"
        )
    if provider in _NO_CLOUDS:
        raise InvalidInput(f"{provider!r} is no cloud whose prices could be imported", where="--provider")
    if provider in _CALLED_OTHERWISE:
        raise InvalidInput(
            f"offers of {provider!r} are called {_CALLED_OTHERWISE[provider]!r}",
            where="--provider",
            hint=f"--provider {_CALLED_OTHERWISE[provider]}",
        )
    now = broker.clock.now()
    at = _date(file, dated, now)
    catalogue = broker.registries.open_catalogue(file, provider=provider, dated=at, now=now)
    kept = f"imported:{provider}"
    before = broker.store.setting(kept)
    known = before is not None or provider in broker.registries.providers
    if before and datetime.fromisoformat(before) > at:
        raise InvalidInput(
            f"dated {_short(at)}, and prices of {_short(datetime.fromisoformat(before))} were imported before",
            where=str(file),
            hint="say as of when its prices hold with --dated, if the file's own time is wrong; the oldest first",
        )
    newest: dict[str, Offer] = {}
    skipped: Counter[str] = Counter()
    samples: dict[str, str] = {}
    for row in catalogue.offers(OfferQuery()):
        if isinstance(row, SkippedRow):
            skipped[row.reason] += 1
            samples.setdefault(row.reason, row.detail)
            continue
        other = newest.get(row.id)
        if other is not None:
            older, row = sorted((other, row), key=lambda offer: offer.as_of)
            skipped["older_row"] += 1
            samples.setdefault("older_row", f"{row.id}, as of {_short(older.as_of)}; {_ONE_MOMENT}")
        newest[row.id] = row
    offers = list(newest.values())
    if not offers:
        why = "; ".join(f"{count} × {reason} ({samples[reason]})" for reason, count in skipped.most_common(3))
        raise InvalidInput(f"no row of it can be used: {why}", where=str(file))
    finished = broker.clock.now()
    run = broker.store.record_poll(
        f"csv:{provider}",
        started=now,
        finished=finished,
        offers=offers,
        skipped=skipped,
        keep_unchanged=False,
        speaks_of=at,
    )
    broker.store.set_setting(kept, at.isoformat())
    return Imported(
        provider=provider,
        file=file,
        layout=catalogue.layout,
        dated=at,
        by_file=dated is None,
        started=now,
        finished=finished,
        offers_seen=len(offers),
        offers_changed=run.changed,
        stale=sum(offer.max_age is not None and now - offer.as_of > offer.max_age for offer in offers),
        sources=tuple(sorted({offer.source for offer in offers})),
        rows_skipped=dict(skipped),
        samples=samples,
        meant="" if known else _meant(broker, provider),
    )


def _meant(broker: Broker, provider: str) -> str:
    """The known provider that a new one's name resembles, as a question."""
    known = {name.removeprefix("csv:") for name in (*broker.registries.providers, *broker.store.last_polls())}
    return did_you_mean(provider, known - {provider}).removeprefix("; ")


def _short(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _date(file: Path, dated: datetime | None, now: datetime) -> datetime:
    """As of when the prices hold. Raises `InvalidInput` for the future and for a file that is not there."""
    if dated is None:
        try:
            dated = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        except OSError as error:
            raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(file)) from error
    if dated > now:
        raise InvalidInput(
            f"dated {_short(dated)}, which has not come yet",
            where=str(file),
            hint="say as of when its prices hold with --dated; is the clock of this machine right?",
        )
    return dated
