"""Several providers at once: each isolated from the others' errors, slowness and bugs; time limits; being stopped."""

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from broker.core.errors import BrokerError, LoginMissing, MissingExtra, NoLogin, Throttled
from broker.core.extras import install_command
from broker.core.market.offers import Availability, CapacityType, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.market.concurrent_poll import poll_concurrently
from broker.market.poller import PollRequest, PollResult, PollSession, poll
from broker.store import Store
from broker.store.records import PollStatus
from tests.waiting import LONGEST

T = datetime(2026, 3, 2, 12, tzinfo=UTC)


def offer(provider: str, name: str = "p5", **more: Any) -> Offer:
    about: dict[str, Any] = {
        "zone": None,
        "accelerator": "H100",
        "count": 8,
        "capacity_type": CapacityType.SPOT,
        "source": "api",
    }
    about |= {"availability": Availability.AVAILABLE, "region": "us-east-1", "as_of": T, "price": Money(100)}
    return Offer(provider=provider, instance_type=name, **{**about, **more})


class ScriptedProvider:
    """A provider that yields what it was given, raises what is an exception, waits for what is an event, and calls what
    is a function."""

    def __init__(self, name: str, *script: object) -> None:
        self.name = name
        self._script = script

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        for step in self._script:
            if isinstance(step, threading.Event):
                step.wait(240)
            elif isinstance(step, BaseException):
                raise step
            elif isinstance(step, FunctionType):
                step()
            elif isinstance(step, str):
                yield offer(self.name, step)
            else:
                assert isinstance(step, Offer | SkippedRow)
                yield step


def ask(name: str, *script: object, timeout: float = 30, **more: Any) -> PollRequest:
    return PollRequest(name, lambda: ScriptedProvider(name, *script), timeout=timeout, **more)


Poll = Callable[..., dict[str, PollResult]]


@pytest.fixture
def polled(store: Store, clock: ManualClock) -> Poll:
    """Polls these at once; the results by name."""

    def run(*asks: PollRequest, **more: Any) -> dict[str, PollResult]:
        return {result.provider: result for result in poll_concurrently(asks, store, clock, **more)}

    return run


def told(store: Store) -> set[str]:
    return {f"{o.provider}/{o.instance_type}" for o in store.offers()}


def test_each_gets_its_result_and_its_poll_run(polled: Poll, store: Store) -> None:
    found = polled(
        ask("a", "x", "y", SkippedRow("no_price"), SkippedRow("no_price"), SkippedRow("currency")),
        ask("b", "x"),
        ask("c"),
    )
    assert told(store) == {"a/x", "a/y", "b/x"}
    a = found["a"]
    assert (a.offers_seen, a.offers_changed, a.rows_skipped) == (2, 2, {"no_price": 2, "currency": 1})
    assert (a.status, a.error, a.ok, a.failed) == (PollStatus.OK, "", True, False)
    assert {name: run.seen for name, run in store.last_polls().items()} == {"a": 2, "b": 1, "c": 0}


@pytest.mark.parametrize(
    ("failure", "status", "failed"),
    [
        (Throttled("HTTP 429", where="x", hint="poll less often"), PollStatus.FAILED, True),
        (NoLogin("no key", where="x", hint="set X_KEY"), PollStatus.LOGIN_MISSING, False),
        (LoginMissing("HTTP 401", where="x", hint="set X_KEY"), PollStatus.LOGIN_REFUSED, True),
        (MissingExtra("gcp", "provider 'x'"), PollStatus.EXTRA_MISSING, False),
        (RuntimeError("boom"), PollStatus.FAILED, True),
    ],
)
def test_the_trouble_of_one_is_classed_and_nobody_elses(
    polled: Poll, store: Store, failure: Exception, status: PollStatus, failed: bool
) -> None:
    found = polled(ask("x", "early", failure, "late"), ask("good", "one"))
    assert told(store) == {"x/early", "good/one"}
    assert (found["x"].status, found["x"].failed, found["good"].ok) == (status, failed, True)
    run = store.last_polls()["x"]
    assert (run.status, run.error, run.hint, run.complete) == (status, found["x"].error, found["x"].hint, False)
    assert found["x"].hint
    if isinstance(failure, BrokerError):
        assert (found["x"].error, found["x"].hint) == (str(failure), failure.hint)


