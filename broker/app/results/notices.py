"""Notices to people and their delivery, as results."""

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
    def of(cls, dispatch: Dispatch) -> Self:
        return cls.from_parts(dispatch, title=dispatch.notice.title)


class NoticeList(Result):
    """Notices, sent and pending, newest first."""

    notices: list[NoticeResult]


class RetriedNotices(Result):
    """How many notices were to be tried again, how many were sent just now, and why others could not be, by
    recipient."""

    retried: int
    sent: int
    errors: dict[str, str]
