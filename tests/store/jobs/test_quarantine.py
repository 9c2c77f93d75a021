"""A job that this version cannot read is set aside and told; all others are read, and its money and machines count."""

import json
from collections.abc import Callable, Iterable
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from broker.core import records
from broker.core.errors import StoreProblem, UnreadableJob
from broker.core.events import events as ev
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags
from broker.placement.planner import make_plan
from broker.placement.pricing.conditions import Conditions
from broker.reconciler.admission.records import hold_entries, launch_request
from broker.store import Store
from broker.store.jobs.reader import StoreReader
from broker.store.schema.jobs import AttemptEventRow, JobRow
from tests.reconciler.rehearsal import offer
from tests.unreadable import DAMAGES, add_newer_event, damage_view

HOUR = timedelta(hours=1)
CASH = BudgetSpec("all", "month", "UTC", frozenset({"cash"}))


def submit(store: Store, job_id: str, clock: ManualClock) -> None:
    """A job that holds $10, waits for an answer, and has a machine."""
    job, now = Job(name=job_id, run="x"), clock.now()
    conditions = Conditions(engines={"stage": frozenset()}, sandbox=True)
    (placement, *_) = make_plan(job, [offer(now, "od")], now=now, submitted_at=now, conditions=conditions).placements
    submitted = ev.Submitted(job=job, user="ann", max_duration_seconds=3600)
    asked = ev.ApprovalAsked(because="dear", extension=True)
    with store.writing() as tx:
        burns = {MoneyKind.CASH: Burn.evenly(Money.usd("10"), (now, now + HOUR))}
        tx.post(hold_entries(Tags(job_id, "ann"), {}, burns, Movement.HOLD, 1))
        tx.append(job_id, [(None, submitted), (1, launch_request(job_id, 1, placement)), (None, asked)], now)
    clock.advance(timedelta(seconds=1))


@pytest.fixture
def three(store: Store, clock: ManualClock) -> Store:
    for job_id in ("a", "b", "c"):
        submit(store, job_id, clock)
    return store


@pytest.mark.parametrize("how", DAMAGES.values(), ids=DAMAGES)
def test_one_unreadable_job_is_left_out_and_told_and_the_others_are_read(
    three: Store, how: Callable[[str], str]
) -> None:
    damage_view(three, "b", how)
    reads: list[Callable[[StoreReader], Iterable[JobView]]] = [
        lambda look: look.unclosed(),
        lambda look: look.views(["a", "b", "c"]),
        lambda look: look.jobs(),
        lambda look: look.undecided(),
    ]
    for read in reads:
        with three.reading() as look:
            assert sorted(view.id for view in read(look)) == ["a", "c"]
            (told,) = look.unreadable
        assert (told.job_id, told.name, told.user, told.state) == ("b", "b", "ann", "launching")
        assert told.because
    with three.reading() as look, pytest.raises(UnreadableJob, match="job b cannot be read here"):
        look.job("b")
    with pytest.raises(UnreadableJob), three.writing() as tx:
        tx.append("b", [(None, ev.CancelRequested(by="ann"))], three._clock.now())


@pytest.mark.parametrize("how", DAMAGES.values(), ids=DAMAGES)
def test_its_money_and_its_machines_count_all_the_same(three: Store, how: Callable[[str], str]) -> None:
    with three.reading() as look:
        before = look.live_attempts(), look.open_holds(CASH), look.balance("b"), look.open_balances()
    damage_view(three, "b", how)
    with three.reading() as look:
        assert (look.live_attempts(), look.open_holds(CASH), look.balance("b"), look.open_balances()) == before
        assert len(look.live_attempts()) == 3


def test_machines_of_a_kind_that_only_a_newer_version_knows_are_counted(three: Store) -> None:
    with three._database.writing() as connection:
        text = connection.scalar(select(JobRow.live).where(JobRow.id == "b"))
        assert text is not None
        newer = [
            [*("barter" if value == "cash" else value for value in one), "a new field"] for one in json.loads(text)
        ]
        connection.execute(update(JobRow).where(JobRow.id == "b").values(live=json.dumps(newer)))
        connection.execute(update(JobRow).where(JobRow.id == "c").values(live="nonsense"))
    with three.reading() as look:
        assert [(one.job_id, one.money) for one in look.live_attempts()] == [(j, MoneyKind.CASH) for j in ("a", "b")]


def test_what_a_newer_version_wrote_is_told_as_such_and_read_by_that_version(
    three: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage_view(three, "b")
    with three.reading() as look:
        look.unclosed()
        (told,) = look.unreadable
    assert told.newer
    assert "written by a newer version of gpubroker" in told.because
    assert "upgrade" in told.hint
    monkeypatch.setattr(records, "FORMAT", records.FORMAT + 1)
    with three.reading() as look:
        assert len(look.unclosed()) == 3


def test_an_event_of_a_newer_version_sets_its_job_aside(three: Store) -> None:
    add_newer_event(three, "b")
    with three.reading() as look:
        with pytest.raises(UnreadableJob, match="newer version") as refused:
            look.events("b")
        assert refused.value.newer
        assert len(look.events("a")) == 3


def test_projections_are_made_anew_but_for_what_cannot_be_read(three: Store) -> None:
    add_newer_event(three, "b")
    with three._database.reading() as connection:
        kept = connection.execute(select(JobRow).where(JobRow.id == "b")).one()
    damage_view(three, "c", DAMAGES["a value of a newer version"])
    assert three.rebuild() == 2
    with three._database.reading() as connection:
        assert connection.execute(select(JobRow).where(JobRow.id == "b")).one() == kept
    with three.reading() as look:
        assert [view.id for view in look.unclosed()] == ["a", "c"], "what the events tell is read again"
        assert look.balance("b")[MoneyKind.CASH].held == Money.usd("10")


def test_no_prices_are_forgotten_that_an_unreadable_job_may_refer_to(three: Store, clock: ManualClock) -> None:
    three.market.prune(clock.now(), dry_run=True)
    damage_view(three, "b")
    with pytest.raises(StoreProblem, match="job b cannot be read here"):
        three.market.prune(clock.now(), dry_run=True)


def test_each_body_carries_its_format(three: Store) -> None:
    with three._database.reading() as connection:
        bodies = list(connection.scalars(select(AttemptEventRow.body))) + list(connection.scalars(select(JobRow.view)))
    assert {json.loads(body)["format"] for body in bodies} == {records.FORMAT}