def test_a_provider_that_cannot_be_made_fails_alone(polled: Poll, store: Store) -> None:
    def broken() -> ScriptedProvider:
        raise MissingExtra("gcp", "provider 'x'")

    found = polled(PollRequest("x", broken, timeout=30), ask("good", "one"))
    assert found["x"].status is PollStatus.EXTRA_MISSING
    assert install_command("gcp") in found["x"].hint
    assert told(store) == {"good/one"}


def test_a_slow_one_holds_nobody_back(store: Store, clock: ManualClock) -> None:
    go = threading.Event()
    results = poll_concurrently([ask("slow", go, "x"), ask("fast", "x")], store, clock)
    assert next(results).provider == "fast"
    assert told(store) == {"fast/x"}
    go.set()
    assert [result.provider for result in results] == ["slow"]
    assert told(store) == {"fast/x", "slow/x"}


def test_what_arrived_before_the_time_was_up_is_kept(
    polled: Poll, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    polled(ask("slow", "x", "y"))
    never, shown = threading.Event(), [0.0]
    monkeypatch.setattr("broker.market.poller.time", SimpleNamespace(monotonic=lambda: shown[0]))

    def time_goes_by() -> None:
        shown[0] = 31.0

    slow = ask("slow", "x", offer("slow", "new"), time_goes_by, never, "y")
    found = polled(slow, ask("fast", "x", timeout=1e9))["slow"]
    never.set()
    assert (found.offers_seen, found.status, found.cut_short) == (2, PollStatus.FAILED, True)
    assert "not done after 30 s" in found.error
    assert "GPUBROKER_PRICES__SLOW__TIMEOUT" in found.hint
    assert told(store) == {"slow/x", "slow/y", "slow/new", "fast/x"}  # what was not reached has not ended


def test_whoever_answers_after_its_time_while_others_are_waited_for_is_counted_once(
    store: Store, clock: ManualClock
) -> None:
    late, other = threading.Event(), threading.Event()
    results = poll_concurrently([ask("late", late, "x", timeout=0.05), ask("other", other, "x")], store, clock)
    assert next(results).cut_short
    late.set()
    for thread in threading.enumerate():
        if thread.name == "poll late":
            thread.join(LONGEST)
    other.set()
    assert [(result.provider, result.ok) for result in results] == [("other", True)]


def test_whoever_answers_too_late_is_not_heard(store: Store, clock: ManualClock) -> None:
    go = threading.Event()
    hearing = PollSession(ask("late", "x", go, "y"), clock)
    thread = threading.Thread(target=hearing.listen)
    thread.start()
    while not hearing.arrived:
        pass
    hearing.time_out()
    assert hearing.record(store).offers_seen == 1
    go.set()
    thread.join(LONGEST)
    assert not thread.is_alive()
    assert (hearing.arrived, told(store)) == (0, {"late/x"})


def test_ctrl_c_keeps_what_is_complete(store: Store, clock: ManualClock) -> None:
    never = threading.Event()

    def watch(waiting: Sequence[PollSession]) -> None:
        if len(waiting) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(poll_concurrently([ask("fast", "x"), ask("slow", "x", never)], store, clock, watch=watch))
    never.set()
    assert told(store) == {"fast/x"}
    assert set(store.last_polls()) == {"fast"}


def test_told_to_stop_it_drops_what_is_under_way(polled: Poll, store: Store) -> None:
    stop = threading.Event()
    stop.set()
    assert polled(ask("a", "x"), stop=stop) == {}
    assert store.last_polls() == {}


def test_the_limit_from_the_settings_is_the_offers_limit(polled: Poll, store: Store) -> None:
    own, listed = offer("a", "own", max_age=timedelta(days=7)), offer("a", "listed", source="book", reference=True)
    polled(ask("a", own, listed, max_age=timedelta(hours=2)))
    assert {o.instance_type: o.max_age for o in store.offers()} == {"own": timedelta(hours=2), "listed": None}


def test_whoever_has_no_login_is_on_record_once(polled: Poll, store: Store) -> None:
    for _ in range(5):
        polled(ask("x", NoLogin("no key", hint="set X_KEY")))
    assert len(store.market.poll_runs("x")) == 1


def test_one_provider_in_this_thread(store: Store, clock: ManualClock) -> None:
    for _ in range(3):
        result = poll(ScriptedProvider("owned", "gpu"), store, clock, keep_unchanged=False)
    assert (result.offers_seen, result.offers_changed) == (1, 0)
    assert len(store.market.poll_runs("owned")) == 2
