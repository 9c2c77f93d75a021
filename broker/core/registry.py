"""Registries map a name to ``"module:attribute"``, imported on first use.

A missing SDK therefore disables only its own plug-in, with a clear message.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from broker.core.errors import MissingExtra, UnknownName

Registry = Mapping[str, str]


def load(registry: Registry, name: str, kind: str, *, extras: Mapping[str, str] | None = None) -> Any:
    """The attribute registered under ``name``.

    ``kind`` is the term for messages ("provider"); ``extras`` maps names to the optional install they need. Raises
    `UnknownName` (with a suggestion) and `MissingExtra`.
    """
    if name not in registry:
        raise UnknownName(kind, name, registry)
    module_name, _, attribute = registry[name].partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        extra = (extras or {}).get(name)
        if extra is None or (error.name or "").partition(".")[0] in {"broker", "providers", "policies"}:
            raise
        raise MissingExtra(extra, f"{kind} {name!r}") from error
    return getattr(module, attribute)
