"""Filters of lists, with one syntax: ``--where provider=aws,region=eu-*``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer

from broker.core.errors import InvalidInput, did_you_mean

Completion = Callable[[typer.Context, str], list[str]]


class RowFilter:
    """The filters of a list: each key with the completion of its values."""

    def __init__(self, **keys: Completion) -> None:
        self._keys = keys

    @property
    def option(self) -> Any:
        """The option of a command, a list of texts."""
        keys = ", ".join(self._keys)
        return typer.Option(
            "--where",
            "-w",
            metavar="KEY=VALUE,…",
            autocompletion=self._completed,
            help=f"Only rows with these values. Keys: {keys}. Values may be patterns (us-*); a repeated key means or.",
        )

    def read(self, texts: Sequence[str] | None) -> dict[str, list[str]]:
        """The values by key. Raises `UnknownName` for a key, `InvalidInput`."""
        found: dict[str, list[str]] = {}
        for term in (term for text in texts or () for term in text.split(",")):
            key, equals, value = (part.strip() for part in term.partition("="))
            name = key.lower().replace("-", "_")
            if not (key and equals and value):
                raise self._wrong(f"expected KEY=VALUE; got {term!r}")
            if name not in self._keys:
                raise self._wrong(f"unknown key {key!r}{did_you_mean(name, self._keys)}")
            if value.count("[") != value.count("]"):
                raise self._wrong(f"the pattern {value!r} has an unclosed bracket")
            found.setdefault(name, []).append(value)
        return found

    def _wrong(self, message: str) -> InvalidInput:
        first = next(iter(self._keys))
        hint = f"keys: {', '.join(self._keys)}; several values: {first}=A,{first}=B"
        return InvalidInput(message, where="--where", hint=hint)

    def _completed(self, context: typer.Context, incomplete: str) -> list[str]:
        before, comma, term = incomplete.rpartition(",")
        key, equals, value = term.partition("=")
        if equals:
            offered = [f"{key}={one}" for one in self._keys[key](context, value)] if key in self._keys else []
        else:
            offered = [f"{one}=" for one in self._keys if one.startswith(term)]
        return [f"{before}{comma}{one}" for one in offered]
