"""Signatures of the broker's documents (HMAC-SHA256), so that a node obeys no other writer of the object store.

Each attempt has its own key. It reaches the node with the launch, not through the object store, and signs the name of
the document with its content: a document of another attempt, or of another name, is refused. A launch by an earlier
release has no key; its documents are accepted unsigned.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from broker.agent.formats import BadDocument

KEY_VARIABLE = "GPUBROKER_ATTEMPT_KEY"
"""The variable with which a launch gives the agent its key, in hexadecimal digits. The job's commands do not get it."""
_FIELD = "signature"


def sign(name: str, document: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The document with its signature. ``name``: as in the run folder (``lease.json``)."""
    return {**document, _FIELD: _signature(name, document, key)}


def check(name: str, document: Mapping[str, Any], key: str | None) -> None:
    """Raises BadDocument if the document is not signed with the key. Without a key, accepts every document."""
    if key is None:
        return
    signature = document.get(_FIELD)
    if not isinstance(signature, str):
        raise BadDocument(f"{name} is not signed")
    if not hmac.compare_digest(signature.encode("utf-8", "replace"), _signature(name, document, key).encode()):
        raise BadDocument(f"{name} is not signed by the broker for this attempt")


def _signature(name: str, document: Mapping[str, Any], key: str) -> str:
    content = {field: value for field, value in document.items() if field != _FIELD}
    text = json.dumps([name, content], sort_keys=True, separators=(",", ":"))
    return hmac.new(key.encode("utf-8", "replace"), text.encode(), hashlib.sha256).hexdigest()
