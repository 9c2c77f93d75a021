"""Submissions of several threads in one transaction: each is judged with what those before it hold, as if alone."""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from broker.app.jobs import arrays
from broker.app.jobs.submit import GroupCommit, submit
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, CommitUnknown, InvalidInput, NotAllowed, OutcomeUnknown, StoreProblem
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.store import Store
from broker.store.jobs.journal import StoreWriter
from broker.store.jobs.live import NewJobs
from tests.actors import ANN, mid_month, with_clock

POLICY = "version: 1\npolicy: t\nbudgets: [{name: all, amount: $3, period: month, counts: [sandbox]}]\n"
JOB = (
    "name: job-{n}\nrun: 'true'\nresources: {{cpus: 1}}\nmax_duration: 900h\nmax_cost: ${cost}\n"
    "constraints: {{providers: [sandbox]}}\n"
)
Together = Callable[..., list[JobView | BrokerError]]


@pytest.fixture
def broker(broker: Broker) -> Broker:
    return with_clock(broker, mid_month())


@pytest.fixture
def together(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Together:
    """Submits jobs of these costs by a thread each, all of which wait for one turn; returns what came of each."""
    broker.store.activate_policy({"t.yaml": POLICY}, by="test")
    waiting: list[tuple[Any, Any]] = []

    def all_of_them() -> None:
        waiting[0][0]._do([work for _, work in waiting])

    def submitted(*costs: str) -> list[JobView | BrokerError]:
        turn = threading.Barrier(len(costs), action=all_of_them)

        def take(self: GroupCommit[Any], work: Any) -> None:
            waiting.append((self, work))
            turn.wait()

        monkeypatch.setattr(GroupCommit, "take", take)

        def one(number: int, cost: str) -> JobView | BrokerError:
            job = parse_job(JOB.format(n=number, cost=cost), file="job.yaml", now=broker.clock.now())
            try:
                return submit(broker, job, by=ANN)
            except BrokerError as error:
                return error

        with ThreadPoolExecutor(len(costs)) as pool:
            return list(pool.map(one, range(len(costs)), costs))

    return submitted


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs were written by each transaction that admitted some."""
    written: list[int] = []
    write = NewJobs.write

    def counted(self: NewJobs, connection: Any) -> None:
        written.append(len(self.jobs))
        write(self, connection)

    monkeypatch.setattr(NewJobs, "write", counted)
    return written


def test_a_budget_for_three_admits_three_of_one_transaction(
    broker: Broker, together: Together, transactions: list[int]
) -> None:
    found = together("1", "1", "1", "1", "1", "1")
    assert sum(isinstance(one, JobView) for one in found) == 3
    assert sum(isinstance(one, NotAllowed) for one in found) == 3
    assert transactions == [3]
    with broker.store.reading() as look:
        balances = [look.balance(one.id)[MoneyKind.SANDBOX] for one in found if isinstance(one, JobView)]
        assert [one.held for one in balances] == [Money.usd("1")] * 3
        assert len(look.decisions()) == 6, "the refusals are on record as well"
        before = [look.views([one.id]) for one in found if isinstance(one, JobView)], look.kept_sums()
    broker.store.rebuild()
    with broker.store.reading() as look:
        assert ([look.views([one.id]) for one in found if isinstance(one, JobView)], look.kept_sums()) == before


def test_an_invalid_submission_does_not_block_others_of_its_batch(together: Together, transactions: list[int]) -> None:
    found = together("1", "0.000001", "1")
    assert [type(one) for one in found] == [JobView, InvalidInput, JobView]
    assert transactions == [2]


def test_where_approvals_are_asked_for_each_has_a_transaction_of_its_own(
    broker: Broker, together: Together, transactions: list[int]
) -> None:
    """What standing grants and pending requests leave is read from what is written."""
    asks = "guardrails: [{name: big, approve_above: {cost: $0.5, approvers: [bob], expires: 6h}}]\n"
    broker.store.activate_policy({"t.yaml": POLICY + asks}, by="test")
    assert [isinstance(one, JobView) and one.asked is not None for one in together("1", "1")] == [True, True]
    assert transactions == [1, 1]


def test_each_is_tried_alone_if_the_transaction_of_all_fails(
    together: Together, transactions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = NewJobs.write

    def fails_for_several(self: NewJobs, connection: Any) -> None:
        if len(self.jobs) > 1:
            raise StoreProblem("one of them cannot be written")
        write(self, connection)

    monkeypatch.setattr(NewJobs, "write", fails_for_several)
    assert all(isinstance(one, JobView) for one in together("1", "1"))
    assert transactions == [1, 1]


def _full_once(broker: Broker, monkeypatch: pytest.MonkeyPatch, transactions: Sequence[int]) -> None:
    """The disk is full as the first transaction that admits jobs is committed."""
    dialect, failed = broker.store._database.engine.dialect, list[bool]()
    commit = dialect.do_commit

    def full(connection: Any) -> None:
        if transactions and not failed:
            failed.append(True)
            error = sqlite3.OperationalError("of the driver")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        commit(connection)

    monkeypatch.setattr(dialect, "do_commit", full)


def test_each_is_tried_alone_if_the_database_refuses_the_commit_of_all(
    broker: Broker, together: Together, transactions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _full_once(broker, monkeypatch, transactions)
    assert all(isinstance(one, JobView) for one in together("1", "1"))
    assert transactions == [2, 1, 1]


def test_a_commit_that_the_database_refuses_leaves_nothing_unknown(
    broker: Broker, together: Together, transactions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _full_once(broker, monkeypatch, transactions)
    (told,) = together("1")
    assert "the disk is full" in str(told)
    assert not isinstance(told, OutcomeUnknown)
    with broker.store.reading() as look:
        assert look.jobs() == []


def test_an_array_that_is_refused_after_its_first_records_leaves_none(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = arrays.begin

    def refused(*given: Any, **more: Any) -> JobView:
        begin(*given, **more)
        raise InvalidInput("of the test")

    monkeypatch.setattr(arrays, "begin", refused)
    broker.store.activate_policy({"t.yaml": POLICY}, by="test")
    text = JOB.format(n=1, cost=1) + "array: {range: 3, parallel: 2}\n"
    with pytest.raises(InvalidInput, match="of the test"):
        submit(broker, parse_job(text, file="job.yaml", now=broker.clock.now()), by=ANN)
    with broker.store.reading() as look:
        assert (look.jobs(), look.entries(), look.decisions()) == ([], [], [])


def _broken_off(writing: Callable[..., Any], transactions: Sequence[int]) -> Callable[..., Any]:
    """As ``writing``, but the connection is lost during the commit of new jobs."""

    @contextmanager
    def broken_off(store: Store) -> Iterator[StoreWriter]:
        with writing(store) as tx:
            yield tx
        if transactions:
            raise CommitUnknown("the connection was lost")

    return broken_off


def test_nobody_tries_again_what_may_be_on_record(
    together: Together, transactions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "writing", _broken_off(Store.writing, transactions))
    assert [type(one) for one in together("1", "1")] == [CommitUnknown, CommitUnknown]
    assert transactions == [2]


@pytest.mark.parametrize("more", ["array: {range: 3, parallel: 2}\n", "after: [{job: EARLIER}]\n"])
def test_of_an_array_and_of_a_later_job_it_is_told_that_it_may_be_on_record(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """So that the key of a request stays taken: a second try would submit a second one."""

    def job(n: int, more: str = "") -> Job:
        return parse_job(JOB.format(n=n, cost=1) + more, file="job.yaml", now=broker.clock.now())

    broker.store.activate_policy({"t.yaml": POLICY}, by="test")
    earlier = submit(broker, job(1), by=ANN)
    dialect = broker.store._database.engine.dialect
    commit = dialect.do_commit

    def without_an_answer(connection: Any) -> None:
        commit(connection)
        if connection.execute("SELECT 1 FROM job WHERE name = 'job-2'").fetchone():
            error = sqlite3.OperationalError("of the driver")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

    with monkeypatch.context() as patched:
        patched.setattr(dialect, "do_commit", without_an_answer)
        with pytest.raises(OutcomeUnknown):
            submit(broker, job(2, more.replace("EARLIER", earlier.id)), by=ANN)
    with broker.store.reading() as look:
        assert len(look.jobs(name="job-2")) == 1


def test_the_main_thread_waits_for_no_other() -> None:
    """Ctrl-C arrives there, between any two lines: others would wait for ever for a turn that it had taken."""
    begun, go_on, done = threading.Event(), threading.Event(), list[Sequence[int]]()

    def do(some: Sequence[int]) -> None:
        if 1 in some:
            begun.set()
            go_on.wait(10)
        done.append(some)

    turns = GroupCommit(do, max_batch=3)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(turns.take, 1)
        assert begun.wait(10)
        turns.take(2)
        assert done == [[2]]
        go_on.set()
        other.result(10)
