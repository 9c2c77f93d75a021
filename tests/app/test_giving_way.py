"""Jobs that give way to urgent ones, through whole lives of both, in either kind of store: what may happen between the
request to stop and the start."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from broker.app.jobs import jobs
from broker.app.jobs.submit import submit
from broker.app.service import passes
from broker.app.wiring import Broker
from broker.core.errors import StoreProblem
from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import AttemptView, JobView
from broker.core.job.file import parse_job
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import faults
from broker.settings import Settings
from broker.store.jobs.journal import StoreWriter
from cli import registries
from tests.actors import ANN, EVERYBODYS
from tests.app.test_approved_facts import MONEY, ApprovalSite, offer
from tests.empty_store import empty_store

PREEMPTS = f"{MONEY}priorities: {{urgent: {{preempts: true}}}}\n"
JOB = "run: 'true'\nresources: {accelerators: 'H100:8'}\nmax_duration: 20h\nwork: 10h\n"
MINUTE = timedelta(minutes=1)


class Machines(ApprovalSite):
    """Two machines of our own at $8 an hour, on which two jobs have worked for an hour."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(broker, monkeypatch)
        own = offer("owned", "site", "8", CapacityType.OWNED)
        self.offers = [replace(own, slots=2, money=MoneyKind.AMORTISED)]
        self.policy(PREEMPTS)
        for name in ("a", "b"):
            self.submits(name)
        self.passes()
        for name in ("a", "b"):
            self.mailbox.starts(self.latest(name).key)
        self.passes(by=60 * MINUTE)

    def policy(self, text: str) -> None:
        self.broker.store.activate_policy({"t.yaml": text}, by="test")

    def submits(self, name: str, more: str = "") -> None:
        submit(self.broker, parse_job(f"name: {name}\n{JOB}{more}", file="j.yaml", now=self.clock.now()), by=ANN)

    def passes(self, times: int = 2, by: timedelta = timedelta(seconds=20)) -> None:
        """Passes of the reconciler; the agents of all machines that stand report."""
        for _ in range(times):
            self.clock.advance(by)
            for key, machine in self.engine.machines.items():
                if machine.gone_at is None and key in self.mailbox.nodes:
                    self.mailbox.says(key)
            passes.reconciler(self.broker).tick()

    def view(self, name: str) -> JobView:
        return jobs.find(self.broker, name)

    def latest(self, name: str) -> AttemptView:
        latest = self.view(name).latest
        assert latest is not None
        return latest

    def held(self, name: str) -> Money:
        with self.broker.store.reading() as reader:
            return sum((balance.held for balance in reader.balance(self.view(name).id).values()), Money.ZERO)

    def asked_to_stop(self) -> list[str]:
        return [name for name in ("a", "b") if self.latest(name).stop_requested is not None]

    def saves_and_leaves(self, name: str) -> None:
        key = self.latest(name).key
        self.mailbox.says(key, CheckpointSaved(checkpoint="c1", step=7, size=1))
        self.mailbox.exits(key, Cause.MOVED)
        self.passes(4)

    def completes(self, name: str) -> None:
        self.mailbox.exits(self.latest(name).key, Cause.COMPLETED, 0)
        self.passes(4)
        assert self.view(name).state is JobState.SUCCEEDED


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def machines(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    sqlite = request.param == "sqlite"
    url = empty_store(tmp_path / "store.db") if sqlite else str(request.getfixturevalue("new_postgres_store")())
    broker = Broker(Settings(home=tmp_path, store=url, runs=(tmp_path / "runs").as_uri()), registries(), EVERYBODYS)
    yield Machines(broker, monkeypatch)
    with broker.store.reading() as reader:
        assert faults(reader.entries()) == []
    assert broker.store.prove().differing == []
    broker.store.close()


def is_placed_again(machines: Machines, name: str) -> bool:
    view = machines.view(name)
    assert view.checkpoint is not None
    return (view.checkpoint.id, machines.engine.submitted[-1]) == ("c1", f"{view.id}-2")


def test_both_do_their_work_and_the_money_adds_up(machines: Machines) -> None:
    machines.submits("rush", "priority: urgent\n")
    machines.passes()
    (name,) = machines.asked_to_stop()
    assert machines.held("rush") > Money.ZERO
    machines.saves_and_leaves(name)
    assert machines.engine.submitted[-1] == machines.latest("rush").key
    assert machines.view(name).state is JobState.INTERRUPTED

    machines.mailbox.starts(machines.latest("rush").key)
    machines.completes("rush")
    assert is_placed_again(machines, name)
    machines.mailbox.starts(machines.latest(name).key, "c1")
    for each in ("a", "b"):
        machines.completes(each)
    assert [machines.held(each) for each in ("a", "b", "rush")] == [Money.ZERO] * 3


def test_a_crash_between_the_hold_and_the_stop_leaves_neither(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = StoreWriter.append

    def crashes(
        tx: StoreWriter, job_id: str, items: Sequence[tuple[int | None, ev.EventBody]], at: datetime
    ) -> JobView:
        if any(isinstance(body, ev.StopRequested) for _, body in items):
            raise StoreProblem("the disk is full")
        return append(tx, job_id, items, at)

    machines.submits("rush", "priority: urgent\n")
    before = machines.held("rush"), machines.view("rush").seq
    with monkeypatch.context() as disk:
        disk.setattr(StoreWriter, "append", crashes)
        machines.passes(1)
    assert (machines.held("rush"), machines.view("rush").seq, machines.asked_to_stop()) == (*before, [])
    machines.passes()
    assert len(machines.asked_to_stop()) == 1


def test_an_asker_that_is_canceled_leaves_the_place_to_the_one_that_gave_way(machines: Machines) -> None:
    machines.submits("rush", "priority: urgent\n")
    machines.passes()
    (name,) = machines.asked_to_stop()
    jobs.cancel(machines.broker, machines.view("rush"), by=ANN)
    machines.passes()
    assert (machines.view("rush").state, machines.held("rush")) == (JobState.CANCELLED, Money.ZERO)
    machines.saves_and_leaves(name)
    assert is_placed_again(machines, name)


def test_a_job_that_ends_while_it_is_asked_to_stop_has_succeeded(machines: Machines) -> None:
    machines.submits("rush", "priority: urgent\n")
    machines.passes()
    (name,) = machines.asked_to_stop()
    machines.completes(name)
    machines.passes()
    assert machines.engine.submitted[-1] == machines.latest("rush").key
    assert machines.asked_to_stop() == [name], "nobody else gives way"


def test_a_policy_withdrawn_after_the_stop_stops_nobody_else(machines: Machines) -> None:
    machines.submits("rush", "priority: urgent\nnum_nodes: 2\n")
    machines.passes()
    assert machines.asked_to_stop() == ["a", "b"]
    machines.policy(MONEY)
    machines.saves_and_leaves("a")
    machines.saves_and_leaves("b")
    assert machines.engine.submitted[-1] == machines.latest("rush").key, "it is its turn all the same"


def test_of_two_askers_one_after_the_other_takes_a_place(machines: Machines) -> None:
    machines.submits("first", "priority: urgent\n")
    machines.submits("second", "priority: urgent\n")
    machines.passes(3)
    (name,) = machines.asked_to_stop()
    machines.saves_and_leaves(name)
    assert machines.latest("first").key in machines.engine.submitted
    assert machines.view("second").attempts == ()
    (other,) = {"a", "b"} - {name}
    assert machines.latest(other).stop_requested is Cause.MOVED
    machines.saves_and_leaves(other)
    assert machines.engine.submitted[-1] == machines.latest("second").key
