"""Cached documents of providers, for conditional HTTP requests."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256

from sqlalchemy import Connection, delete, insert, select

from broker.core.extras import own_version
from broker.core.market.cached_answers import CachedAnswer
from broker.core.values.money import in_microseconds
from broker.store.engine.fields import to_micros
from broker.store.schema.market import KeptAnswerRow
from broker.store.schema.row import columns_of

# After this time a document is read again, whatever its server says: a wrong "not modified" must not hold forever.
_LONGEST = in_microseconds(timedelta(days=7))


def cached_answers(connection: Connection, provider: str, now: datetime) -> dict[str, CachedAnswer]:
    """The documents that polls of ``provider`` stored, by address.

    Omits those of another version of gpubroker, those older than a week at ``now``, and damaged ones: they are read
    again.
    """
    rows = connection.execute(
        select(*columns_of(KeptAnswerRow, "address", "etag", "last_modified", "content", "digest")).where(
            KeptAnswerRow.provider == provider,
            KeptAnswerRow.version == own_version(),
            KeptAnswerRow.at.between(to_micros(now) - _LONGEST, to_micros(now)),
        )
    )
    return {
        row.address: CachedAnswer(row.etag, row.last_modified, row.content)
        for row in rows
        if sha256(row.content).hexdigest() == row.digest
    }


def keep(connection: Connection, provider: str, answers: Mapping[str, CachedAnswer], now: int) -> None:
    """Store these documents; deletes earlier ones of the same addresses and those that are too old."""
    if not answers:
        return
    old = KeptAnswerRow.address.in_(list(answers)) | ~KeptAnswerRow.at.between(now - _LONGEST, now)
    connection.execute(delete(KeptAnswerRow).where(KeptAnswerRow.provider == provider, old))
    rows = [
        {
            "provider": provider,
            "address": address,
            "at": now,
            "version": own_version(),
            "etag": answer.etag,
            "last_modified": answer.last_modified,
            "digest": sha256(answer.content).hexdigest(),
            "content": answer.content,
        }
        for address, answer in answers.items()
    ]
    connection.execute(insert(KeptAnswerRow), rows)
