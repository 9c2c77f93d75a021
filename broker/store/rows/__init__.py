"""The rows of all tables, as classes of SQLModel without validation: what the tables are, with their keys, indexes and
what each column means. The migrations, not these classes, create the tables; a test compares both.

No command imports them, as building them takes a quarter of its start: `broker.store.tables` has the same tables as
plain columns, which a test compares with these as well.
"""
