"""Sweeping a real store and this machine: orphans are found, told once, and ended when somebody says so."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from broker.agent.formats import Exit, Lease, Spec, attempt_path
from broker.agent.store import ObjectFolder
from broker.app.billing.report import ledger_faults
from broker.app.service.duties import SweepDuty
from broker.app.service.sweep import end_orphans, sweep
from broker.app.store_identity import store_id
from broker.app.wiring import Broker
from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState, Cause, JobState
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.ports import EngineState, Launch, Observation
from broker.core.values.money import Money
from broker.engines.local import Local
from broker.engines.runfolder.runfolder import RunFolder
from broker.ledger.entries import Movement, Tags, move
from broker.reconciler.sweep import LeftoverKind, LeftoverState
from tests.actors import EVERYBODYS
from tests.contracts.engine_bench import eventually
from tests.unreadable import damage_view

HOURS_AGO = datetime.now(UTC) - timedelta(hours=5)
NO_GRACE = timedelta(0)
OFFER = Offer(
    "owned", "here", None, "this-machine", None, 0, CapacityType.ON_DEMAND, Money.usd("2"), HOURS_AGO, "x",
    engine="local", money=MoneyKind.CASH,
)  # fmt: skip
PLACEMENT = Placement(OFFER, 1, Money.usd("2"), Money.usd("2"), (), None, None, 1.0, 1.0, 0.0)
POLICY = "version: 1\npolicy: sweeping\ndefaults: {end_orphans_after: 15m}\n"


@pytest.fixture
def broker(new_broker: Callable[[], Broker]) -> Broker:
    """One that can ask this machine, and no cloud."""
    made = new_broker()
    return Broker(made.settings, replace(made.registries, providers={}), EVERYBODYS)


def record(broker: Broker, job_id: str, *bodies: ev.EventBody) -> None:
    """A job with these events, some hours ago."""
    submitted = ev.Submitted(job=Job(name=job_id, run="x"), user="ann", max_duration_seconds=86400)
    about_job = (ev.Submitted, ev.JobEnded, ev.JobClosed)
    with broker.store.writing() as tx:
        for body in (submitted, *bodies):
            tx.append(job_id, [(None if isinstance(body, about_job) else 1, body)], HOURS_AGO)


def requested(job_id: str) -> ev.LaunchRequested:
    return ev.LaunchRequested(key=f"{job_id}-1", engine="local", placement=PLACEMENT)


def hold(broker: Broker, job_id: str, amount: str) -> None:
    with broker.store.writing() as tx:
        tx.post(
            move(
                Movement.HOLD, Money.usd(amount), movement_id=f"{job_id}/hold/1/cash", money=MoneyKind.CASH,
                at=HOURS_AGO, covers=(HOURS_AGO, HOURS_AGO + timedelta(days=1)), tags=Tags(job_id, "ann"),
            )
        )  # fmt: skip


def held(broker: Broker, job_id: str) -> Money:
    with broker.store.reading() as look:
        return look.balance(job_id)[MoneyKind.CASH].held


@contextmanager
def process(broker: Broker, key: str, store: str) -> Iterator[Local]:
    """A machine of this machine's engine that runs under that key."""
    engine = broker.engine("local")
    assert isinstance(engine, Local)
    runs = RunFolder(broker.settings.runs_url, key)
    runs.write_lease(1, Lease())
    runs.write_spec(Spec(key, 1, key, "exec sleep 300", grace=1.0))
    handle = engine.submit(Launch(key, Job(name=key, run="x"), PLACEMENT, runs.attempt_url(1), store=store))
    try:
        yield engine
    finally:

        def gone() -> bool:
            engine.end(handle)
            return key not in {one.key for one in engine.machines()}

        eventually(gone, "it is gone")


def test_the_stores_id_stays_and_a_copy_has_another(broker: Broker, tmp_path: Path) -> None:
    mine = store_id(broker.store)
    assert mine == store_id(broker.store)
    assert len(mine) == 12
    (tmp_path / "copy.db").write_bytes((tmp_path / "store.db").read_bytes())
    copy = Broker(
        broker.settings.model_copy(update={"store": f"sqlite:///{tmp_path / 'copy.db'}"}), broker.registries, EVERYBODYS
    )
    assert store_id(copy.store) != mine
    copy.store.close()


def test_nothing_to_sweep(broker: Broker) -> None:
    swept = sweep(broker)
    assert (swept.found, swept.asked, swept.trouble) == ((), (), {})


