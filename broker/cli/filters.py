"""Options that several commands share, and their parsers: machines, times, prices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli import completion
from broker.cli.options import PERIOD_HELP, Timezone
from broker.cli.render.formats import parse_moment
from broker.core.errors import InvalidInput, did_you_mean
from broker.core.values.provider_names import provider_name

if TYPE_CHECKING:
    from broker.app.billing.months import ReportPeriod
    from broker.core.values.money import Money

GpuOption = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu",
        "-g",
        autocompletion=completion.gpus,
        metavar="GPU[:N]",
        help="Accelerator, optionally with the exact count per machine; 'cpu' for machines without GPU. Repeatable.",
    ),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of rows (default 30; with --json all).")
]


def moment_option(option: str, text: str, now: datetime) -> datetime:
    """A point in time (local without a zone), or an age before ``now``, as a time in UTC. Raises `InvalidInput` naming
    the option."""
    try:
        return parse_moment(text, now)
    except ValueError as error:
        raise InvalidInput(str(error), where=option) from error
    except OverflowError as error:
        raise InvalidInput(f"time out of range: {text!r}", where=option) from error


@dataclass(frozen=True)
class PeriodOptions:
    """Options: the period of a report."""

    since: Annotated[
        str | None, typer.Option("--since", "--from", metavar="WHEN", help="Start: 2026-11-01, or 7d (ago).")
    ] = None
    until: Annotated[str | None, typer.Option("--until", "--to", metavar="WHEN", help="End, exclusive.")] = None
    period: Annotated[str | None, typer.Option("--period", metavar="NAME", help=PERIOD_HELP)] = None
    timezone: Timezone = None

    def report_period(self, now: datetime) -> ReportPeriod:
        """Raises `InvalidInput`."""
        from broker.app.billing.months import ReportPeriod

        start = moment_option("--since", self.since, now) if self.since else None
        end = moment_option("--until", self.until, now) if self.until else None
        return ReportPeriod(start, end, self.period, self.timezone)


def moment_ahead_option(option: str, text: str, now: datetime) -> datetime:
    """A point in time (local without a zone), or a duration from ``now``, as a time in UTC. Raises `InvalidInput`
    naming the option."""
    from broker.core.values.units import parse_duration

    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        pass
    try:
        return now + parse_duration(text)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"expected a date, such as 2027-01-31, or a duration from now, such as 30d; got {text!r}", where=option
        ) from None


def time_span_option(option: str, text: str) -> timedelta:
    """A duration, which may be zero. Raises `InvalidInput` naming the option."""
    from broker.core.values.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidInput(str(error), where=option) from error


def duration_option(option: str, text: str) -> timedelta:
    """A duration greater than zero. Raises `InvalidInput` naming the option."""
    parsed = time_span_option(option, text)
    if not parsed:
        raise InvalidInput(f"expected a duration greater than zero, such as 30d; got {text!r}", where=option)
    return parsed


def price_option(option: str, text: str) -> Money:
    """An amount in USD, with or without a currency sign. Raises `InvalidInput` naming the option, also for what a shell
    leaves of an unquoted ``$5`` (nothing), ``$50`` or ``$2.50``."""
    from broker.core.values.units import parse_money

    try:
        if re.match(r"0\d", text):
            raise ValueError
        return parse_money(text if "$" in text or "usd" in text.lower() else f"${text}")
    except ValueError as error:
        message = f"expected a price in USD, such as 4 or $4; got {text!r}"
        hint = "in a shell, write 4 or '$4': it replaces an unquoted $4"
        raise InvalidInput(message, where=option, hint=hint) from error


Completion = Callable[[typer.Context, str], list[str]]
_PATTERNS = {"region": "us-*", "team": "nlp-*"}  # by key, for help


class RowFilter:
    """The filters of a list: each key with the completion of its values."""

    def __init__(self, **keys: Completion) -> None:
        self._keys = keys

    @property
    def option(self) -> Any:
        """The option of a command, a list of texts."""
        keys = ", ".join(self._keys)
        patterns = (f"Values may be patterns ({key}={_PATTERNS[key]}). " for key in self._keys if key in _PATTERNS)
        return typer.Option(
            "--where",
            "-w",
            metavar="KEY=VALUE,…",
            autocompletion=self._complete,
            help=f"Only rows with these values. Keys: {keys}. {next(patterns, '')}A repeated key means or.",
        )

    def read(self, texts: Sequence[str] | None) -> dict[str, list[str]]:
        """The values by key. Raises `UnknownName` for a key, `InvalidInput`."""
        values_by_key: dict[str, list[str]] = {}
        for term in (term for filter_text in texts or () for term in filter_text.split(",")):
            key, equals, value = (part.strip() for part in term.partition("="))
            name = key.lower().replace("-", "_")
            if not (key and equals and value):
                raise self._wrong(f"expected KEY=VALUE; got {term!r}")
            if name not in self._keys:
                suggestion = (
                    f"; write --gpu {value}"
                    if name == "gpu" and "provider" in self._keys
                    else did_you_mean(name, self._keys)
                )
                raise self._wrong(f"unknown key {key!r}{suggestion}")
            if value.count("[") != value.count("]"):
                raise self._wrong(f"the pattern {value!r} has an unclosed bracket")
            values_by_key.setdefault(name, []).append(provider_name(value) if name == "provider" else value)
        return values_by_key

    def _wrong(self, message: str) -> InvalidInput:
        first_key = next(iter(self._keys))
        hint = f"keys: {', '.join(self._keys)}; several values: {first_key}=A,{first_key}=B"
        return InvalidInput(message, where="--where", hint=hint)

    def _complete(self, context: typer.Context, incomplete: str) -> list[str]:
        preceding, comma, term = incomplete.rpartition(",")
        key, equals, value = term.partition("=")
        if equals:
            proposals = (
                [f"{key}={candidate}" for candidate in self._keys[key](context, value)] if key in self._keys else []
            )
        else:
            proposals = [f"{candidate}=" for candidate in self._keys if candidate.startswith(term)]
        return [f"{preceding}{comma}{candidate}" for candidate in proposals]


def term_option(option: str, text: str) -> timedelta:
    """A duration above zero, as `broker.core.values.units.parse_term` reads it. Raises `InvalidInput` naming the
    option."""
    from broker.core.values.units import parse_term

    try:
        return parse_term(text)
    except ValueError as error:
        raise InvalidInput(str(error), where=option) from error


def hours_option(option: str, text: str) -> int:
    """The duration in whole hours, at least one. Raises `InvalidInput` naming the option."""
    parsed = term_option(option, text)
    if parsed < timedelta(hours=1):
        raise InvalidInput(f"expected 1 hour or more; got {text!r}", where=option)
    return round(parsed / timedelta(hours=1))
