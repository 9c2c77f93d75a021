"""The tables of watches on prices, and of notices to deliver."""

from __future__ import annotations

from broker.store.tables.plain import plain

WATCH = plain("price_watch")
NOTICE = plain("notice")
