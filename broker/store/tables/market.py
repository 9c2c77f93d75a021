"""The tables of the market: polls, the documents that they read, offers, their prices and availability, resolutions of
doubts; capacity that is owned, reserved or bought; watches on prices, and notices to deliver.
"""

from __future__ import annotations

from sqlmodel import SQLModel

import broker.store.schema.market  # noqa: F401

POLL = SQLModel.metadata.tables["poll_run"]
KEPT_ANSWER = SQLModel.metadata.tables["kept_answer"]
ACCEPTANCE = SQLModel.metadata.tables["price_acceptance"]
POOL = SQLModel.metadata.tables["pool"]
OFFER = SQLModel.metadata.tables["offer"]
PRICE = SQLModel.metadata.tables["price_change"]
SIGNAL = SQLModel.metadata.tables["signal_change"]
HOLDING = SQLModel.metadata.tables["holding"]
HOLDING_PROOF = SQLModel.metadata.tables["holding_proof"]
PURCHASE = SQLModel.metadata.tables["purchase"]
PURCHASE_EVENT = SQLModel.metadata.tables["purchase_event"]
QUOTE = SQLModel.metadata.tables["purchase_quote"]
WATCH = SQLModel.metadata.tables["price_watch"]
NOTICE = SQLModel.metadata.tables["notice"]
