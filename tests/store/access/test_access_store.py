"""People, tokens, requests and jobs in pages, as the store keeps them, on each database."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.access.api_tokens import ApiToken, AuditOutcome, AuditRecord
from broker.core.access.people import Person, TeamRole, TokenScope
from broker.core.access.sessions import PageSession
from broker.core.actors import EntryPoint, Role
from broker.core.events.events import Submitted
from broker.core.job.jobs import Job
from broker.core.values.clock import ManualClock
from broker.store import Store
from broker.store.jobs.job_rows import JobListFilter, JobPlace


def test_a_person_reads_back_as_they_were_kept(store: Store, clock: ManualClock) -> None:
    ann = Person("ann", clock.now(), False, frozenset({Role.FINOPS}), {"nlp": TeamRole.MEMBER})
    gone = Person("bob", clock.now(), True, disabled_at=clock.now())
    with store.access.writing() as tx:
        tx.keep_person(ann)
        tx.keep_person(gone)
        tx.keep_person(gone)
    with store.access.reading() as look:
        assert look.people() == [ann, gone]
        assert look.person("ann") == ann
        assert look.person("eve") is None


def test_a_session_reads_back_until_it_is_ended_or_over(store: Store, clock: ManualClock) -> None:
    now, hour = clock.now(), timedelta(hours=1)
    first, second = (PageSession(digest, "ann", "a1", now, now, now + hour) for digest in ("d1", "d2"))
    with store.access.writing() as tx:
        tx.begin_session(first)
        tx.begin_session(second)
        tx.record_session_use("d1", now + hour / 2)
    with store.access.reading() as look:
        assert look.session("d1") == replace(first, seen_at=now + hour / 2)
        assert look.session("d3") is None
    with store.access.writing() as tx:
        tx.end_session("d1")
        assert tx.session("d1") is None
        tx.begin_session(PageSession("d4", "ann", "a1", now + hour, now + hour, now + 2 * hour))
        assert tx.session("d2") is None, "it was over"
        assert tx.end_sessions("bob") == 0
        assert tx.end_sessions("ann") == 1
        assert tx.session("d4") is None


def test_a_token_reads_back_and_is_revoked_and_used(store: Store, clock: ManualClock) -> None:
    now = clock.now()
    token = ApiToken("a1", "ann", "laptop", frozenset(TokenScope), "digest", now, "root", now + timedelta(days=1))
    with store.access.writing() as tx:
        tx.add_token(token)
        tx.record_token_use("a1", now)
        revoked = tx.revoke_token(token, by="root", at=now)
    with store.access.reading() as look:
        kept = look.token("a1")
        assert look.tokens("eve") == []
    assert kept is not None
    assert (kept.revoked_at, kept.revoked_by, kept.used_at) == (now, "root", now)
    assert (kept.scopes, kept.digest, kept.expires_at) == (token.scopes, token.digest, token.expires_at)
    assert not revoked.good(now)


def test_the_log_counts_on_and_is_read_newest_first(store: Store, clock: ManualClock) -> None:
    first = AuditRecord(clock.now(), "ann", EntryPoint.COMMAND_LINE, "people.add", "bob")
    second = AuditRecord(clock.now(), "bob", "api ::1", "jobs.cancel", "j1", AuditOutcome.REFUSED, "t", "a", "b", "why")
    with store.access.writing() as tx:
        assert [tx.log(first), tx.log(second)] == [1, 2]
    with store.access.reading() as look:
        assert look.audit(limit=5) == [(2, second), (1, first)]
        assert look.audit(limit=5, person="ann") == [(1, first)]
        assert look.audit(limit=5, subject="j1", person="ann") == []
        assert (look.audit_chain().lines, look.audit_chain().intact) == (2, True)


def test_one_of_many_begins_a_request(store: Store, clock: ManualClock) -> None:
    begun: list[int] = []
    start = threading.Barrier(4)

    def ask(number: int) -> None:
        start.wait()
        with store.access.writing() as tx:
            if tx.request("ann", "key") is None:
                tx.begin_request("ann", "key", "d", clock.now())
                begun.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(begun) == 1


def test_a_request_is_kept_for_a_week(store: Store, clock: ManualClock) -> None:
    with store.access.writing() as tx:
        tx.begin_request("ann", "old", "d", clock.now())
        tx.finish_request("ann", "old", 200, "{}")
    clock.advance(timedelta(days=7))
    with store.access.writing() as tx:
        tx.begin_request("ann", "new", "d", clock.now())
        kept = tx.request("ann", "old")
        assert kept is not None
        assert (kept.status, kept.body) == (200, "{}")
        tx.forget_request("ann", "new")
    clock.advance(timedelta(microseconds=1))
    with store.access.writing() as tx:
        tx.begin_request("ann", "new", "d", clock.now())
        assert tx.request("ann", "old") is None


@pytest.fixture
def filled(store: Store, clock: ManualClock) -> Store:
    """Six jobs, two at each moment, of two teams and of none."""
    with store.writing() as journal:
        for number, team in enumerate(["nlp", "vision", "nlp", None, "nlp", "vision"]):
            job = Job(name="x", run="true", team=team)
            body = Submitted(job=job, user="ann", max_duration_seconds=1.0)
            journal.append(f"j{number}", [(None, body)], clock.now() + timedelta(seconds=number // 2))
    return store


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7])
@pytest.mark.parametrize(
    ("teams", "expected"),
    [
        (None, ["j5", "j4", "j3", "j2", "j1", "j0"]),
        (frozenset({"nlp"}), ["j4", "j2", "j0"]),
        (frozenset({"nlp", "vision"}), ["j5", "j4", "j2", "j1", "j0"]),
        (frozenset(), []),
    ],
)
def test_pages_hold_each_job_once_in_order(
    filled: Store, teams: frozenset[str] | None, expected: list[str], limit: int
) -> None:
    found: list[str] = []
    after: JobPlace | None = None
    while True:
        with filled.reading() as look:
            page = look.job_page(JobListFilter(visible=teams), after=after, limit=limit)
        found += [view.id for view in page.views]
        assert len(page.views) <= limit
        after = page.next
        if after is None:
            break
    assert found == expected
