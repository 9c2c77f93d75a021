"""The tables, without validation; domain types validate.

Times are integer microseconds since 1970 UTC and money is integer micro-dollars, the same on SQLite and PostgreSQL.
``attempt_event``, ``ledger_entry``, ``decision``, ``policy_set``, ``purchase_event`` and ``audit_log`` are append-only:
triggers in the migrations refuse UPDATE and DELETE. The migrations, not these definitions, create the tables; a test
compares both. What only PostgreSQL has of an index (a condition, an operator class) is only in the migrations: naming
it here would load that dialect.

A module for each group of tables: a command builds only those that it reads.
"""
