"""The events of a job, wherever they are: in the database, or in the archive of the run store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from broker.app.jobs.runs_root import archive_places
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.events.events import Event
from broker.core.events.views import JobView


@dataclass(frozen=True, slots=True)
class JobStory:
    """The events of a job up to the state of its view, in order. ``missing``: why some of them, which are in the
    archive, could not be read; None: all are here."""

    events: Sequence[Event]
    missing: str | None = None


def story(broker: Broker, view: JobView) -> JobStory:
    """The job's events up to the state of ``view``. If the archive cannot be read, only the events in it are
    missing."""
    with broker.store.reading() as look:
        found = [event for event in look.events(view.id) if event.seq <= view.seq]
    if len(found) == view.seq:
        return JobStory(found)
    try:
        return JobStory(sorted([*found, *_archived(broker, view)], key=attrgetter("seq")))
    except BrokerError as error:
        more = f" ({error.hint})" if error.hint else ""
        return JobStory(found, f"{view.seq - len(found)} events are in the archive: {error}{more}")


def _archived(broker: Broker, view: JobView) -> list[Event]:
    file = broker.store.archive.file_of(view.id)
    if file is None:
        return []
    from broker.runfolder import archive  # most jobs have all their events in the database
    from broker.store.archive import as_events

    return as_events(archive.read(archive_places(broker, file), file.path, file.digest, view.id))
