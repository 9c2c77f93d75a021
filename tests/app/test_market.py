"""How old what local sources said may get before they are asked again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from broker.app.market import freshen
from broker.app.wiring import Broker
from broker.core.clock import ManualClock
from broker.store.records import PollStatus


def test_a_poll_that_hung_once_leaves_owned_machines_unasked_for_a_minute_at_most(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(broker.clock.now())
    broker.__dict__["clock"] = clock
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
