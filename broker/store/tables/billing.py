"""The tables of closed months and spending alerts: marks of budgets, charges, statements, answers to anomalies."""

from __future__ import annotations

from broker.store.tables.plain import plain

MARK = plain("budget_mark")
CHARGE = plain("charge")
STATEMENT = plain("statement")
ANSWER = plain("anomaly_answer")
