"""A money world for tests of single situations; files that need another one define their own fixtures."""

from collections.abc import Iterator

import pytest

from tests.money.play import Stage
from tests.money.stores import sqlite_store
from tests.money.world import MoneyWorld


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with sqlite_store() as made:
        yield made


@pytest.fixture
def world(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> MoneyWorld:
    # The queue is placed at intervals of the wall clock, while weeks pass here within a second: the load of the machine
    # would change the result.
    monkeypatch.setattr("broker.app.jobs.queue._REST_FACTOR", 0.0)
    monkeypatch.setattr("broker.app.jobs.queue._ROUND_LIFETIME", 0.0)
    store, empty = stage
    empty()
    world = MoneyWorld(store)
    world.do("policy", {"amount": "$10000", "period": "month", "default_max": "24h"})
    world.do("fate", {"runs": 1800.0})
    return world
