"""Failures of one part (a region, a source) that must not hold back the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from broker.core.errors import AskAPerson, BrokerError, GiveUp, LoginMissing, RetryLater

T = TypeVar("T")


class Failures:
    """Collects what went wrong, to be raised as one error when everything has been asked."""

    def __init__(self) -> None:
        self._errors: list[BrokerError] = []

    def kept(self, found: Iterable[T]) -> Iterator[T]:
        """What arrives until it fails; the failure is remembered."""
        try:
            yield from found
        except BrokerError as error:
            self._errors.append(error)

    def raise_any(self) -> None:
        """Raise the only error as it is; of several, one that says all, of the class in which a person is most
        needed."""
        distinct = list({str(error): error for error in self._errors}.values())
        if len(distinct) == 1:
            raise distinct[0]
        for kind in (LoginMissing, AskAPerson, RetryLater, GiveUp, BrokerError):
            for error in distinct:
                if isinstance(error, kind):
                    raise kind("; ".join(map(str, distinct)), hint=error.hint) from error
