"""Questions to the database that are put together once: that takes longer than asking them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TypeVar, cast

from sqlalchemy import Connection, Executable

Question = TypeVar("Question", bound=Executable)
About = TypeVar("About", bound=Hashable)
Make = Callable[[Connection | None, About], Question]


def question(make: Make[About, Question], connection: Connection, about: About, *, looks_up: bool) -> Question:
    """What ``make`` makes of ``about``. Only where it ``looks_up`` names first is it made anew each time, and given the
    connection to do so."""
    return make(connection, about) if looks_up else cast(Question, _made_once(make, about))


@lru_cache(maxsize=1024)
def _made_once(make: Callable[[Connection | None, About], Executable], about: About) -> Executable:
    return make(None, about)
