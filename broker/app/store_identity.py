"""Which store this is: an id that machines are tagged with, so that no store ends another one's machines."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from broker.store import Store

_DIGITS = 6  # bytes: two stores in one cloud account are not to meet


def store_id(store: Store) -> str:
    """The store's id, made at first use. It belongs to the place where the store lies: a copy elsewhere, as for trying
    things out, is another store, and one that was moved begins anew."""
    key = f"store_id:{_place(store.where)}"
    return store.setting(key) or store.keep_setting(key, secrets.token_hex(_DIGITS))


def _place(where: str) -> str:
    """The file; of a database on a server, its address without who asks."""
    if "://" not in where:
        return str(Path(where).resolve())
    parts = urlsplit(where)
    return f"{parts.hostname or parts.query}:{parts.port or 5432}{parts.path}"  # a socket's folder is in the query
