"""The tables of the market: polls, the documents that they read, offers, their prices and availability, resolutions of
doubts; capacity that is owned, reserved or bought; watches on prices, and notices to deliver.
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
HOLDING = plain("holding")
HOLDING_PROOF = plain("holding_proof")
PURCHASE = plain("purchase")
PURCHASE_EVENT = plain("purchase_event")
QUOTE = plain("purchase_quote")
WATCH = plain("price_watch")
NOTICE = plain("notice")
