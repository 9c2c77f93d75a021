"""`gpubroker prices poll`, `status` and `prune`, and `gpubroker serve`."""

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

from broker.core.errors import BrokerError, LoginMissing, NoLogin, Unreachable
from broker.core.market.offers import CapacityType, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.store import open_store
from providers import registry
from providers.registry import ProviderSettings
from tests.cli.conftest import LOCAL

Gpubroker = Callable[..., Any]
TOLD = {
    *("status", "offers_seen", "offers_changed", "rows_skipped", "seconds"),
    *("failed", "error", "failures", "hint"),
}


class FailingCloud:
    """Two prices, one of them twice, a row that makes no sense, and then what ``failure`` says."""

    name = "cloud"
    Settings = ProviderSettings
    failure: BaseException | None = None

    def __init__(self, *, clock: SystemClock, settings: ProviderSettings) -> None:
        self._clock = clock

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        about = ("cloud", "here", None)
        for name in ("a", "b", "b"):
            price, now = Money.usd("20"), self._clock.now()
            yield Offer(*about, name, "H100", 8, CapacityType.SPOT, price, now, "api", max_age=timedelta(hours=1))
        yield SkippedRow("no_price", "c")
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def cloud(home: object, monkeypatch: pytest.MonkeyPatch) -> type[FailingCloud]:
    """Plugged in beside those that ask nobody."""
    module = ModuleType("made_up_cloud")
    module.Cloud = FailingCloud  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "made_up_cloud", module)
    monkeypatch.setitem(registry.PROVIDERS, "cloud", "made_up_cloud:Cloud")
    monkeypatch.setattr(FailingCloud, "failure", None)
    return FailingCloud


def test_a_poll_tells_of_each_provider(gpubroker: Gpubroker, cloud: type[FailingCloud]) -> None:
    done = gpubroker("prices", "poll", "--provider", "cloud", "--provider", "pricebook", "--json")
    polls = {one.pop("provider"): one for one in done.json["polls"]}
    assert done.code == 0
    assert set(polls) == {"cloud", "pricebook"}
    assert all(set(one) == TOLD for one in polls.values())
    found = polls["cloud"]
    assert (found["status"], found["offers_seen"], found["offers_changed"], found["error"]) == ("ok", 2, 2, None)
    assert found["rows_skipped"] == {"no_price": 1, "duplicate": 1}
    assert found["seconds"] >= 0
    again = gpubroker("prices", "poll", "--provider", "cloud")
    assert "cloud: 2 offers, 0 changed" in again.out
    assert "2 rows skipped (1 × no_price, 1 × duplicate)" in again.out


@pytest.mark.parametrize(
    ("failure", "status", "code", "named"),
    [
        (Unreachable("HTTP 503", where="cloud", hint="wait"), "failed", 5, 5),
        (NoLogin("no key", where="cloud", hint="set CLOUD_KEY"), "login_missing", 0, 5),
        (LoginMissing("HTTP 401", where="cloud", hint="set CLOUD_KEY"), "login_refused", 5, 5),
        (ZeroDivisionError("oops"), "failed", 5, 5),
    ],
)
def test_a_failure_is_said_with_what_to_do(
    gpubroker: Gpubroker, cloud: type[FailingCloud], failure: BaseException, status: str, code: int, named: int
) -> None:
    cloud.failure = failure
    done = gpubroker("prices", "poll", "--json")
    polls = {one["provider"]: one for one in done.json["polls"]}
    assert done.code == code
    assert (polls["cloud"]["status"], polls["cloud"]["offers_seen"]) == (status, 2)
    assert {one["status"] for name, one in polls.items() if name != "cloud"} == {"ok"}
    if isinstance(failure, BrokerError):
        assert polls["cloud"]["error"] == f"cloud: {failure.message}; {failure.hint}"
    assert (f"1 of {len(LOCAL) + 1} failed: cloud" in done.err) == (code == 5)
    assert gpubroker("prices", "poll", "-p", "cloud").code == named


