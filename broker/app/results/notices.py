"""Notices on their way to people, as results."""

from __future__ import annotations

from typing import Self

from broker.app.results.values import Moment, Result
from broker.store.outbox import Dispatch


class NoticeResult(Result):
    """One notice to one target. ``next_try`` is null when it was delivered or given up."""

    target: str
    title: str
    made_at: Moment
    delivered_at: Moment | None
    tries: int
    next_try: Moment | None
    error: str

    @classmethod
    def of(cls, one: Dispatch) -> Self:
        return cls.from_parts(one, title=one.notice.title)
