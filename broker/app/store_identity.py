"""The identity of a store: machines are tagged with it, so that no store terminates machines of another; and the key
with which it signs its orders to nodes."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from broker.store import Store

_DIGITS = 6  # random bytes; enough to distinguish the stores of one cloud account
_SIGNING_BYTES = 32


def store_id(store: Store) -> str:
    """The store's id, made at first use. It depends on the location of the store: a copy in another place, or a store
    that was moved, gets a new id."""
    key = f"store_id:{_location(store.where)}"
    return store.setting(key) or store.keep_setting(key, secrets.token_hex(_DIGITS))


def signing_key(store: Store) -> str:
    """The key from which those of attempts are derived (`broker.engines.runfolder.attempt_keys`), made at first use.

    It is in the database because every broker of the store must be able to renew every lease. Whoever may read the
    database and write the run folders can give orders to nodes; neither alone suffices.
    """
    return store.setting("signing_key") or store.keep_setting("signing_key", secrets.token_hex(_SIGNING_BYTES))


def _location(where: str) -> str:
    """The location of a store: its file, or the address of its database server without the login."""
    if "://" not in where:
        return str(Path(where).resolve())
    url_parts = urlsplit(where)
    # a socket's folder is in the query
    return f"{url_parts.hostname or url_parts.query}:{url_parts.port or 5432}{url_parts.path}"
