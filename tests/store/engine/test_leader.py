"""One leader per store, on both databases; the lead goes with its process. Submissions use snapshots side by
side; a deletion uses them alone.
"""

import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from broker.core.values.clock import ManualClock
from broker.store import Store, open_store
from broker.store.engine.leader import LeaderRole

HOLD = """
import sys, time
from broker.core.values.clock import SystemClock
from broker.store import open_store
with open_store(sys.argv[1], clock=SystemClock()).lead() as still:
    print("leading" if still else "not", flush=True)
    time.sleep(600)  # until it is killed
"""


def test_only_one_leads_and_others_can_tell(url: str, clock: ManualClock) -> None:
    one, other = open_store(url, clock=clock), open_store(url, clock=clock)
    assert not other.is_led()
    with one.lead() as still:
        assert still is not None
        assert still()
        assert other.is_led()
        with other.lead() as second:
            assert second is None
        assert still()
    assert not other.is_led()
    with other.lead() as still:
        assert still is not None
    one.close()
    other.close()


def test_looking_whether_somebody_leads_does_not_keep_anybody_from_leading(url: str, clock: ManualClock) -> None:
    one = open_store(url, clock=clock)
    for _ in range(20):
        assert not one.is_led()
        with one.lead() as still:
            assert still is not None
    one.close()


def test_a_killed_leader_leaves_the_lead_to_the_next(url: str, clock: ManualClock) -> None:
    store = open_store(url, clock=clock)
    leader = subprocess.Popen([sys.executable, "-c", HOLD, url], stdout=subprocess.PIPE, text=True)
    assert leader.stdout is not None
    assert leader.stdout.readline() == "leading\n"
    assert store.is_led()
    leader.kill()
    leader.wait()
    leader.stdout.close()

    def led() -> bool:
        return store.is_led()

    _until(lambda: not led())
    with store.lead() as still:
        assert still is not None
    store.close()


def _until(condition: Callable[[], bool]) -> None:
    """PostgreSQL notices a dead client a moment later."""
    for _ in range(1000):
        if condition():
            return
    raise AssertionError("the lead was not given up")


@pytest.mark.system
def test_a_lead_whose_connection_broke_is_lost_for_good(new_postgres: Callable[[], str], clock: ManualClock) -> None:
    """PostgreSQL came back and would answer again; who led before must not take that for still having the lead."""
    url = new_postgres()
    one, other = open_store(url, clock=clock), open_store(url, clock=clock)
    with one.lead() as still:
        assert still is not None
        assert still()
        end_all_others(url)
        assert not still()
        with other.lead() as second:
            assert second is not None
            assert not still()
        assert not still()
    with one.lead() as again:
        assert again is not None
    one.close()
    other.close()


def end_all_others(url: str) -> None:
    """Break every connection to the database but the one that does it, as a restart of the server would."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        connection.execute(f"{query} AND pid <> pg_backend_pid()")


def test_who_leads_one_duty_holds_up_no_other(url: str, clock: ManualClock) -> None:
    one, other = open_store(url, clock=clock), open_store(url, clock=clock)
    with ExitStack() as leads:
        for role in LeaderRole:
            assert leads.enter_context(one.lead(role)) is not None, role
        assert [leads.enter_context(other.lead(role)) for role in LeaderRole] == [None] * len(LeaderRole)
    one.close()
    other.close()


def test_submissions_side_by_side_and_deletions_alone(store: Store) -> None:
    with store.using_snapshots(), store.using_snapshots(), store.deleting_snapshots(wait=0) as alone:
        assert not alone
    with store.deleting_snapshots(wait=0) as alone, store.deleting_snapshots(wait=0) as second:
        assert (alone, second) == (True, False)
    with store.deleting_snapshots(wait=0) as alone:
        assert alone, "given back"


def test_a_service_with_all_its_duties_keeps_no_submission_waiting(store: Store) -> None:
    with ExitStack() as duties:
        for duty in LeaderRole:
            assert duties.enter_context(store.lead(duty)) is not None
        with store.deleting_snapshots(wait=0) as alone:
            assert alone
