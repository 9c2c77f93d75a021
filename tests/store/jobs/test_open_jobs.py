"""All open jobs at a stroke say the same as each job asked by itself."""

from datetime import UTC, datetime, timedelta

from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Account, Movement, Tags, balances, move
from broker.store import Store

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def submit(store: Store, job_id: str, later: timedelta) -> None:
    submitted = ev.Submitted(job=Job(name=job_id, run="x"), user="ann", max_duration_seconds=3600)
    with store.writing() as tx:
        tx.append(job_id, [(None, submitted)], NOW + later)


def pay(store: Store, job_id: str, kind: MoneyKind, hold: str, *settled: str) -> None:
    tags = Tags(job_id, "ann")
    with store.writing() as tx:
        hour = (NOW, NOW + HOUR)
        tx.post(
            move(
                Movement.HOLD,
                Money.usd(hold),
                movement_id=f"{job_id}/{kind}",
                money=kind,
                at=NOW,
                covers=hour,
                tags=tags,
            )
        )
        for n, amount in enumerate(settled):
            span = (NOW + n * HOUR, NOW + (n + 1) * HOUR)
            tx.post(
                move(
                    Movement.SETTLE, Money.usd(amount), movement_id=f"{job_id}/{kind}/{n}", money=kind,
                    at=span[1], covers=span, tags=Tags(job_id, "ann", attempt=1 + n % 2),
                )
            )  # fmt: skip


def test_open_jobs_at_a_stroke(store: Store) -> None:
    for job_id, later in (("b", HOUR), ("a", 2 * HOUR), ("closed", 0 * HOUR)):
        submit(store, job_id, later)
    pay(store, "a", MoneyKind.CASH, "10", "1", "2", "3")
    pay(store, "a", MoneyKind.SANDBOX, "5")
    pay(store, "closed", MoneyKind.CASH, "1", "1")
    with store.writing() as tx:
        tx.append("a", [(None, ev.CancelRequested(by="ann"))], NOW)
        tx.append("closed", [(None, ev.JobEnded(state=JobState.CANCELLED)), (None, ev.JobClosed())], NOW)
    with store.reading() as look:
        assert list(look.last_events().items()) == [("b", 1), ("a", 2)]
        assert look.last_events(["a", "closed", "unknown"]) == {"a": 2}
        assert {view.id: view for view in look.views(["a", "closed"])} == {
            "a": look.job("a"), "closed": look.job("closed"),
        }  # fmt: skip
        assert look.open_balances() == {"a": look.balance("a")}
        sums = look.sums(["a", "b"])["a"]
        assert balances(sums) == look.balance("a") == balances(look.entries("a"))
        spent = {entry.tags.attempt: entry for entry in sums if entry.account is Account.SPENT}
        assert {number: entry.amount for number, entry in spent.items()} == {1: Money.usd("4"), 2: Money.usd("2")}
        assert (spent[1].covers_from, spent[1].covers_to) == (NOW, NOW + 3 * HOUR)
        assert "b" not in look.sums(["b"])
