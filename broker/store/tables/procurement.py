"""The tables of capacity that is owned, reserved or bought."""

from __future__ import annotations

from broker.store.tables.plain import plain

HOLDING = plain("holding")
HOLDING_PROOF = plain("holding_proof")
PURCHASE = plain("purchase")
PURCHASE_EVENT = plain("purchase_event")
QUOTE = plain("purchase_quote")
