"""Narrowed credentials with which a node reaches its job's folder and nothing else, if the broker provides them.

The first ones come with the launch. They expire, so the broker renews them through the run folder (``access.json``),
encrypted: read access to the bucket must not give write access. The standard library has no cipher, so HMAC-SHA256 over
a counter is used as one (a pseudo-random function in counter mode), under a key that no two documents share. A second
HMAC authenticates the document.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Callable

from broker.agent.clock import from_text
from broker.agent.formats import VERSION, BadDocument

log = logging.getLogger("gpubroker-agent")
ACCESS_VARIABLE = "GPUBROKER_RUNS_ACCESS"
"""The variable with which a launch gives the first credentials, as JSON."""
FILE = "access.json"
_GCS_KEYS = ("token", "expires_at")
_S3_KEYS = ("access_key_id", "secret_access_key", *_GCS_KEYS)
_AZURE_KEYS = ("sas_token", "expires_at")
_READ_KEY = "others"  # signatures for folders next to the job's, as JSON, by the prefix of their names
_BLOCK = 32


def seal(credentials: Mapping[str, str], key: str) -> dict[str, Any]:
    """The document with the encrypted credentials, for nodes that know the attempt's key."""
    content = json.dumps(dict(credentials)).encode()
    nonce = secrets.token_bytes(_BLOCK)
    cipher, check = _keys(key, nonce)
    box = _xor_with_keystream(content, cipher)
    digest = hmac.new(check, box, hashlib.sha256).hexdigest()
    return {"version": VERSION, "nonce": nonce.hex(), "box": base64.b64encode(box).decode(), "check": digest}


def unseal(document: Mapping[str, Any], key: str) -> dict[str, str]:
    """Decrypt the credentials. Raises BadDocument if they were not sealed with this key, or were changed."""
    try:
        nonce, box = bytes.fromhex(document["nonce"]), base64.b64decode(document["box"], validate=True)
        cipher, check = _keys(key, nonce)
        digest = hmac.new(check, box, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(digest.encode(), str(document["check"]).encode("utf-8", "replace")):
            raise BadDocument(f"{FILE} is not by the broker for this attempt")
        return _read_credentials(json.loads(_xor_with_keystream(box, cipher)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadDocument(f"{FILE} cannot be read: {error}") from None


def _keys(key: str, nonce: bytes) -> tuple[bytes, bytes]:
    """Two keys for this document alone: one for encryption, one for authentication."""
    keys = (hmac.new(key.encode(), label + nonce, hashlib.sha256).digest() for label in (b"encrypt", b"check"))
    return next(keys), next(keys)


def _xor_with_keystream(content: bytes, key: bytes) -> bytes:
    blocks = range(-(-len(content) // _BLOCK))
    stream = b"".join(hmac.new(key, block.to_bytes(8, "big"), hashlib.sha256).digest() for block in blocks)
    return bytes(byte ^ mask for byte, mask in zip(content, stream))


def _read_credentials(values: Mapping[str, Any]) -> dict[str, str]:
    fields = next((key for key in (_S3_KEYS, _AZURE_KEYS) if key[0] in values), _GCS_KEYS)
    credentials = {name: values[name] for name in (*fields, *(key for key in (_READ_KEY,) if key in values))}
    if not all(isinstance(value, str) for value in credentials.values()):
        raise BadDocument(f"{FILE}: credentials are text")
    from_text(credentials["expires_at"])
    return credentials


class NodeAccess:
    """The credentials that are valid now, as a credential provider of obstore. Thread-safe."""

    def __init__(self, text: str) -> None:
        """``text``: the value of `ACCESS_VARIABLE`. Raises BadDocument."""
        try:
            self._now = _read_credentials(json.loads(text))
        except (KeyError, TypeError, ValueError) as error:
            raise BadDocument(f"{ACCESS_VARIABLE}: {error!r}") from None
        self._lock = threading.Lock()
        self._began = datetime.now(timezone.utc)

    def __call__(self) -> dict[str, Any]:
        """The credentials in the form of obstore's ``credential_provider``, which is called again when they expire."""
        return self._credentials(None)

    def beside(self, name: str) -> Callable[[], dict[str, Any]]:
        """A credential provider for the folder of that name next to the job's."""
        return lambda: self._credentials(name)

    def _credentials(self, name: str | None) -> dict[str, Any]:
        with self._lock:
            now = dict(self._now)
        read_signatures = json.loads(now.pop(_READ_KEY, "{}"))
        if name is not None and read_signatures:
            now["sas_token"] = next(
                (token for prefix, token in read_signatures.items() if f"{name}/".startswith(prefix)), ""
            )
        expires = from_text(now.pop("expires_at"))
        # A short validity, so that obstore soon takes renewed credentials instead of waiting until the last minute.
        soon = datetime.now(timezone.utc) + timedelta(minutes=5)
        return {**now, "expires_at": min(expires, soon)}

    def needs_renewal(self) -> bool:
        """Whether to look for renewed credentials: less than half of their time is left."""
        with self._lock:
            expires, began = from_text(self._now["expires_at"]), self._began
        return datetime.now(timezone.utc) > began + (expires - began) / 2

    def renew(self, document: Mapping[str, Any], key: str) -> None:
        """Take the credentials of the document if they last longer. Raises BadDocument."""
        renewed = unseal(document, key)
        with self._lock:
            if from_text(renewed["expires_at"]) > from_text(self._now["expires_at"]):
                self._now, self._began = renewed, datetime.now(timezone.utc)
                log.info("the run folder's credentials last until %s", renewed["expires_at"])
