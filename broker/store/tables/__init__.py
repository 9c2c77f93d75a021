"""The tables as plain rows, without validation; domain types validate.

Times are integer microseconds since 1970 UTC and money is integer micro-dollars, the same on SQLite and PostgreSQL.
``attempt_event``, ``ledger_entry``, ``decision``, ``policy_set``, ``purchase_event`` and ``audit_log`` are append-only:
triggers in the migrations refuse UPDATE and DELETE. The migrations, not these classes, create the tables; a test
compares both. Conditions of PostgreSQL's partial indexes are only in the migrations: naming them here would load that
dialect.

A module for each group of tables: a command builds only the classes of those that it reads.
"""
