"""The store: the only place that knows the database. Domain values in, domain values out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.store.records import PolicyVersion, PollRun
    from broker.store.store import Store, open_store

__all__ = ["PolicyVersion", "PollRun", "Store", "open_store"]

_HOMES = {
    "PolicyVersion": "broker.store.records",
    "PollRun": "broker.store.records",
    "Store": "broker.store.store",
    "open_store": "broker.store.store",
}


def __getattr__(name: str) -> Any:
    """Import each name from its module on first use: `broker.store.quick_queries` needs no SQLAlchemy."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
