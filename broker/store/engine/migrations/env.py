"""What Alembic runs: the migrations, inside the transaction that `broker.store.engine.revisions` has opened."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
