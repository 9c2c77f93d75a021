"""How old what local sources said may get before they are asked again."""

from datetime import timedelta

import pytest

from broker.app.market.market import freshen
from broker.app.wiring import Broker
from broker.core.values.clock import ManualClock
from broker.store.engine.leader import LeaderRole
from broker.store.records import PollStatus
from tests.actors import with_clock


def test_a_poll_that_hung_once_leaves_owned_machines_unasked_for_a_minute_at_most(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(broker.clock.now())
    broker = with_clock(broker, clock)
    freshen(broker)
    began = clock.now()
    clock.advance(timedelta(minutes=1))
    for name in broker.registries.local_providers:
        broker.store.record_poll(
            name, started=began, finished=clock.now(), offers=[], skipped={}, error="", complete=True,
            status=PollStatus.OK, hint="", keep_unchanged=False,
        )  # fmt: skip
    clock.advance(timedelta(seconds=59))
    assert not [result.provider for result in freshen(broker)]
    clock.advance(timedelta(seconds=2))
    assert "owned" in [result.provider for result in freshen(broker)]


def test_of_many_at_once_one_asks_for_all(broker: Broker) -> None:
    clock = ManualClock(broker.clock.now() + timedelta(minutes=1))  # the store may just have been made
    broker = with_clock(broker, clock)
    freshen(broker, sandbox=True)
    clock.advance(timedelta(seconds=1))
    with broker.store.lead(LeaderRole.LOCAL):
        assert not freshen(broker, sandbox=True), "another process asks already"
    assert {result.provider for result in freshen(broker, sandbox=True)} == {"owned", "sandbox"}
