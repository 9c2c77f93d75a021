"""Machines that a team bought and lends: the borrower pays, the purchase is credited, and the owner's jobs take
precedence.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.core.events.outcomes import Cause
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Account
from broker.ledger.lending import is_credit
from tests.money.market import LENT_POOL
from tests.money.play import Stage
from tests.money.promise import broken
from tests.money.stores import sqlite_store
from tests.money.world import MoneyWorld


@pytest.fixture
def stage() -> Iterator[Stage]:
    with sqlite_store() as made:
        yield made


def test_borrowed_for_a_price_and_left_when_the_owner_waits(stage: Stage) -> None:
    world = MoneyWorld(stage[0])
    world.do("policy", {"amount": "$1000", "lend": "price_per_gpu_hour: $1"})
    world.do("capacity", {"pool": LENT_POOL, "there": True})
    world.do("submit", {"team": "nlp", "work": "30h", "max_duration": "3d", "data": "50GB"})
    world.do("wait", {"span": "5h", "looks": 6})
    for _ in range(2):
        world.do("submit", {"team": "web", "work": "2h"})
    world.do("wait", {"span": "10m", "looks": 6})
    borrower, *owners = sorted(world.views(), key=lambda view: view.submitted_at)
    first, second = borrower.attempts[-2:]
    assert (first.placement.offer.lent_from, first.placement.offer.price) == ("purchase-of-web", Money.usd(1))
    assert (first.stop_requested, second.placement.offer.capacity_type) == (Cause.MOVED, CapacityType.SPOT)
    held = [view.attempts[-1].placement for view in owners]
    assert [(one.money, one.offer.capacity_type) for one in held] == [(MoneyKind.AMORTISED, CapacityType.RESERVED)] * 2
    world.drain()
    assert broken(world) == []
    with world.store.reading() as look:
        credit = [one for one in look.entries() if is_credit(one)]
        paid = [
            one
            for one in look.entries(borrower.id)
            if one.account is Account.SPENT and one.tags.attempt == first.number
        ]
    assert {(one.tags.team, one.tags.job_id, one.money) for one in credit} == {
        ("web", "purchase-of-web", MoneyKind.CASH)
    }
    assert Money.usd("3.3") < -sum((one.amount for one in credit), Money.ZERO) < Money.usd("3.4")
    egress = sum((one.amount for one in paid if "egress" in one.movement_id), Money.ZERO)
    assert sum((one.amount for one in [*paid, *credit]), Money.ZERO) == egress, "its data is not the owner's"


def test_a_broker_that_looks_seldom_credits_all_the_same(stage: Stage) -> None:
    world = MoneyWorld(stage[0])
    world.do("policy", {"amount": "$1000", "period": "day", "zone": "Europe/Berlin", "lend": "share: 40%"})
    world.do("capacity", {"pool": LENT_POOL, "there": True})
    world.do("submit", {"team": "nlp", "max_duration": "30d"})
    world.do("fate", {"comes": "no_capacity"})
    world.do("submit", {"team": "nlp", "max_duration": "10h"})
    world.do("wait", {"span": "3d", "looks": 2})
    world.do("policy", {"amount": "$1000", "lend": ""})
    world.do("wait", {"span": "1d", "looks": 2})
    world.drain()
    assert broken(world) == []
    lent = {machine.launch.placement.offer.price for machine in world.cloud.machines.values()}
    assert Money.usd(1) in lent, "40 % of $2.50"
