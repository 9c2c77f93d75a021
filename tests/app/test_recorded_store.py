"""The jobs of a store of commit 6aefd21 (version 0.1) go on: they are placed anew, cancelled and settled."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from broker.app.billing.report import ledger_faults
from broker.app.jobs import jobs
from broker.app.results.reasons import waits
from broker.app.service import background
from broker.app.service.reconciler_setup import reconciler
from broker.app.wiring import Broker
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.wait_reasons import EarlierWords, PolicyDenies, SecretsMissing
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.settings import Settings
from cli import registries
from tests.actors import ANN, EVERYBODYS, with_clock
from tests.store.recorded_store import (
    DENIED,
    NEEDS_SECRET,
    PAUSED,
    RECORDED_AT,
    RUNNING,
    WAITING_FOR_APPROVAL,
    write_recorded,
)


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker of ann's over the recorded store. Its machines are gone: nothing of them is on this computer."""
    monkeypatch.delenv("TEST_TOKEN", raising=False)
    settings = Settings(home=tmp_path, store=write_recorded(tmp_path / "store.db"), runs=(tmp_path / "runs").as_uri())
    broker = Broker(settings, registries(), EVERYBODYS)
    broker = with_clock(broker, ManualClock(RECORDED_AT))
    yield broker
    broker.store.close()


def look_on(broker: Broker, *, times: int, every: timedelta = timedelta(seconds=30)) -> None:
    clock = broker.clock
    assert isinstance(clock, ManualClock)
    worker = reconciler(broker)
    for _ in range(times):
        worker.tick()
        clock.advance(every)


def test_what_waits_waits_on_for_the_same_reason(old: Broker) -> None:
    before = {job: waits(jobs.find(old, job).waiting) for job in (NEEDS_SECRET, PAUSED, WAITING_FOR_APPROVAL)}
    denied = waits(jobs.find(old, DENIED).waiting)
    look_on(old, times=2)
    assert {job: waits(jobs.find(old, job).waiting) for job in before} == before
    again = waits(jobs.find(old, DENIED).waiting)  # in the rule's words of this version
    assert all("may run for 40h" in words and "the limit is 1m" in words for words in (denied, again))


def test_what_a_policy_file_called_secrets_denies_does_not_wait_for_secrets(
    old: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an earlier version only a sentence is on record, which decides nothing; the next look records the reason."""
    assert isinstance(jobs.find(old, DENIED).waiting, EarlierWords)
    monkeypatch.setenv("TEST_TOKEN", "x")
    assert background._waits_for_what_is_here(old) is None
    monkeypatch.delenv("TEST_TOKEN")
    look_on(old, times=2)
    denied = jobs.find(old, DENIED).waiting
    assert isinstance(denied, PolicyDenies)
    assert all("secrets-team.yaml:" in one.source for one in denied.objections)
    assert jobs.find(old, NEEDS_SECRET).waiting == SecretsMissing(names=("TEST_TOKEN",))
    monkeypatch.setenv("TEST_TOKEN", "x")
    waiting = background._waits_for_what_is_here(old)
    assert waiting is not None
    assert waiting.id == NEEDS_SECRET


def test_what_waited_can_be_cancelled_and_gives_back_what_it_held(old: Broker) -> None:
    waiting = (WAITING_FOR_APPROVAL, DENIED, NEEDS_SECRET, PAUSED)
    for job in waiting:
        jobs.cancel(old, jobs.find(old, job), by=ANN)
    look_on(old, times=4)
    ended = [jobs.find(old, job) for job in waiting]
    assert [view.state for view in ended] == [JobState.CANCELLED] * 4
    assert all(view.closed for view in ended)
    with old.store.reading() as look:
        assert not any(one.held for view in ended for one in look.balance(view.id).values())
    assert ledger_faults(old) == []


def test_what_runs_on_another_computer_is_paid_on_and_hears_of_its_cancellation(old: Broker) -> None:
    def spent() -> Money:
        with old.store.reading() as look:
            return sum((one.spent for job in RUNNING for one in look.balance(job).values()), Money.ZERO)

    before = spent()
    look_on(old, times=20)
    assert spent() > before
    for job in RUNNING:
        jobs.cancel(old, jobs.find(old, job), by=ANN)
    look_on(old, times=2)
    assert [jobs.find(old, job).attempts[-1].stop_requested for job in RUNNING] == [Cause.CANCELLED_BY_USER] * 2
    assert ledger_faults(old) == []
