"""The table of settings of a store."""

from __future__ import annotations

from broker.store.tables.plain import plain

SETTING = plain("setting")
