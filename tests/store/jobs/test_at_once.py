"""The first records of a new job in one round trip: the same rows as one by one, all or none of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from broker.core.errors import StoreProblem
from broker.core.events import events as ev
from broker.core.events.wait_reasons import NothingFits
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags
from broker.reconciler.admission.records import hold_entries
from broker.store import Store
from broker.store.jobs.journal import StoreWriting

T = datetime(2026, 3, 2, 12, tzinfo=UTC)


def begun(tx: StoreWriting, job_id: str, amount: str = "5") -> None:
    hold = {MoneyKind.CASH: Burn.evenly(Money.usd(amount), (T, T + timedelta(hours=1)))}
    with tx.at_once():
        tx.record(Decision(T, ActionKind.LAUNCH, "ann", "train", Answer.ALLOW, "1", "", job_id=job_id, attempt=1))
        tx.post(hold_entries(Tags(job_id, "ann", team="nlp"), {}, hold, Movement.HOLD, 1))
        submitted = ev.Submitted(job=Job(name="train", run="x"), user="ann", max_duration_seconds=60.0)
        tx.append(job_id, [(None, submitted), (None, ev.NothingFeasible(reason=NothingFits(counts={})))], T)


def _both(store: Store) -> None:
    with store.writing() as tx:
        begun(tx, "j-0")
        begun(tx, "j-1")


def test_what_is_written_at_once_is_all_there(store: Store) -> None:
    with store.writing() as tx:
        begun(tx, "j-1")
        begun(tx, "j-2", "7")
    with store.reading() as look:
        assert [view.seq for view in look.views(["j-1", "j-2"])] == [2, 2]
        assert look.balance("j-2")[MoneyKind.CASH].held == Money.usd("7")
        assert len(look.events("j-1")) == 2
        assert [one.job_id for one in look.decisions()] == ["j-2", "j-1"]
        before = [look.views(["j-1"]), look.balance("j-1"), look.sums(["j-1"]), look.kept_sums()]
    store.rebuild()
    with store.reading() as look:
        assert [look.views(["j-1"]), look.balance("j-1"), look.sums(["j-1"]), look.kept_sums()] == before


def test_what_exists_already_fails_and_leaves_nothing(store: Store) -> None:
    with store.writing() as tx:
        begun(tx, "j-1")
    with pytest.raises((StoreProblem, ValueError)):  # SQLite tells at once, PostgreSQL at the end
        _both(store)
    with store.reading() as look:
        assert look.job("j-0") is None
        assert look.balance("j-1")[MoneyKind.CASH].held == Money.usd("5")
        assert len(look.decisions()) == 1
