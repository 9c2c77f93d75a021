"""The figures of held money shown to people: budget and period agree with the gate and the ledger.

Played with the real use cases, policies and store across a month's end.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.app.billing import budgets
from broker.app.jobs.bills import bill_of
from broker.app.jobs.preview import preview
from broker.core.job.file import parse_job
from broker.core.market.offers import MoneyKind
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.ledger.budgets import BudgetShare, in_scope, is_fixed
from broker.ledger.entries import Account
from broker.reconciler.admission.hold_limits import HoldLimit
from broker.store import Store, open_store
from tests.actors import ANN
from tests.empty_store import empty_store
from tests.money.moves import job_text
from tests.money.play import drawn
from tests.money.stores import sqlite_store
from tests.money.test_holds import PLAIN, PlayedWorld
from tests.money.test_promise import SEQUENCES
from tests.money.world import MoneyWorld

START = datetime(2026, 11, 30, 17, 48, tzinfo=UTC)  # 6.2 hours of November remain in UTC, 5.2 in Berlin
TWO = (
    "budgets:\n  - {name: utc, amount: $500, period: month}\n"
    "  - {name: berlin, amount: $500, period: month, timezone: Europe/Berlin, scope: {user: ann}}\n"
)
ON_DEMAND = {"providers": "aws", "capacity": "on_demand"}  # $4 an hour


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(empty_store(tmp_path / "store.db"), clock=SystemClock())
    yield opened
    opened.close()


@pytest.fixture
def played(store: Store) -> PlayedWorld:
    return PlayedWorld(store, START, TWO)


def told(shares: list[BudgetShare]) -> list[tuple[str, str, str]]:
    return [(one.budget.id, one.period_name, str(one.held)) for one in shares]


HAND = [
    ("utc", "November 2026", "$24.80"),
    ("utc", "December 2026", "$15.20"),
    ("berlin", "November 2026", "$20.80"),
    ("berlin", "December 2026", "$19.20"),
]


def test_plan_submit_and_budget_show_the_same_hold(played: PlayedWorld) -> None:
    said = {**ON_DEMAND, "max_cost": "$40", "max_duration": "3d"}
    broker = played.world.broker
    planned = preview(broker, parse_job(job_text("planned", {**PLAIN, **said}), file="job.yaml", now=START), by=ANN)
    assert told(planned.shares) == HAND
    assert planned.admission is not None
    assert planned.admission.limited_by == {MoneyKind.CASH: HoldLimit.MAX_COST}
    view = played.ask(**said)
    assert told(list(bill_of(broker, view).shares)) == HAND
    by_budget = [share for line in budgets.budgets(broker) for job, share in line.held_by_job if job == view.id]
    assert told(by_budget) == HAND
    assert by_budget[0].end == by_budget[1].start == datetime(2026, 12, 1, tzinfo=UTC)
    assert by_budget[1].end == START + timedelta(hours=10)


@pytest.mark.parametrize("passed", ["0h", "3h", "7h", "30h"])
def test_what_is_shown_by_job_and_period_is_what_the_ledger_holds(played: PlayedWorld, passed: str) -> None:
    hours = int(passed[:-1])
    for said in (
        {**ON_DEMAND, "max_cost": "$40", "max_duration": "3d"},
        {**ON_DEMAND, "max_duration": "10h"},
        {"providers": "gcp", "capacity": "spot", "max_duration": "60d", "max_cost": "$90"},
        {"providers": "aws", "capacity": "spot", "data": "50GB", "max_duration": "2h"},
    ):
        played.submit(**said)
    played.passes(timedelta(hours=hours))
    with played.world.store.reading() as look:
        held = sum(
            (balance[MoneyKind.CASH].held for balance in look.open_balances().values() if MoneyKind.CASH in balance),
            Money.ZERO,
        )
    assert held > Money.ZERO
    for line in budgets.budgets(played.world.broker):
        shares = [share for _, share in line.held_by_job]
        assert sum((share.held for share in shares), Money.ZERO) == held
        now = (line.use.period_start, line.use.period_end)
        assert sum((share.held for share in shares if share.period == now), Money.ZERO) == line.use.held
        by_bill = [
            share.held
            for view in played.world.views()
            for share in bill_of(played.world.broker, view).shares
            if share.budget.id == line.spec.id
        ]
        assert sorted(by_bill) == sorted(share.held for share in shares)


def shown_is_held(world: MoneyWorld) -> int:
    """Compare the shown figures of every budget with the ledger; returns the number of compared shares."""
    with world.store.reading() as look:
        entries = look.entries()
    seen = 0
    for line in budgets.budgets(world.broker):
        spec, shares = line.spec, [share for _, share in line.held_by_job]
        counted = (
            entry.amount
            for entry in entries
            if entry.account is Account.HELD
            and entry.money in spec.counts
            and in_scope(
                spec,
                user=entry.tags.user,
                team=entry.tags.team,
                project=entry.tags.project,
                workload=entry.tags.workload,
                environment=entry.tags.environment,
            )
        )
        held, shown = sum(counted, Money.ZERO), sum((share.held for share in shares), Money.ZERO)
        assert shown <= held if is_fixed(spec.period) else shown == held
        now = (line.use.period_start, line.use.period_end)
        assert sum((share.held for share in shares if share.period == now), Money.ZERO) == line.use.held
        assert all(share.period[0] <= share.start <= share.end <= share.period[1] for share in shares)
        seen += len(shares)
    return seen


@pytest.mark.system
def test_in_random_scripts_what_is_shown_is_what_the_ledger_holds() -> None:
    compared, scripts = 0, SEQUENCES // 8
    with sqlite_store() as (store, empty):
        for seed in range(scripts):
            empty()
            world = MoneyWorld(store)
            for name, said in drawn(seed):
                world.do(name, said)
                compared += shown_is_held(world)
    assert compared > scripts * 5
