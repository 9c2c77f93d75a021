"""The tables, as classes of SQLModel: their columns, keys, indexes and constraints. Every query is written with them,
and the first migration creates what they say.

Times are integer microseconds since 1970 UTC and money is integer micro-dollars, the same on SQLite and PostgreSQL.
"""