def test_a_process_of_ours_that_no_job_knows_is_ended_and_a_running_job_is_not(broker: Broker) -> None:
    mine = store_id(broker.store)
    record(broker, "runs", requested("runs"))
    with process(broker, "runs-1", mine), process(broker, "lost-1", mine), process(broker, "other-1", "f" * 12):
        engine = broker.engine("local")
        assert isinstance(engine, Local)
        assert {one.standing for one in sweep(broker).found} == {LeftoverState.TOO_YOUNG, LeftoverState.ANOTHER_STORE}
        swept = sweep(broker, NO_GRACE)
        (orphan,) = swept.orphans
        assert (orphan.kind, orphan.key) == (LeftoverKind.MACHINE, "lost-1")
        assert list(end_orphans(broker, swept).values()) == [""]

        def ended() -> bool:
            end_orphans(broker, sweep(broker, NO_GRACE))
            return {one.key for one in engine.machines()} == {"runs-1", "other-1"}

        eventually(ended, "the orphan is gone, and only that")


def up(broker: Broker, job_id: str) -> tuple[ev.EventBody, ...]:
    """An attempt that is up for hours, of which the engine knows nothing."""
    engine = broker.engine("local")
    assert isinstance(engine, Local)
    return requested(job_id), ev.Launched(handle=engine._handles.of(f"{job_id}-1")), ev.MachineUp(since=HOURS_AGO)


def test_a_job_that_was_completed_while_nobody_looked_is_not_taken_for_lost(broker: Broker) -> None:
    """Its last word lies in its run folder, unread: only the reconciler may say how it ended."""
    record(broker, "done", *up(broker, "done"))
    folder = ObjectFolder.open(RunFolder(broker.settings.runs_url, "done").url)
    folder.write_json(attempt_path(1, "exit.json"), Exit("completed", HOURS_AGO, 0).to_json())
    swept = sweep(broker, NO_GRACE)
    assert [(one.key, one.standing) for one in swept.found] == [("done-1", LeftoverState.RECONCILER)]
    assert end_orphans(broker, swept) == {}
    forced = replace(swept, found=tuple(replace(one, standing=LeftoverState.ORPHAN) for one in swept.found))
    assert list(end_orphans(broker, forced).values()) == [""], "and where it is told to all the same, it does nothing"
    with broker.store.reading() as look:
        view = look.job("done")
    assert view is not None
    (attempt,) = view.attempts
    assert (attempt.state.final, attempt.gone) == (False, False)


def test_an_attempt_without_a_machine_is_closed_and_its_machine_time_settled(broker: Broker) -> None:
    record(broker, "dead", *up(broker, "dead"), ev.AttemptEnded(cause=Cause.MACHINE_LOST))
    hold(broker, "dead", "50")
    swept = sweep(broker)
    (orphan,) = swept.orphans
    assert (orphan.kind, orphan.key) == (LeftoverKind.ATTEMPT, "dead-1")
    for _ in range(2):
        assert list(end_orphans(broker, swept).values()) == [""]
    with broker.store.reading() as look:
        view, balance = look.job("dead"), look.balance("dead")[MoneyKind.CASH]
    assert view is not None
    (attempt,) = view.attempts
    assert (attempt.state, attempt.gone) == (AttemptState.LOST, True)
    most = Money.usd("2").for_duration(datetime.now(UTC) - HOURS_AGO + timedelta(seconds=1))
    assert Money.usd("10") <= balance.spent <= most, "five hours at two dollars, and as long as the tests have run"
    assert balance.held == Money.usd("50") - balance.spent
    assert ledger_faults(broker) == []
    assert not sweep(broker).orphans, "the job is open: its hold is for the next attempt"


@pytest.mark.parametrize(
    ("went", "cost"),
    [
        (HOURS_AGO + timedelta(hours=2), Money.usd("4")),
        (HOURS_AGO - timedelta(hours=1), Money.ZERO),
        (datetime.now(UTC) + timedelta(days=9), Money.usd("6")),
    ],
    ids=["known", "before it was up", "in the future"],
)
def test_a_machine_is_billed_until_it_went_where_that_is_known_and_no_longer_than_it_was_missed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, went: datetime, cost: Money
) -> None:
    """The sweep looked three hours after the machine came up; a person said two hours later that it may end things."""
    record(broker, "dead", *up(broker, "dead"), ev.AttemptEnded(cause=Cause.MACHINE_LOST))
    hold(broker, "dead", "50")

    def tells(engine: Local, handles: Sequence[str]) -> Mapping[str, Observation]:
        return dict.fromkeys(handles, Observation(EngineState.GONE, gone_at=went))

    monkeypatch.setattr(Local, "observe", tells)
    swept = replace(sweep(broker), at=HOURS_AGO + timedelta(hours=3))
    assert list(end_orphans(broker, swept).values()) == [""]
    with broker.store.reading() as look:
        assert look.balance("dead")[MoneyKind.CASH].spent == cost
    assert ledger_faults(broker) == []


