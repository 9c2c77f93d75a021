"""Rewrites usage errors of Typer in the form of the other errors: the option, what was expected, and the value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from broker.cli.renames import renamed
from broker.core.errors import InvalidInput, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typer.exceptions import TyperException

_NO_DRY_RUN = "`gpubroker plan` shows what `gpubroker submit` would do, and starts nothing"
# The expected kind of number, by pydantic's error type. A limit is in the error's context, under the key used here.
_KINDS = {"int_parsing": "a whole number", "int_from_float": "a whole number", "float_parsing": "a number"}
_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", re.DOTALL)
_COMMAND = re.compile(r"No such command ('.*?')\.(?: Did you mean (.*)\?)?")
_LIMITS = {
    "greater_than_equal": ("ge", "{} or more"),
    "less_than_equal": ("le", "{} or less"),
    "greater_than": ("gt", "more than {}"),
    "less_than": ("lt", "less than {}"),
}


def misuse(error: TyperException, command: str) -> InvalidInput:
    """The error to print instead. ``command``: the command that was run, such as ``gpubroker jobs list``."""
    if replaced := _renamed(error, command.removeprefix("gpubroker").strip()):
        return InvalidInput(replaced)
    context = getattr(error, "ctx", None)
    hint = f"see `{command} --help`"
    if getattr(error, "option_name", "") == "--dry-run" and getattr(context, "info_name", "") in ("plan", "submit"):
        hint = _NO_DRY_RUN
    told = _number(error) or _choice(error) or _value(error)
    if told:
        return InvalidInput(told, where=_option(error), hint=hint)
    return InvalidInput(_unknown(error) or _sentence(error.format_message()), hint=hint)


def _renamed(error: TyperException, command: str) -> str:
    """What replaced the option or command that is unknown; empty for any other error."""
    if type(error).__name__ == "NoSuchOption":
        return renamed(command, getattr(error, "option_name", ""))
    found = _COMMAND.fullmatch(error.format_message())
    return renamed(command, found[1].strip("'")) if found else ""


def _number(error: TyperException) -> str:
    """What is wrong with a number; empty for any other error."""
    found = _validated(error)
    kind = found.get("type", "")
    if kind in _KINDS:
        return f"expected {_KINDS[kind]}; got {found['input']!r}"
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"expected {words.format(format(found['ctx'][key], 'g'))}; got {found['input']}"
    return ""


def _choice(error: Any) -> str:
    """What is wrong with a value that is not one of an option's choices; empty for any other error."""
    choices = getattr(getattr(getattr(error, "param", None), "type_descriptor", None), "choices", None)
    given = _validated(error).get("input")
    if not choices or not isinstance(given, str):
        return ""
    known = [str(getattr(choice, "value", choice)) for choice in choices]
    return f"expected {', '.join(known[:-1])} or {known[-1]}; got {given!r}{did_you_mean(given, known)}"


def _value(error: TyperException) -> str:
    """What is wrong with the value of an option, or that it is missing; empty for any other error."""
    param = getattr(error, "param", None)
    if param is None:
        return ""
    if type(error).__name__ == "MissingParameter":
        return f"the {param.param_type_name} is missing"
    return _sentence(error.message)


def _unknown(error: Any) -> str:
    """An unknown option or command, with the most similar one, and other faults of the command line; empty for any
    other error."""
    option, said = getattr(error, "option_name", ""), error.format_message()
    if type(error).__name__ == "NoSuchOption":
        return f"unknown option {option}{did_you_mean(option, error.possibilities or ())}"
    if type(error).__name__ == "BadOptionUsage":
        return f"{option}: takes no value" if "does not take" in said else f"{option}: expected a value"
    if found := _EXTRA.fullmatch(said):
        return f"unexpected argument: {found[1]}"
    if found := _COMMAND.fullmatch(said):
        return f"unknown command {found[1]}{f'; did you mean {found[2]}?' if found[2] else ''}"
    return ""


def _sentence(text: str) -> str:
    """Typer's message in the form of the other errors: without pydantic's prefix, capital letter and full stop."""
    plain = text.replace("Value error, ", "").removesuffix(".")
    return plain if plain[:2].isupper() else plain[:1].lower() + plain[1:]


def _validated(error: TyperException) -> Mapping[str, Any]:
    """The first fault that pydantic found, if it did."""
    errors: Any = getattr(error.__cause__, "errors", None)
    return errors(include_url=False)[0] if callable(errors) else {}


def _option(error: Any) -> str:
    """``--limit``; ``VERSION`` for an argument."""
    named = error.param
    return next((name for name in named.opts if name.startswith("--")), str(named.metavar or named.name).strip("[]."))
