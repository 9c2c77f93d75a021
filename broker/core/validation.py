"""Turns pydantic's errors in a document into findings: position, expected value, next step."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from broker.core.documents import Document, Path, nulls
from broker.core.errors import Problem, closest, did_you_mean

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

_NO_VALUE = "has no value; write one, or delete the line"
_EXPECTED = {
    "string": "expected text",
    "int": "expected a whole number",
    "float": "expected a number",
    "finite": "expected a number",
    "bool": "expected true or false",
    "list": "expected a list, such as [a, b]",
    "tuple": "expected a list, such as [a, b]",
    "set": "expected a list, such as [a, b]",
    "dict": "expected lines of the form 'key: value'",
    "model": "expected lines of the form 'key: value'",
    "mapping": "expected lines of the form 'key: value'",
}
_LIMITS = {"greater_than": "more than", "greater_than_equal": "at least", "less_than": "less than",
           "less_than_equal": "at most"}  # fmt: skip


def validate(
    document: Document,
    model: type[M],
    *,
    data: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
    may_be_null: Callable[[Path], bool] = lambda path: False,
) -> tuple[M | None, list[Problem]]:
    """``model`` made from the document, or None with all problems, one per mistake.

    ``data`` replaces the document's own data if a caller removed parts of it. The message about a missing field has its
    ``description``. A key without a value is a mistake unless ``may_be_null`` allows it: an optional limit left blank
    must not mean no limit.
    """
    content: dict[str, Any] = dict(document.data if data is None else data)
    empty = [path for path in nulls(content) if not may_be_null(path)]
    problems = [document.problem(path, _NO_VALUE, at_key=True) for path in empty]
    try:
        instance = model.model_validate(_remove_paths(content, empty), context=dict(context or {}), extra="forbid")
        return (None if problems else instance), problems
    except ValidationError as error:
        findings = problems_in(error, document, model)
        empty_keys = {problem.key for problem in problems}
        return None, problems + [problem for problem in findings if problem.key not in empty_keys]


def problems_in(error: ValidationError, document: Document, model: type[BaseModel]) -> list[Problem]:
    """The findings of a `ValidationError` that ``model`` raised for this document's data, sorted by place. A missing
    field whose key is probably misspelled is reported once, as an unknown key."""
    errors = error.errors(include_url=False)
    misspelt = {_intended_location(details["loc"], model) for details in errors if details["type"] == "extra_forbidden"}
    return sorted(
        {
            _problem(details, document, model)
            for details in errors
            if details["type"] != "missing" or details["loc"] not in misspelt
        }
    )


def _intended_location(location: tuple[str | int, ...], model: type[BaseModel]) -> tuple[str | int, ...]:
    """The location of the known key that an unknown key probably misspells."""
    return *location[:-1], closest(str(location[-1]), sorted(_sibling_fields(model, location))) or ""


def parse_each(items: Iterable[tuple[str | int, object]], parse: Callable[[Any, Any], T]) -> list[T]:
    """``parse(key, value)`` of every item; for use in a validator of a list or mapping.

    Every ``ValueError`` becomes a problem at its own item, so that all of them are reported, not only the first.
    """
    results: list[T] = []
    failures: list[InitErrorDetails] = []
    for key, value in items:
        try:
            results.append(parse(key, value))
        except ValueError as error:
            reason = PydanticCustomError("reason", "{reason}", {"reason": str(error)})
            failures.append(InitErrorDetails(type=reason, loc=(key,), input=None))
    if failures:
        raise ValidationError.from_exception_data("items", failures)
    return results


_MAX_KEYS = 8  # most keys in a message


def _problem(details: ErrorDetails, document: Document, model: type[BaseModel]) -> Problem:
    kind, location = details["type"], details["loc"]
    path = _data_path(document.data, location)
    if kind == "extra_forbidden":
        known_keys = sorted(_sibling_fields(model, location))
        if place := _right_place(model, location):
            return document.problem(path, f"belongs {place}", unknown_key=True)
        suggestion = did_you_mean(str(location[-1]), known_keys)
        return document.problem(
            path, f"unknown key{suggestion}", unknown_key=True, known=() if suggestion else known_keys
        )
    if kind == "missing":
        field = _sibling_fields(model, location).get(str(location[-1]))
        expectation = f"; expected {field.description}" if field and field.description else ""
        parent = _data_path(document.data, location[:-1])
        return document.problem((*parent, location[-1]), f"is missing{expectation}", at_key=True)
    if (
        kind == "model_type"
        and location
        and len(known_keys := sorted(_sibling_fields(model, (*location, "")))) <= _MAX_KEYS
    ):
        return document.problem(path, _sentence(details), known=known_keys)
    return document.problem(path, _sentence(details), at_key=bool(location) and location[-1] == "[key]")


def _right_place(model: type[BaseModel], location: tuple[str | int, ...]) -> str:
    """Where a misplaced key belongs: in a section beside it, or beside the section that it is in; else empty."""
    key = str(location[-1])
    for name, field in _sibling_fields(model, location).items():
        if any(_is_model(member) and key in _fields(member) for member in _members(field.annotation)):
            return f"under `{name}:`, not {'beside it' if location[1:] else 'at the top'}"
    section = location[-2] if location[1:] else 0
    is_above = isinstance(section, str) and key in _sibling_fields(model, location[:-1])
    return f"beside `{section}:`, not in it" if is_above else ""


def _sentence(details: ErrorDetails) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind in ("enum", "literal_error"):
        names = [name.strip("'") for name in context["expected"].replace(" or ", ", ").split(", ")]
        return f"expected one of {', '.join(names)}; got {_quote_value(value)}{did_you_mean(str(value), names)}"
    if kind in _LIMITS:
        return f"must be {_LIMITS[kind]} {next(iter(context.values()))}; got {_quote_value(value)}"
    family = kind.partition("_")[0]
    if family in _EXPECTED and kind.endswith(("_type", "_parsing", "_from_float", "_number", "_attributes_type")):
        quoted = (
            f'; write it in quotes: "{_quote_value(value)}"'
            if family == "string" and isinstance(value, int | float)
            else ""
        )
        return f"{_EXPECTED[family]}; got {_quote_value(value)}{quoted}"
    return details["msg"]


def _quote_value(value: object) -> str:
    """The given value as the file shows it; never the content of lists and mappings."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    short = text if len(text) <= 40 else text[:37] + "..."
    return repr(short) if isinstance(value, str) else short


