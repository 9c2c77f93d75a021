"""One place for the run folders of one store's jobs: its reconciler looks for all of them where its settings say."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from broker.app.wiring import Broker
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.store.jobs.journal import StoreReading

_KEY = "runs"  # the setting of the store that says where they lie


def claim(broker: Broker) -> None:
    """Put on record where the run folders of this store's jobs lie, from now on: where this process looks for them.

    Raises `InvalidInput` where they lie elsewhere and somebody still looks after jobs there: they could not be found,
    or this one's could not. Contacts nobody but the store; harmless to repeat.
    """
    asked = broker.settings.runs_url
    kept = broker.store.keep_setting(_KEY, asked)
    if _same(kept, asked):
        return
    with broker.store.reading() as look:
        open_jobs = [view.id for view in look.unclosed()] + [one.job_id for one in look.unreadable]
    if open_jobs:
        more = f" and {len(open_jobs) - 1} more" if len(open_jobs) > 1 else ""
        because = f"they have not ended: {open_jobs[0]}{more}"
        hint = "or wait until they have ended, or cancel them"
    elif broker.store.is_led():
        because = "a reconciler that looks for them there still runs"
        hint = "or stop `gpubroker serve`; one in the background ends by itself in a few seconds: submit again then"
    else:
        broker.store.set_setting(_KEY, asked)
        return
    raise InvalidInput(
        f"the jobs of this store have their run folders in {kept}, not in {asked}; {because}",
        where="GPUBROKER_RUNS",
        hint=f"set GPUBROKER_RUNS={kept}, {hint}; a store of its own (GPUBROKER_HOME) may have its own place",
    )


def agree(broker: Broker, look: StoreReading) -> None:
    """The same for whoever submits: raises `InvalidInput` only where its settings name a place. Where they name none,
    its job goes where those of the store are. As a rule a look at the store shows that nothing is to be done."""
    kept = look.setting(_KEY)
    if kept is not None and _same(kept, broker.settings.runs_url):
        return
    if broker.settings.runs is not None:
        claim(broker)
        return
    with suppress(InvalidInput):
        claim(broker)


def root(broker: Broker) -> str:
    """Where they lie, for a reconciler that is started by whatever command."""
    return broker.store.setting(_KEY) or broker.settings.runs_url


def _same(one: str, other: str) -> bool:
    return _plain(one) == _plain(other)


def _plain(url: str) -> str:
    parts = urlsplit(url)
    return str(Path(unquote(parts.path)).resolve()) if parts.scheme == "file" else url.rstrip("/")
