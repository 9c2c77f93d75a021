"""The database: connections, transactions, schema, migrations and leader locks."""
