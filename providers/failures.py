"""Collects failures of single parts (a region, a source), so that the other parts still deliver."""

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
U = TypeVar("U")

# The error classes in order of urgency; errors that need a person come first.
_BY_URGENCY = (LoginMissing, AskAPerson, RetryLater, GiveUp, BrokerError)
_MAX_LISTED = 5  # failures listed besides the chosen one
# Classes that can speak for several failures of their own kind.
_PLAIN = (Throttled, Unreachable, Refused, Malformed, InvalidInput)


class Failures:
    """Collects failures, to be raised as one error after all queries. Threads may share one."""

    def __init__(self) -> None:
        self._errors: list[BrokerError] = []

    def until_failure(self, items: Iterable[T]) -> Iterator[T]:
        """The items up to the first failure, which is recorded."""
        try:
            yield from items
        except BrokerError as error:
            self._errors.append(error)

    def result(self, ask: Callable[[], T], otherwise: U) -> T | U:
        """The result of ``ask``, or ``otherwise`` at a failure, which is recorded."""
        try:
            return ask()
        except BrokerError as error:
            self._errors.append(error)
            return otherwise

    def add(self, error: BrokerError) -> None:
        self._errors.append(error)

    @property
    def about_login(self) -> bool:
        return any(isinstance(error, LoginMissing) for error in self._errors)

    def raise_any(self) -> None:
        """Raise a single error unchanged; of several, one of the most urgent class, with a line for each."""
        distinct = list({str(error): error for error in self._errors}.values())
        if not distinct:
            return
        if len(distinct) == 1:
            raise distinct[0]
        worst = next(error for kind in _BY_URGENCY for error in distinct if isinstance(error, kind))
        is_uniform = all(type(error) is type(worst) for error in distinct)
        kind = next(kind for kind in (*(_PLAIN if is_uniform else ()), *_BY_URGENCY) if isinstance(worst, kind))
        others = [str(error) for error in distinct if error is not worst]
        more = [f"and {len(others) - _MAX_LISTED} more failures"] if len(others) > _MAX_LISTED else []
        raise kind("\n".join([str(worst), *others[:_MAX_LISTED], *more]), hint=worst.hint) from worst
