"""Rewrites usage errors of Typer in the form of the other errors: the option, what was expected, and the value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from broker.cli.renames import replacement_text
from broker.core.errors import InvalidInput, did_you_mean

if TYPE_CHECKING:
    from typer.exceptions import TyperException

_NO_DRY_RUN = "`gpubroker plan` shows what `gpubroker submit` would do, and starts nothing"
# The expected kind of number, by pydantic's error type. A limit is in the error's context, under the key used here.
_NUMBER_KINDS = {"int_parsing": "a whole number", "int_from_float": "a whole number", "float_parsing": "a number"}
_EXTRA_PATTERN = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", re.DOTALL)
_UNKNOWN_COMMAND_PATTERN = re.compile(r"No such command ('.*?')\.(?: Did you mean (.*)\?)?")
_LIMITS = {
    "greater_than_equal": ("ge", "{} or more"),
    "less_than_equal": ("le", "{} or less"),
    "greater_than": ("gt", "more than {}"),
    "less_than": ("lt", "less than {}"),
}


def usage_error(error: TyperException, command: str) -> InvalidInput:
    """The error to print instead. ``command``: the command that was run, such as ``gpubroker jobs list``."""
    if replacement := _renamed_text(error, command.removeprefix("gpubroker").strip()):
        return InvalidInput(replacement)
    context = getattr(error, "ctx", None)
    hint = f"see `{command} --help`"
    if getattr(error, "option_name", "") == "--dry-run" and getattr(context, "info_name", "") in ("plan", "submit"):
        hint = _NO_DRY_RUN
    problem = _number_problem(error) or _choice_problem(error) or _value_problem(error)
    if problem:
        return InvalidInput(problem, where=_option_name(error), hint=hint)
    return InvalidInput(_unknown_problem(error) or _normalize_sentence(error.format_message()), hint=hint)


def _renamed_text(error: TyperException, command: str) -> str:
    """What replaced the option or command that is unknown; empty for any other error."""
    if type(error).__name__ == "NoSuchOption":
        return replacement_text(command, getattr(error, "option_name", ""))
    match = _UNKNOWN_COMMAND_PATTERN.fullmatch(error.format_message())
    return replacement_text(command, match[1].strip("'")) if match else ""


def _number_problem(error: TyperException) -> str:
    """What is wrong with a number; empty for any other error."""
    validation_error = _first_validation_error(error)
    kind = validation_error.get("type", "")
    if kind in _NUMBER_KINDS:
        return f"expected {_NUMBER_KINDS[kind]}; got {validation_error['input']!r}"
    if kind in _LIMITS:
        key, limit_text = _LIMITS[kind]
        return (
            f"expected {limit_text.format(format(validation_error['ctx'][key], 'g'))}; got {validation_error['input']}"
        )
    return ""


def _choice_problem(error: Any) -> str:
    """What is wrong with a value that is not one of an option's choices; empty for any other error."""
    choices = getattr(getattr(getattr(error, "param", None), "type_descriptor", None), "choices", None)
    value = _first_validation_error(error).get("input")
    if not choices or not isinstance(value, str):
        return ""
    choice_texts = [str(getattr(choice, "value", choice)) for choice in choices]
    return (
        f"expected {', '.join(choice_texts[:-1])} or {choice_texts[-1]}; got "
        f"{value!r}{did_you_mean(value, choice_texts)}"
    )


def _value_problem(error: TyperException) -> str:
    """What is wrong with the value of an option, or that it is missing; empty for any other error."""
    param = getattr(error, "param", None)
    if param is None:
        return ""
    if type(error).__name__ == "MissingParameter":
        return f"the {param.param_type_name} is missing"
    return _normalize_sentence(error.message)


def _unknown_problem(error: Any) -> str:
    """An unknown option or command, with the most similar one, and other faults of the command line; empty for any
    other error."""
    option, message = getattr(error, "option_name", ""), error.format_message()
    if type(error).__name__ == "NoSuchOption":
        return f"unknown option {option}{did_you_mean(option, error.possibilities or ())}"
    if type(error).__name__ == "BadOptionUsage":
        return f"{option}: takes no value" if "does not take" in message else f"{option}: expected a value"
    if match := _EXTRA_PATTERN.fullmatch(message):
        return f"unexpected argument: {match[1]}"
    if match := _UNKNOWN_COMMAND_PATTERN.fullmatch(message):
        return f"unknown command {match[1]}{f'; did you mean {match[2]}?' if match[2] else ''}"
    return ""


def _normalize_sentence(text: str) -> str:
    """Typer's message in the form of the other errors: without pydantic's prefix, capital letter and full stop."""
    plain = text.replace("Value error, ", "").removesuffix(".")
    return plain if plain[:2].isupper() else plain[:1].lower() + plain[1:]


def _first_validation_error(error: TyperException) -> Mapping[str, Any]:
    """The first fault that pydantic found, if it did."""
    errors: Any = getattr(error.__cause__, "errors", None)
    return errors(include_url=False)[0] if callable(errors) else {}


def _option_name(error: Any) -> str:
    """``--limit``; ``VERSION`` for an argument."""
    param = error.param
    return next((name for name in param.opts if name.startswith("--")), str(param.metavar or param.name).strip("[]."))
