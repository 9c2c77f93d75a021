"""What `gpubroker store archive` moved, in words."""

from __future__ import annotations

from collections.abc import Iterator

from broker.app.results.service import ArchivedHistoryResult
from broker.cli.render import formats
from broker.store.records import ArchiveKind

_NO_TIME = "stay in the database: no policy says how long ({key}), and no {option} is given"


def told(done: ArchivedHistoryResult) -> Iterator[str]:
    """What was moved, or would be moved, and what is in the archive."""
    moved = "would move" if done.dry_run else "moved"
    if done.events_before is None:
        yield f"Events {_NO_TIME.format(key='keep_events', option='--keep-events')}."
    else:
        what = f"{formats.plural(done.events, 'event')} of {formats.plural(done.jobs, 'job')}"
        yield f"Events of jobs that ended before {formats.moment(done.events_before)}: {what} {moved}."
    if done.prices_before is None:
        yield f"Prices {_NO_TIME.format(key='keep_prices', option='--keep-prices')}."
    else:
        signals = formats.plural(done.signal_changes, "score or rate change")
        what = f"{formats.plural(done.price_changes, 'price change')}, {signals}"
        polls = f"{formats.plural(done.polls, 'poll')} {'would be deleted' if done.dry_run else 'deleted'}"
        yield f"Prices before {formats.moment(done.prices_before)}: {what} {moved}; {polls}."
        if done.protected:
            changes = formats.plural(done.protected, "older price change")
            yield f"{changes} stay, because launched attempts refer to them."
    for unfinished in done.unfinished:
        yield f"An earlier run left a file that does not count, and that could not be deleted: {unfinished}."
    for kind in ArchiveKind:
        if found := [file for file in done.files if file.kind is kind]:
            size = f"{sum(file.bytes for file in found) / 1e6:,.1f} MB"
            times = [
                formats.moment(edge) for edge in (min(one.since for one in found), max(one.until for one in found))
            ]
            rows = f"{sum(file.rows for file in found):,} rows of {kind.value}"
            yield f"In the archive: {rows} in {formats.plural(len(found), 'file')}, {size}, {' to '.join(times)}."
    for runs in sorted({file.run_store for file in done.files if file.run_store}):
        yield f"Its files are in {runs}/archive."
