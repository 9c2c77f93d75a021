"""The tables of the ledger: entries and balances, and their sums for frequent queries; of closed months and spending
alerts: marks of budgets, charges, statements, answers to anomalies.
"""

from __future__ import annotations

from sqlalchemy import literal_column

from broker.store.tables.plain import plain

ENTRY = plain("ledger_entry")
BALANCE = plain("ledger_balance")
GROUP = plain("spend_group")
SUM = plain("spend_sum")
MOVED = plain("movement_sum")
METERING = plain("metering")
USE = plain("use_sum")
# Exactly the condition of the index ``ledger_balance_open``; SQLAlchemy would render ``held != ?``.
STILL_HELD = BALANCE.c.held != literal_column("0")
MARK = plain("budget_mark")
CHARGE = plain("charge")
STATEMENT = plain("statement")
ANSWER = plain("anomaly_answer")