def test_money_held_for_nothing_is_given_back_once(broker: Broker) -> None:
    refused = ev.AttemptEnded(cause=Cause.NO_CAPACITY)
    record(broker, "over", requested("over"), refused, ev.JobEnded(state=JobState.FAILED), ev.JobClosed())
    record(broker, "waits")
    for job_id, amount in (("over", "3"), ("waits", "4"), ("never-seen", "5")):
        hold(broker, job_id, amount)
    swept = sweep(broker)
    assert {one.job_id for one in swept.orphans} == {"over", "never-seen"}
    assert {one.kind for one in swept.orphans} == {LeftoverKind.HOLD}
    for _ in range(2):
        assert list(end_orphans(broker, swept).values()) == ["", ""]
    assert [held(broker, job_id) for job_id in ("over", "waits", "never-seen")] == [
        Money.ZERO, Money.usd("4"), Money.ZERO,
    ]  # fmt: skip
    assert ledger_faults(broker) == []
    assert not sweep(broker).orphans


# As a service.


def told(broker: Broker) -> list[str]:
    return [one.notice.title for one in broker.store.outbox.under("sweep/")]


def test_serving_tells_of_an_orphan_once_and_ends_nothing_by_itself(broker: Broker) -> None:
    broker.settings.notify["desk"] = SecretStr("json://127.0.0.1:9/")
    hold(broker, "never-seen", "5")
    said: list[str] = []
    duty = SweepDuty(broker, say=said.append)
    for _ in range(3):
        assert len(duty.once().orphans) == 1
    assert held(broker, "never-seen") == Money.usd("5")
    assert told(broker) == ["Job never-seen holds money without a machine"]
    assert len(said) == 1
    assert "gpubroker doctor --sweep --end" in said[0]


def test_serving_ends_orphans_where_the_policy_says_so_and_not_before(broker: Broker) -> None:
    hold(broker, "never-seen", "5")
    for after, left in (("6h", "5"), ("15m", "0")):
        broker.store.activate_policy({"p.yaml": POLICY.replace("15m", after)}, by="test")
        SweepDuty(broker, say=lambda _: None).once()
        assert held(broker, "never-seen") == Money.usd(left)


def test_one_of_several_services_sweeps(broker: Broker) -> None:
    from broker.store.engine.leader import LeaderRole

    hold(broker, "never-seen", "5")
    said: list[str] = []
    stop = threading.Event()
    worker = threading.Thread(target=SweepDuty(broker, say=said.append, every=0.01).run, args=(stop,))
    with broker.store.lead(LeaderRole.SWEEP) as leading:
        assert leading is not None
        worker.start()
        assert not said
    eventually(lambda: bool(said), "it sweeps once nobody else does")
    stop.set()
    worker.join(240)
    assert not worker.is_alive()


class OnAServer:
    """As much of a store as its id needs."""

    def __init__(self, where: str, kept: dict[str, str]) -> None:
        self.where = where
        self._kept = kept

    def setting(self, key: str) -> str | None:
        return self._kept.get(key)

    def keep_setting(self, key: str, value: str) -> str:
        return self._kept.setdefault(key, value)


def test_a_database_on_a_server_is_the_same_whoever_asks_and_another_at_another_address() -> None:
    kept: dict[str, str] = {}
    ids = [
        store_id(OnAServer(where, kept))  # type: ignore[arg-type]  # it asks for no more
        for where in (
            "postgresql://ann:***@db/gpubroker",
            "postgresql://bob:***@db:5432/gpubroker",
            "postgresql://ann:***@copy/gpubroker",
            "postgresql://ann@/gpubroker?host=%2Frun%2Fone",
            "postgresql://ann@/gpubroker?host=%2Frun%2Ftwo",
        )
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 4


def test_what_belongs_to_a_job_that_cannot_be_read_here_is_nobodys_leftover(broker: Broker) -> None:
    """A newer version of gpubroker looks after it from another host."""
    mine = store_id(broker.store)
    record(broker, "newer", requested("newer"), ev.AttemptEnded(cause=Cause.NO_CAPACITY), ended_job(), ev.JobClosed())
    hold(broker, "newer", "50")
    with process(broker, "newer-1", mine):
        assert {one.kind for one in sweep(broker, NO_GRACE).orphans} == {LeftoverKind.MACHINE, LeftoverKind.HOLD}
        damage_view(broker.store, "newer")
        swept = sweep(broker, NO_GRACE)
        assert swept.found == ()
        assert "newer version" in swept.trouble["newer"]
    assert held(broker, "newer") == Money.usd("50")


def ended_job() -> ev.JobEnded:
    return ev.JobEnded(state=JobState.CANCELLED)
