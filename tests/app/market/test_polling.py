"""Who is polled, with which limits, and what becomes of prices that are too old: through the use cases."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from broker.app.market.market import market_for
from broker.app.market.polling import accept_prices, alert_trouble, poll_interval, poll_now, poll_request, price_status
from broker.app.wiring import Broker
from broker.core.errors import NoLogin, StoreProblem, UnknownName
from broker.core.job.file import parse_job
from broker.core.job.reasons import Reason
from broker.core.market.offers import Availability, CapacityType, Offer, OfferQuery
from broker.core.values.money import Money
from broker.placement.planner import make_plan
from broker.settings import PollSettings, Settings
from broker.store.records import PollStatus
from cli import registries
from tests.actors import EVERYBODYS, OLGA
from tests.empty_store import empty_store

HOUR = timedelta(hours=1)
asked: list[str] = []


class OldPriceCloud:
    """A cloud whose one price is two hours old."""

    def __init__(self, name: str, broker: Broker) -> None:
        self.name = name
        self._broker = broker

    def offers(self, query: OfferQuery) -> Iterator[Offer]:
        asked.append(self.name)
        if self.name == "locked":
            raise NoLogin("no key", where=self.name, hint="set LOCKED_KEY")
        about = (self.name, "here", None, "big", "H100", 8, CapacityType.SPOT, Money.usd("20"))
        then = self._broker.clock.now() - 2 * HOUR
        yield Offer(*about, then, "api", availability=Availability.AVAILABLE, max_age=3 * HOUR)


@pytest.fixture
def clouds(tmp_path: Path) -> Iterator[Broker]:
    """A broker with two clouds: one has a price, the other wants a login."""
    settings = Settings(home=tmp_path, store=empty_store(tmp_path / "store.db"))
    brokers: list[Broker] = []
    plugged = replace(
        registries(),
        providers={"cloud": "-", "locked": "-"},
        build_provider=lambda name, **_: OldPriceCloud(name, brokers[0]),
        local_providers=(),
    )
    brokers.append(Broker(settings, plugged, EVERYBODYS))
    asked.clear()
    yield brokers[0]
    brokers[0].store.close()


def rejections(broker: Broker) -> dict[Reason, int]:
    text = 'name: train\nrun: "true"\nresources: {accelerators: "H100:8", use_spot: true}\n'
    job = parse_job(text, file="job.yaml", now=broker.clock.now())
    market, now = market_for(broker, job), broker.clock.now()
    plan = make_plan(job, market.offers, now=now, submitted_at=now, conditions=market.conditions)
    found: dict[Reason, int] = {}
    for rejection in plan.rejections:
        found[rejection.reason] = found.get(rejection.reason, 0) + 1
    return found


def test_a_price_older_than_the_limit_is_infeasible_unless_the_policy_allows_it(clouds: Broker) -> None:
    list(poll_now(clouds, ["cloud"]))
    accept_prices(clouds, "cloud", by=OLGA)  # there is no price book to compare with
    assert Reason.STALE_PRICE not in rejections(clouds)  # the provider's own limit is three hours
    clouds.settings.prices = {"cloud": PollSettings(max_age=HOUR)}
    list(poll_now(clouds, ["cloud"]))
    assert rejections(clouds) == {Reason.STALE_PRICE: 1}
    [status] = [one for one in price_status(clouds).providers if one.provider == "cloud"]
    assert (status.offers_stale, status.max_age_seconds) == (1, HOUR)
    clouds.store.activate_policy({"p.yaml": "version: 1\ndefaults: {allow_stale_prices: true}\n"}, by="test")
    assert Reason.STALE_PRICE not in rejections(clouds)


def test_nobody_is_asked_for_a_store_that_cannot_be_written_to(clouds: Broker, tmp_path: Path) -> None:
    list(poll_now(clouds, ["cloud"]))
    asked.clear()
    url = f"sqlite:///file:{tmp_path / 'store.db'}?mode=ro&uri=true"
    read_only = Broker(Settings(home=tmp_path, store=url), clouds.registries, EVERYBODYS)
    with pytest.raises(StoreProblem, match="cannot be written to"):
        poll_now(read_only, ["cloud"])
    assert asked == []
    read_only.store.close()


def test_an_unknown_provider_is_said_before_anybody_is_asked(clouds: Broker) -> None:
    with pytest.raises(UnknownName, match="did you mean 'cloud'"):
        poll_now(clouds, ["locked", "clowd"])
    assert asked == []


def test_all_are_asked_when_none_is_named(clouds: Broker) -> None:
    found = {result.provider: result for result in poll_now(clouds)}
    assert sorted(asked) == sorted(found) == ["cloud", "locked"]
    assert (found["locked"].status, found["locked"].hint) == (PollStatus.LOGIN_MISSING, "set LOCKED_KEY")
    assert not any(result.failed for result in found.values())


def test_each_is_polled_as_often_as_its_prices_age(clouds: Broker) -> None:
    assert poll_interval(clouds, "cloud") == timedelta(minutes=10)  # nothing is known of it
    list(poll_now(clouds))
    assert poll_interval(clouds, "cloud") == HOUR
    assert poll_interval(clouds, "locked") == timedelta(minutes=10)
    clouds.settings.prices = {"cloud": PollSettings(every=timedelta(minutes=2))}
    assert poll_interval(clouds, "cloud") == timedelta(minutes=2)


def test_a_suspect_poll_is_alerted_once_until_the_source_is_believed_again(
    clouds: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clouds.settings.notify = {"ops": SecretStr("json://127.0.0.1:9/none")}
    list(poll_now(clouds, ["cloud"]))
    accept_prices(clouds, "cloud", by=OLGA)
    monkeypatch.setattr(OldPriceCloud, "offers", lambda self, query: iter(()))
    [result] = poll_now(clouds, ["cloud"])
    assert (result.status, result.ok, result.failed) == (PollStatus.SUSPECT, False, True)
    assert alert_trouble(clouds, result)
    [again] = poll_now(clouds, ["cloud"])
    assert not alert_trouble(clouds, again)
    [sent] = clouds.store.outbox.under("suspect/cloud/")
    assert "an empty answer, where 1 offers were known" in sent.notice.body


def test_no_job_starts_on_an_offer_of_a_suspect_poll(clouds: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    list(poll_now(clouds, ["cloud"]))
    accept_prices(clouds, "cloud", by=OLGA)
    monkeypatch.setattr(OldPriceCloud, "offers", lambda self, query: iter(()))
    list(poll_now(clouds, ["cloud"]))
    assert rejections(clouds) == {Reason.SUSPECT_OFFER: 1}
    accept_prices(clouds, "cloud", by=OLGA)
    assert rejections(clouds) == {}


def test_an_empty_answer_of_the_users_own_clusters_is_believed(clouds: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OldPriceCloud, "refresh_before_deciding", True, raising=False)
    assert poll_request(clouds, "cloud").judge is None
    monkeypatch.setattr(OldPriceCloud, "refresh_before_deciding", False)
    clouds.forget_provider("cloud")
    assert poll_request(clouds, "cloud").judge is not None
