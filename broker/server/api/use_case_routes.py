"""Endpoints made of use cases: the parameters of a function are those of its address, and of the body of a POST."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args, get_type_hints

from fastapi import Depends, Header, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, create_model

from broker.app.documents import json_text
from broker.app.use_cases.changes import change
from broker.app.use_cases.table import IN_QUERY, UseCase
from broker.server.api.callers import By

Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{8,128}$",
        description="A unique key of the request, such as a UUID. A repetition with the same key has no effect.",
    ),
]


def endpoint_of(row: UseCase) -> Callable[..., Any]:
    """The endpoint of a use case, with its name, its description and the document that it returns."""
    hints = get_type_hints(row.run, include_extras=True)
    declared = [parameter for name, parameter in signature(row.run).parameters.items() if name != "by"]
    groups = {parameter.name: hints[parameter.name] for parameter in declared if is_dataclass(hints[parameter.name])}
    parameters = [_parameter("by", By)]
    if row.action:
        parameters.append(_parameter("key", Key))
    body: list[Parameter] = []
    for parameter in declared:
        kind = hints[parameter.name]
        if f"{{{parameter.name}}}" in row.path:
            parameters.append(_parameter(parameter.name, kind))
        elif parameter.name in groups and row.method == "GET":
            parameters.append(_parameter(parameter.name, Annotated[kind, Depends(_from_query(kind))]))
        elif row.method == "GET" or IN_QUERY in get_args(kind)[1:]:
            parameters.append(_in_query(parameter.name, kind, parameter.default))
        else:
            body += _flat(kind) if parameter.name in groups else [parameter.replace(annotation=kind)]
    if body:
        parameters.append(_parameter("body", _body_model(row.name, body)))

    def respond(**arguments: Any) -> Response:
        by, key, model = arguments.pop("by"), arguments.pop("key", ""), arguments.pop("body", None)
        if model is not None:
            arguments |= {name: getattr(model, name) for name in type(model).model_fields}
            for name, kind in groups.items():
                arguments[name] = kind(**{field.name: arguments.pop(field.name) for field in fields(kind)})
        if not row.action:
            return Response(json_text(row.run(by, **arguments)), media_type="application/json")
        answer = change(by, key, row.run, **arguments)
        headers = {"Idempotency-Replayed": "true"} if answer.replayed else {}
        return Response(answer.body, answer.status, headers, "application/json")

    respond.__name__, respond.__doc__ = row.name, row.run.__doc__
    respond.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # `inspect.signature` reads it
    respond.__annotations__ = {"return": row.document}
    return respond


def _parameter(name: str, kind: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind)


def _in_query(name: str, kind: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, Query()], default=default)


def _flat(kind: Any) -> Iterator[Parameter]:
    """The fields of a dataclass as parameters."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        default = Parameter.empty if field.default is MISSING else field.default
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, annotation=hints[field.name], default=default)


def _from_query(kind: Any) -> Callable[..., Any]:
    def make(**values: Any) -> Any:
        return kind(**values)

    make.__signature__ = Signature(  # type: ignore[attr-defined]  # `inspect.signature` reads it
        [_in_query(parameter.name, parameter.annotation, parameter.default) for parameter in _flat(kind)]
    )
    return make


def _body_model(name: str, parameters: list[Parameter]) -> type[BaseModel]:
    """The model of the body: no other fields than these."""
    model_fields: dict[str, Any] = {
        parameter.name: (parameter.annotation, ... if parameter.default is Parameter.empty else parameter.default)
        for parameter in parameters
    }
    title = "".join(part.capitalize() for part in name.split("_"))
    return create_model(f"{title}Body", __config__=ConfigDict(extra="forbid"), **model_fields)
