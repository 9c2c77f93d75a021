"""Collects failures of single parts (a region, a source), so that the other parts still deliver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from broker.core.errors import (
    AskAPerson,
    BrokerError,
    GiveUp,
    InvalidInput,
    LoginMissing,
    Malformed,
    Refused,
    RetryLater,
    Throttled,
    Unreachable,
)

T = TypeVar("T")

# The error classes in order of urgency; errors that need a person come first.
_MOST_NEEDED = (LoginMissing, AskAPerson, RetryLater, GiveUp, BrokerError)
_TOLD = 5  # failures listed besides the chosen one
# Classes that can speak for several failures of their own kind.
_PLAIN = (Throttled, Unreachable, Refused, Malformed, InvalidInput)


class Failures:
    """Collects failures, to be raised as one error after all queries. Threads may share one."""

    def __init__(self) -> None:
        self._errors: list[BrokerError] = []

    def kept(self, found: Iterable[T]) -> Iterator[T]:
        """The items up to the first failure, which is recorded."""
        try:
            yield from found
        except BrokerError as error:
            self._errors.append(error)

    def result(self, ask: Callable[[], T], otherwise: T) -> T:
        """The result of ``ask``, or ``otherwise`` at a failure, which is recorded."""
        try:
            return ask()
        except BrokerError as error:
            self._errors.append(error)
            return otherwise

    def kept_or_none(self, ask: Callable[[], T]) -> T | None:
        """The result of ``ask``, or None at a failure, which is recorded."""
        try:
            return ask()
        except BrokerError as error:
            self._errors.append(error)
            return None

    def add(self, error: BrokerError) -> None:
        """Record a failure."""
        self._errors.append(error)

    @property
    def about_login(self) -> bool:
        """Whether one of them is about the login."""
        return any(isinstance(error, LoginMissing) for error in self._errors)

    def raise_any(self) -> None:
        """Raise a single error unchanged; of several, one of the most urgent class, with a line for each."""
        distinct = list({str(error): error for error in self._errors}.values())
        if not distinct:
            return
        if len(distinct) == 1:
            raise distinct[0]
        chosen = next(error for kind in _MOST_NEEDED for error in distinct if isinstance(error, kind))
        alike = all(type(error) is type(chosen) for error in distinct)
        kind = next(kind for kind in (*(_PLAIN if alike else ()), *_MOST_NEEDED) if isinstance(chosen, kind))
        others = [str(error) for error in distinct if error is not chosen]
        more = [f"and {len(others) - _TOLD} more failures"] if len(others) > _TOLD else []
        raise kind("\n".join([str(chosen), *others[:_TOLD], *more]), hint=chosen.hint) from chosen
