"""Reads the stored views of jobs, and collects unreadable ones with the reason."""

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

from pydantic import TypeAdapter

from broker.core.errors import UnreadableJob
from broker.core.events.views import JobView
from broker.core.records import UnreadableRecord, add_stamp, read_stamped, unknown_fields


class Quarantine:
    """The unreadable jobs found in one snapshot of the store. ``for_leader``: to run the jobs; then also those that use
    a field that this version does not know."""

    def __init__(self, *, for_leader: bool = False) -> None:
        self._for_leader = for_leader
        self._jobs: dict[str, UnreadableJob] = {}

    @property
    def jobs(self) -> Sequence[UnreadableJob]:
        """Each unreadable job once, in the order in which they were found."""
        return tuple(self._jobs.values())

    def view(self, row: Any) -> JobView:
        """The view of a row of `VIEW_COLUMNS`. Raises `UnreadableJob`."""
        try:
            view = read_stamped(row.view, _parse_view)
            if self._for_leader and (fields := ", ".join(unknown_fields(view.job))):
                raise UnreadableRecord(f"it uses {fields}, which this version does not know", newer=True)
        except UnreadableRecord as error:
            unreadable = UnreadableJob(
                row.id, str(error), newer=error.newer, name=row.name, user=row.user_name, state=row.state
            )
            self._jobs[row.id] = unreadable
            raise unreadable from error
        return view

    def views(self, rows: Iterable[Any]) -> list[JobView]:
        result = []
        for row in rows:
            try:
                result.append(self.view(row))
            except UnreadableJob:  # listed in `jobs`
                continue
        return result


def to_text(view: JobView) -> str:
    return add_stamp(_views().dump_json(view, exclude_defaults=True).decode())


@lru_cache(maxsize=256)
def _parse_view(text: str) -> JobView:
    """Cached: views are immutable, and one snapshot reads the same ones several times."""
    return _views().validate_json(text)


@cache
def _views() -> TypeAdapter[JobView]:
    return TypeAdapter(JobView)
