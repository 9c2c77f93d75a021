"""The first records of a new job in one round trip: the same rows as one by one, all or none of them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.errors import StoreProblem
from broker.core.events import events as ev
from broker.core.events.wait_reasons import NothingFits
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Answer
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags, move
from broker.reconciler.admission.records import hold_entries
from broker.store import Store
from broker.store.jobs.journal import StoreWriter
from broker.store.jobs.reader import StoreReader

T = datetime(2026, 3, 2, 12, tzinfo=UTC)


def begun(tx: StoreWriter, job_id: str, amount: str = "5") -> None:
    with tx.at_once():
        first_records(tx, job_id, amount)


def first_records(tx: StoreWriter, job_id: str, amount: str) -> None:
    hold = {MoneyKind.CASH: Burn.evenly(Money.usd(amount), (T, T + timedelta(hours=1)))}
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
    with pytest.raises((StoreProblem, ValueError)):
        _both(store)
    with store.reading() as look:
        assert look.job("j-0") is None
        assert look.balance("j-1")[MoneyKind.CASH].held == Money.usd("5")
        assert len(look.decisions()) == 1


def test_what_is_kept_counts_before_it_is_written(store: Store) -> None:
    """As what is written counts afterwards: the next of several submissions is judged by it."""
    everybody = BudgetSpec("all", "month", "UTC", frozenset({MoneyKind.CASH}))
    nlp, others = replace(everybody, id="nlp", teams=("n*",)), replace(everybody, id="vision", teams=("vision",))
    simulated = replace(everybody, id="simulated", counts=frozenset({MoneyKind.SANDBOX}))
    until = T + timedelta(days=9)

    def held(look: StoreReader) -> list[Money]:
        return [
            sum((b.amount for b in look.held(one, until)), Money.ZERO) for one in (everybody, nlp, others, simulated)
        ]

    with store.writing() as tx:
        begun(tx, "j-1")
        with tx.at_once():
            assert held(tx) == [Money.usd("5"), Money.usd("5"), Money.ZERO, Money.ZERO]
            first_records(tx, "j-2", "7")
            first_records(tx, "j-3", "1")
            before = held(tx), tx.spent(everybody, T, until), tx.live_attempts()
        assert (held(tx), tx.spent(everybody, T, until), tx.live_attempts()) == before
    assert before[0] == [Money.usd("13"), Money.usd("13"), Money.ZERO, Money.ZERO]


def test_only_first_records_are_kept(store: Store) -> None:
    settled = move(
        Movement.SETTLE,
        Money.usd("1"),
        movement_id="m",
        money=MoneyKind.CASH,
        at=T,
        covers=(T, T),
        tags=Tags("j-1", "a"),
    )
    with store.writing() as tx:
        begun(tx, "j-1")
        with tx.at_once(), pytest.raises(ValueError, match="hold of a new job"):
            tx.post(settled)
        with tx.at_once(), pytest.raises(ValueError, match="new job"):
            tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], T)
