"""SkyPilot's name of a cluster at a cloud (sky/utils/common_utils.py of 0.14).

A machine that is gone has no labels any more, but the cloud's records contain its name. Pure.
"""

from __future__ import annotations

import hashlib
import re

KUBERNETES, GCP = 33, 26
"""The longest name of a cluster, in characters, before the hash of SkyPilot's user."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def name_on_cloud(cluster: str, longest: int) -> str:
    """The name without the hash of SkyPilot's user: shortened to ``longest`` characters, of which the last two are from
    a hash of the whole name.
    """
    name = re.sub(r"[._]", "-", cluster).lower()
    if len(name) <= longest:
        return name
    number, hashed = int(hashlib.md5(cluster.encode(), usedforsecurity=False).hexdigest(), 16), ""
    while number:
        number, digit = divmod(number, 36)
        hashed = _DIGITS[digit] + hashed
    return f"{name[: longest - 3].rstrip('-')}-{hashed[:2]}"
