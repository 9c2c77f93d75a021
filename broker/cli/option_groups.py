"""Commands whose options are the fields of a dataclass: a command takes one object instead of twenty parameters."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command in the form that Typer needs: each parameter whose type is a dataclass is replaced by the fields of
    that dataclass, in their order, also of nested dataclasses. All names must differ."""
    types = get_type_hints(command, include_extras=True)
    parameters = signature(command).parameters

    def flat(**values: Any) -> None:
        command(**{name: _build_argument(types[name], name, values) for name in parameters})

    flat_parameters = [
        parameter
        for name, original in parameters.items()
        for parameter in _flat_parameters(name, types[name], original.default)
    ]
    flat.__name__, flat.__doc__ = command.__name__, command.__doc__
    flat.__signature__ = Signature(flat_parameters)  # type: ignore[attr-defined]  # `inspect.signature` reads it
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in flat_parameters}
    return flat


def _flat_parameters(name: str, kind: Any, default: Any) -> Iterator[Parameter]:
    if not is_dataclass(kind):
        yield Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        return
    types = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        field_default = Parameter.empty if field.default is MISSING else field.default
        yield from _flat_parameters(field.name, types[field.name], field_default)


def _build_argument(kind: Any, name: str, values: Mapping[str, Any]) -> Any:
    if not is_dataclass(kind):
        return values[name]
    types = get_type_hints(kind)
    constructor: Callable[..., Any] = kind  # type: ignore[assignment]  # a dataclass is called like a function
    return constructor(**{field.name: _build_argument(types[field.name], field.name, values) for field in fields(kind)})
