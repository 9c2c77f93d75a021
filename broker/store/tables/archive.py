"""The tables of what was moved to files in the run store."""

from __future__ import annotations

from broker.store.tables.plain import plain

ARCHIVE_FILE = plain("archive_file")
ARCHIVE_INTENT = plain("archive_intent")
ARCHIVED_JOB = plain("archived_job")
