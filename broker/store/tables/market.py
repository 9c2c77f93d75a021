"""The tables of the market: polls, the documents that they read, offers, their prices and availability, and resolutions
of doubts.
"""

from __future__ import annotations

from broker.store.tables.plain import plain

POLL = plain("poll_run")
KEPT_ANSWER = plain("kept_answer")
ACCEPTANCE = plain("price_acceptance")
POOL = plain("pool")
OFFER = plain("offer")
PRICE = plain("price_change")
SIGNAL = plain("signal_change")
