"""The text of JSON documents; how values are written is in `broker.app.results.values`."""

from __future__ import annotations

import json
from typing import Any

from broker.app.results.values import plain


def to_json(document: Any) -> str:
    """The text of a document."""
    return json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False)
