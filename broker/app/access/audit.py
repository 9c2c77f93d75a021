"""Use cases: read the audit log, and append to it."""

from __future__ import annotations

from collections.abc import Sequence

from broker.app.access.people import require_administrator
from broker.app.wiring import Broker
from broker.core.access.audit import AuditRecord
from broker.core.actors import Actor


def audit_log(
    broker: Broker, *, by: Actor, limit: int, person: str | None = None, subject: str | None = None
) -> Sequence[tuple[int, AuditRecord]]:
    """The newest lines with their numbers, newest first. Raises `NotAllowed` unless ``by`` is an administrator."""
    with broker.store.access.reading() as reader:
        require_administrator(reader, by)
        return reader.audit(limit=limit, person=person, subject=subject)


def log(broker: Broker, record: AuditRecord) -> int:
    """Append a line; returns its number."""
    with broker.store.access.writing() as tx:
        return tx.log(record)
