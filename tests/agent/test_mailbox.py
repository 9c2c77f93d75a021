"""The agent's correspondence: who asks for the lease is told what holds when it was asked, or later."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from broker.agent.environment import Scratch
from broker.agent.formats import Intervals, Lease, Spec
from broker.agent.journal import AttemptJournal
from broker.agent.mailbox import NodeMailbox
from broker.agent.rank import RankContext
from broker.agent.store import ObjectFolder, StoreTrouble
from broker.engines.runfolder.runfolder import RunFolder

SECONDS = 30.0  # after which something that should have happened has not
CANCELLED = Lease(stop="cancelled_by_user")


class StagedStore(ObjectFolder):
    """``between``: called with the number of each read of the lease, once the store has answered and before the answer
    arrives."""

    between: Callable[[int], None]
    reads = 0

    def read_dated(self, path: str) -> tuple[Mapping[str, Any], datetime] | None:
        found = super().read_dated(path)
        if path.endswith("/lease.json"):
            self.reads += 1
            self.between(self.reads)
        return found


@contextmanager
def correspondence(folder: Path, between: Callable[[int], None]) -> Iterator[tuple[NodeMailbox, RunFolder]]:
    """A mailbox that reads the lease only when it is asked, and the broker's side of its run folder."""
    runs = RunFolder(folder.as_uri(), "j")
    runs.write_lease(1, Lease())
    store = StagedStore.open((folder / "j").as_uri())
    assert isinstance(store, StagedStore)
    store.between = between
    spec = Spec("j", 1, "j-1", "true", intervals=Intervals(mail=3600.0))
    journal = AttemptJournal(store, None, spec.clock)
    here = RankContext(store, spec, 0, Scratch(folder), journal)
    mailbox = NodeMailbox(here, Lease(), lambda: None, lambda rank, ending: None)
    try:
        yield mailbox, runs
    finally:
        mailbox.stop()


def test_a_read_under_way_when_something_newer_comes_answers_no_question_about_it(tmp_path: Path) -> None:
    asked: list[threading.Event] = []
    early: list[bool] = []
    again = threading.Event()

    def between(read: int) -> None:
        if read == 1:
            runs.write_lease(1, CANCELLED)
            asked.append(mailbox.ask())
        elif read == 2:
            early.append(asked[0].is_set())
            again.set()

    with correspondence(tmp_path, between) as (mailbox, runs):
        mailbox.start(SECONDS)
        assert again.wait(SECONDS), "it reads once more"
        assert early == [False], "answered with what had been read before"
        assert asked[0].wait(SECONDS)
        assert mailbox.lease.stop == CANCELLED.stop


def test_the_lease_read_anew_is_the_brokers_last_word(tmp_path: Path) -> None:
    with correspondence(tmp_path, lambda read: None) as (mailbox, runs):
        mailbox.start(SECONDS)
        runs.write_lease(1, CANCELLED)
        assert mailbox.refresh_lease(SECONDS).stop == CANCELLED.stop


@pytest.mark.parametrize("trouble", [StoreTrouble("away"), RuntimeError("a mistake of ours")], ids=repr)
def test_a_lease_that_cannot_be_read_keeps_nobody_waiting(tmp_path: Path, trouble: Exception) -> None:
    def between(read: int) -> None:
        raise trouble

    with correspondence(tmp_path, between) as (mailbox, runs):
        mailbox.start(SECONDS)
        runs.write_lease(1, CANCELLED)
        assert mailbox.ask().wait(SECONDS)
        assert mailbox.lease == Lease(), "the last one holds"
