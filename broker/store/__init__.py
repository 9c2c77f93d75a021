"""The store: the only place that knows the database. Domain values in, domain values out."""

from broker.store.engine.database import is_missing
from broker.store.records import PolicyVersion, PollRun
from broker.store.store import Store, open_store

__all__ = ["PolicyVersion", "PollRun", "Store", "is_missing", "open_store"]
