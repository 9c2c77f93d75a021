"""The tables of the ledger: entries and balances, and their sums for frequent queries; of closed months and spending
alerts: marks of budgets, charges, statements, answers to anomalies.
"""

from __future__ import annotations

from sqlmodel import SQLModel

from broker.store.schema.ledger import STILL_HELD as STILL_HELD

ENTRY = SQLModel.metadata.tables["ledger_entry"]
BALANCE = SQLModel.metadata.tables["ledger_balance"]
GROUP = SQLModel.metadata.tables["spend_group"]
SUM = SQLModel.metadata.tables["spend_sum"]
MOVED = SQLModel.metadata.tables["movement_sum"]
METERING = SQLModel.metadata.tables["metering"]
USE = SQLModel.metadata.tables["use_sum"]
MARK = SQLModel.metadata.tables["budget_mark"]
CHARGE = SQLModel.metadata.tables["charge"]
STATEMENT = SQLModel.metadata.tables["statement"]
ANSWER = SQLModel.metadata.tables["anomaly_answer"]
