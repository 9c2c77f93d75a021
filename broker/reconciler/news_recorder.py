"""Records the reports of engines and nodes about several jobs, with the resulting cost, in one transaction.

A transaction takes some twenty statements and blocks all other writers; for the few events of one job, that would be
most of the cost of a visit. So the events found in a tick are noted first, and written for up to `AT_ONCE` jobs
together. Steps that follow from the records alone (the end of a job whose machines are gone, and its closing) are taken
in the same transaction. If the process ends before it writes a report, the next one finds it again: engines and run
folders keep it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from broker.core.errors import BrokerError, StoreProblem
from broker.core.events import events as ev
from broker.core.events.views import JobView
from broker.ledger.journal import DatedBody, StaleJobView
from broker.reconciler import decide
from broker.reconciler.controller import isolate_errors
from broker.reconciler.progress import billed_time
from broker.reconciler.settlement.batch import catch_up, post_due, release_all
from broker.reconciler.settlement.settlement import is_metered
from broker.reconciler.worklist import Worklist
from broker.store.store import Store, writing_if

log = logging.getLogger(__name__)

AT_ONCE = 16
"""The number of jobs written in one transaction, which blocks all other writers."""
_REFUSALS = 2  # this many in a row mean that the store itself fails: it may be locked, and each try waits for seconds


@dataclass(slots=True)
class NotedNews:
    """New events of a job. ``then``: called once they are recorded, or could not be."""

    view: JobView
    items: list[DatedBody] = field(default_factory=list)
    then: list[Callable[[], object]] = field(default_factory=list)


class NewsRecorder:
    """The events to be recorded.

    ``every``: as in `Settling`. ``closing``: called before a job is closed. For one thread.
    """

    def __init__(
        self, journal: Store, worklist: Worklist, every: timedelta, closing: Callable[[JobView], None]
    ) -> None:
        self._journal, self._worklist, self._every, self._closing = journal, worklist, every, closing
        self._noted: dict[str, NotedNews] = {}
        self._failed: set[str] = set()

    def note(self, view: JobView, items: Sequence[DatedBody], then: Callable[[], object] | None = None) -> None:
        """Keep events to be recorded.

        ``view``: the view in which they were found. The job must not be visited again before they are written.
        """
        news = self._noted.setdefault(view.id, NotedNews(view))
        news.items += items
        if then is not None:
            news.then.append(then)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._noted

    def delays_judges(self, job_id: str) -> bool:
        """Whether the job is judged once what is noted of it is on record. Not if recording it failed last time."""
        return job_id in self._noted and job_id not in self._failed

    def forget(self, job_id: str) -> None:
        self._failed.discard(job_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._noted)

    def __len__(self) -> int:
        return len(self._noted)

    def write(self, now: datetime) -> Mapping[str, JobView]:
        """Record the noted events, and read the balances of these jobs again.

        Returns the jobs with the views in which the events were found; the worklist has the present ones. Jobs that
        changed since are only read again. An error of one job is logged and affects no other. Raises `StoreProblem` if
        the jobs cannot be read.
        """
        noted, self._noted = list(self._noted.values()), {}
        written = self._record_all(noted, now)
        for news in noted:
            for then in news.then:
                try:
                    then()
                except Exception as error:  # noqa: BLE001  # a bug with one job must not affect the others
                    _log(news, error)
        if noted:
            self._worklist.took({news.view.id: written.get(news.view.id) for news in noted})
        return {news.view.id: news.view for news in noted}

    def _record_all(self, noted: Sequence[NotedNews], now: datetime) -> dict[str, JobView]:
        """Record all together; if that fails, each alone, until the store refuses `_REFUSALS` in a row."""
        written, error = self._try_write(noted, now)
        if error is None:
            return written
        refusals = 0
        for news in noted:
            if refusals < _REFUSALS:
                alone, error = self._try_write([news], now) if len(noted) > 1 else ({}, error)
                written |= alone
                refusals = refusals + 1 if isinstance(error, StoreProblem) else 0
                if error is None:
                    continue
                _log(news, error)
            self._failed.add(news.view.id)
        return written

    def _try_write(self, noted: Sequence[NotedNews], now: datetime) -> tuple[dict[str, JobView], Exception | None]:
        try:
            written = self._write(noted, now) if noted else {}
        except Exception as error:  # noqa: BLE001  # whose error it is, shows when each is recorded alone
            return {}, error
        self._failed -= {news.view.id for news in noted}
        return written, None

    def _write(self, noted: Sequence[NotedNews], now: datetime) -> dict[str, JobView]:
        for news in noted:
            self.catch_up(news.view, now)
        with self._journal.writing() as tx:
            # A job whose stored view cannot be read is not among them: a newer version may have written it.
            stored = {view.id: view.seq for view in tx.views([news.view.id for news in noted])}
            current = [news for news in noted if stored.get(news.view.id) == news.view.seq]
            views = {view.id: view for view in tx.append_each([(news.view, news.items) for news in current])}
            ends = {id: end for id, view in views.items() if (end := _end_of(view, now)) is not None}
            closable = {id for id in ends if views[id].job.seal is None}  # sealed secrets are erased before that
            post_due(tx, [view for id, view in views.items() if id not in closable], now, self._every)
            release_all(tx, [views[id] for id in ends if id in closable], now)
            closed: DatedBody = (now, None, ev.JobClosed())
            final_events: list[tuple[JobView, list[DatedBody]]] = [
                (views[id], [(now, None, end), closed] if id in closable else [(now, None, end)])
                for id, end in ends.items()
            ]
            return views | {view.id: view for view in tx.append_each(final_events)}

    def close(self, view: JobView, now: datetime) -> None:
        """Settle and close a job that has ended. Raises `StaleJobView` and `StoreProblem`."""
        self.catch_up(view, now)
        with isolate_errors(f"job {view.id}: what only an open job needs"):
            self._closing(view)
        with writing_if(self._journal, view) as tx:
            release_all(tx, [view], now)
            tx.append(view.id, [(None, ev.JobClosed())], now)

    def release(self, view: JobView, now: datetime) -> None:
        """Release the hold of a job without machines. Raises as `close`."""
        self.catch_up(view, now)
        with writing_if(self._journal, view) as tx:
            release_all(tx, [view], now)

    def catch_up(self, view: JobView, now: datetime) -> None:
        """Settle the job before the next transaction if its settlement would have to read all its entries."""
        if not is_metered(view, self._worklist.sums(view.id), self._worklist.meters(view.id)):
            catch_up(self._journal, view, now)


def _log(news: NotedNews, error: Exception) -> None:
    if isinstance(error, (BrokerError, StaleJobView)):
        log.warning("job %s: %s", news.view.id, error)
    else:
        log.error("job %s: left for the next tick", news.view.id, exc_info=error)


def _end_of(view: JobView, now: datetime) -> ev.JobEnded | None:
    """The event of the job's end, if that is its only next step: its machines are gone, and it can be closed."""
    match decide.next_steps(view, now, billed=billed_time(view, now)):
        case [decide.End(state, reason)]:
            return ev.JobEnded(state=state, reason=reason)
    return None
