"""Commands whose options are the fields of a dataclass: a command takes one object instead of twenty parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def gathered(command: Callable[..., None]) -> Callable[..., None]:
    """The command in the form that Typer needs: each parameter whose type is a dataclass is replaced by the fields of
    that dataclass, in their order, also of nested dataclasses. All names must differ."""
    types = get_type_hints(command, include_extras=True)
    parameters = signature(command).parameters

    def flat(**given: Any) -> None:
        command(**{name: _filled(types[name], name, given) for name in parameters})

    seen = [one for name, own in parameters.items() for one in _options(name, types[name], own.default)]
    flat.__name__, flat.__doc__ = command.__name__, command.__doc__
    flat.__signature__ = Signature(seen)  # type: ignore[attr-defined]  # `inspect.signature` reads it
    flat.__annotations__ = {one.name: one.annotation for one in seen}
    return flat


def _options(name: str, kind: Any, default: Any) -> Iterator[Parameter]:
    if not is_dataclass(kind):
        yield Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        return
    types = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        own = Parameter.empty if field.default is MISSING else field.default
        yield from _options(field.name, types[field.name], own)


def _filled(kind: Any, name: str, given: Mapping[str, Any]) -> Any:
    if not is_dataclass(kind):
        return given[name]
    types = get_type_hints(kind)
    made: Callable[..., Any] = kind  # type: ignore[assignment]  # a dataclass is called like a function
    return made(**{field.name: _filled(types[field.name], field.name, given) for field in fields(kind)})
