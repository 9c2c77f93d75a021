"""Makes stored records of a job unreadable for this version, in the ways in which that happens."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import insert, select, update

from broker.core import records
from broker.store import Store
from broker.store.engine.fields import to_micros
from broker.store.schema.jobs import AttemptEventRow, JobRow


def _change(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def changed(text: str) -> str:
        document = json.loads(text)
        change(document)
        return json.dumps(document)

    return changed


def _newer(text: str) -> str:
    """The text as a newer version of this program writes it."""
    return text.replace(f'"format":{records.FORMAT},', f'"format":{records.FORMAT + 1},', 1)


DAMAGES: Mapping[str, Callable[[str], str]] = {
    "newer format": _newer,
    "newer format, keys in another order": _change(lambda found: found.update(format=found.pop("format") + 1)),
    "a value of a newer version": _change(lambda found: found["job"].update(priority="blue")),
    "not JSON": lambda text: text[:-1],
}


def damage_view(store: Store, job_id: str, how: Callable[[str], str] = _newer) -> str:
    """Damage the view of a job; returns the previous view."""
    with store._database.writing() as connection:
        before = str(connection.scalar(select(JobRow.view).where(JobRow.id == job_id)))
        connection.execute(update(JobRow).where(JobRow.id == job_id).values(view=how(before)))
    return before


def add_newer_event(store: Store, job_id: str) -> None:
    """Append an event of a kind that only a newer version knows, as that version does: the view is written, too."""
    damage_view(store, job_id)
    with store.reading() as look:
        (seq,) = look.last_events([job_id]).values()
    body = json.dumps({"format": records.FORMAT + 1, "kind": "praised"})
    row = {"job_id": job_id, "seq": seq + 1, "attempt": None, "at": to_micros(store._clock.now()), "kind": "praised"}
    with store._database.writing() as connection:
        connection.execute(insert(AttemptEventRow), {**row, "body": body})
