"""Polling on a schedule: each provider at its pace, also when nobody names one, errors survived, a clean end."""

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from broker.core.errors import StoreProblem, Unreachable
from broker.core.market.offers import Offer, OfferQuery
from broker.core.values.clock import SystemClock
from broker.market.concurrent_poll import run_schedule
from broker.market.poller import MAX_INTERVAL, MIN_INTERVAL, PollRequest, PollResult, interval
from broker.store import Store

NOW, TICK = timedelta(0), timedelta(milliseconds=20)


class EmptyProvider:
    """A provider that answers nothing, after it has done something."""

    def __init__(self, name: str, act: Callable[[], object]) -> None:
        self.name = name
        self._act = act

    def offers(self, query: OfferQuery) -> Iterator[Offer]:
        self._act()
        return iter(())


class ScheduleRun:
    """A schedule under way; ends when ``enough`` says so of the polls told of."""

    def __init__(
        self, store: Store, enough: Callable[[Sequence[str]], bool], **providers: Callable[[], object]
    ) -> None:
        self.told: list[str] = []
        self.stop = threading.Event()
        self._store, self._enough, self._providers = store, enough, providers

    def tell(self, result: PollResult) -> None:
        self.told.append(result.provider)
        if self._enough(self.told):
            self.stop.set()

    def run(
        self, every: Callable[[str], timedelta] = lambda _: TICK, leading: Callable[[], bool] = lambda: True
    ) -> None:
        def ask(name: str) -> PollRequest:
            return PollRequest(name, lambda: EmptyProvider(name, self._providers[name]), timeout=30)

        due = dict.fromkeys(self._providers, NOW)
        shell: dict[str, Any] = {"stop": self.stop, "still_leading": leading, "report": self.tell}
        run_schedule(due, ask, every, self._store, SystemClock(), **shell)


def nothing() -> None:
    pass


def test_each_is_polled_again_and_again(store: Store) -> None:
    run = ScheduleRun(store, lambda told: min(told.count("a"), told.count("b")) >= 3, a=nothing, b=nothing)
    run.run()
    assert len(store.market.poll_runs("a")) >= 3


def test_one_that_hangs_holds_nobody_up_and_a_stop_does_not_wait_for_it(store: Store) -> None:
    never = threading.Event()
    run = ScheduleRun(store, lambda told: len(told) >= 3, hangs=lambda: never.wait(240), works=nothing)
    run.run()
    never.set()
    assert set(run.told) == {"works"}
    assert "hangs" not in store.last_polls()


def test_trouble_of_a_provider_or_the_store_does_not_end_the_schedule(store: Store) -> None:
    def down() -> None:
        raise Unreachable("HTTP 503", where="down")

    calls: list[str] = []

    def every(name: str) -> timedelta:
        calls.append(name)
        if len(calls) == 4:
            raise StoreProblem("locked")
        return TICK

    run = ScheduleRun(store, lambda told: len(told) >= 6, down=down, works=nothing)
    run.run(every)
    assert set(run.told) == {"down", "works"}


def test_without_the_lead_it_ends(store: Store) -> None:
    run = ScheduleRun(store, lambda told: False, a=nothing)
    run.run(leading=lambda: not run.told)
    assert run.told
    assert not run.stop.is_set()


def test_a_new_pace_is_kept_from_the_next_poll_on(store: Store) -> None:
    run = ScheduleRun(store, lambda told: len(told) >= 4, a=nothing)
    run.run(every=lambda name: TICK if run.told else timedelta(hours=1))
    assert len(run.told) >= 4


@pytest.mark.parametrize(
    ("limit", "every"),
    [("1h", "20m"), ("2h", "40m"), ("5m", "10m"), ("7d", "6h")],
)
def test_three_times_within_the_limit_but_neither_always_nor_never(limit: str, every: str) -> None:
    from broker.core.values.units import parse_duration

    assert interval(parse_duration(limit), has_offers=True) == parse_duration(every)


def test_what_has_no_limit_is_asked_now_and_then_and_what_is_not_known_soon() -> None:
    assert interval(None, has_offers=True) == MAX_INTERVAL
    assert interval(None, has_offers=False) == interval(timedelta(days=9), has_offers=False) == MIN_INTERVAL