def _data_path(data: object, location: tuple[str | int, ...]) -> Path:
    """The part of a pydantic location that is a path in the data: without union tags and ``[key]``."""
    path: Path = ()
    for part in location:
        if (isinstance(data, Mapping) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        ):
            data = data[part]  # type: ignore[index]  # just checked, for either kind
            path = (*path, part)
    return path


def _sibling_fields(model: type[BaseModel], location: tuple[str | int, ...]) -> dict[str, FieldInfo]:
    """The fields that the model knows at the level of this location's last part, by the key that files use."""
    level: list[Any] = [model]
    for part in location[:-1]:
        # A part without fields is a union's tag: stay at this level.
        level = [inner for annotation in level for inner in _step(annotation, part)] or level
    members = [member for annotation in level for member in _members(annotation)]
    return {key: field for member in members if _is_model(member) for key, field in _fields(member).items()}


def _step(annotation: Any, part: str | int) -> Iterator[Any]:
    for member in _members(annotation):
        arguments = get_args(member)
        if _is_model(member):
            if part in _fields(member):
                yield _fields(member)[str(part)].annotation
        elif isinstance(get_origin(member), type) and arguments:
            yield arguments[-1] if issubclass(get_origin(member), Mapping) else arguments[0]


def _members(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _remove_paths(data: Any, paths: list[Path]) -> Any:
    """A copy of plain data without the keys at these paths. Items of lists stay: those after them must keep their
    index, and so their line."""
    removed = set(paths)

    def copy_value(value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {key: copy_value(item, (*path, key)) for key, item in value.items() if (*path, key) not in removed}
        if isinstance(value, list):
            return [copy_value(item, (*path, index)) for index, item in enumerate(value)]
        return value

    return copy_value(data, ())