def test_several_failures_have_a_line_each(gpubroker: Gpubroker, cloud: type[FailingCloud]) -> None:
    cloud.failure = Unreachable("cloud/east: HTTP 503\ncloud/west: HTTP 500", where="cloud", hint="wait")
    told = gpubroker("prices", "poll", "-p", "cloud").out
    assert "\n  cloud/east: HTTP 503\n  cloud/west: HTTP 500\nhint: wait\n" in told
    told = gpubroker("prices", "status").out
    assert "\ncloud:\n  cloud/east: HTTP 503\n  cloud/west: HTTP 500\n  hint: wait\n" in told
    asked = {one["provider"]: one for one in gpubroker("prices", "status", "--json").json["providers"]}
    assert asked["cloud"]["error"] == "cloud: cloud/east: HTTP 503; cloud/west: HTTP 500; wait"


def test_a_login_that_is_refused_is_not_called_none(
    gpubroker: Gpubroker, cloud: type[FailingCloud], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(self: FailingCloud, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        raise LoginMissing("HTTP 401", where="cloud", hint="set CLOUD_KEY")

    monkeypatch.setattr(cloud, "offers", refuses)
    assert "cloud: login refused\n  HTTP 401\n" in gpubroker("prices", "poll", "-p", "cloud").out


def test_an_unknown_provider_is_met_with_a_suggestion(gpubroker: Gpubroker, cloud: type[FailingCloud]) -> None:
    done = gpubroker("prices", "poll", "--provider", "clowd")
    assert (done.code, "did you mean 'cloud'" in done.err) == (2, True)


def test_ctrl_c_says_what_was_kept(
    gpubroker: Gpubroker, cloud: type[FailingCloud], monkeypatch: pytest.MonkeyPatch
) -> None:
    from broker.app.market import polling

    asked = polling.poll_now

    def interrupted(*arguments: Any, **more: Any) -> Iterator[Any]:
        yield next(iter(asked(*arguments, **more)))
        raise KeyboardInterrupt

    monkeypatch.setattr(polling, "poll_now", interrupted)
    done = gpubroker("prices", "poll", "--json")
    [kept] = [one["provider"] for one in done.json["polls"]]
    assert done.code == 130
    assert sorted([kept, *done.json["interrupted"]]) == sorted(["cloud", *LOCAL])
    assert f"stored: {kept}" in done.err


def test_the_status_tells_how_fresh_each_is(gpubroker: Gpubroker, cloud: type[FailingCloud]) -> None:
    gpubroker("prices", "poll", "-p", "cloud")
    cloud.failure = NoLogin("no key", where="cloud", hint="set CLOUD_KEY")
    gpubroker("prices", "poll", "-p", "cloud")
    document = gpubroker("prices", "status", "--json").json
    [found] = [one for one in document["providers"] if one["provider"] == "cloud"]
    assert (found["status"], found["error"]) == ("login_missing", "cloud: no key; set CLOUD_KEY")
    assert (found["offers"], found["offers_stale"], found["max_age_seconds"]) == (2, 0, 3600)
    assert found["interval_seconds"] == 1200
    assert found["last_success"] < found["finished"]
    assert document["never_polled"] == ["sandbox"]
    assert document["scheduled"] is False
    told = gpubroker("prices", "status").out
    assert "login missing" in told
    assert "cloud: no key" in told
    assert "hint: set CLOUD_KEY" in told
    assert "never polled: sandbox" in told


def test_pruning_says_what_went(gpubroker: Gpubroker, home: Any) -> None:
    clock = SystemClock()
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=clock)
    for days in (500, 499, 1):
        at = clock.now() - timedelta(days=days)
        about = ("cloud", "here", None, "a", "H100", 8, CapacityType.SPOT, Money(days + 1), at, "api")
        store.record_poll("cloud", started=at, finished=at, offers=[Offer(*about)])
    store.close()
    expected = {"dry_run": True, "price_changes": 1, "signal_changes": 0, "poll_runs": 1, "protected": 0}
    document = gpubroker("prices", "prune", "--keep", "400d", "--dry-run", "--json").json
    assert document.pop("before")
    assert document == expected
    assert "Deleted, older than" in gpubroker("prices", "prune").out
    assert gpubroker("prices", "prune", "--json").json["price_changes"] == 0


@pytest.mark.parametrize(("keep", "said"), [("400", "expected a duration"), ("1h", "expected 1d or more")])
def test_pruning_nearly_everything_is_refused(gpubroker: Gpubroker, keep: str, said: str) -> None:
    done = gpubroker("prices", "prune", "--keep", keep)
    assert (done.code, said in done.err) == (2, True)
