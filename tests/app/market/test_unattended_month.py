"""A month of price tracking that nobody looks at: what is recorded, what is alerted, and what becomes of a source that
changes its format. Vast.ai's adapter over HTTP, asked as often as the service does, on a clock that the test moves."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from broker.app.alerts import notify
from broker.app.doctor.doctor import examine
from broker.app.market import watches
from broker.app.market.polling import alert_trouble, poll_interval, poll_now, price_status
from broker.app.service.duties import RetentionDuty
from broker.app.wiring import Broker
from broker.core.market.offers import CapacityType, Doubt, Offer, OfferQuery
from broker.core.market.watches import Trigger, Watch
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.settings import Settings
from broker.store.records import PollStatus
from cli import registries
from tests.actors import EVERYBODYS
from tests.empty_store import empty_store
from tests.fakes.server import FakeServer, HttpAnswer, HttpRequest
from tests.fakes.vast import VastListing, VastMarket

BEGIN = datetime(2026, 10, 1, tzinfo=UTC)
STEP, DAY = timedelta(hours=6), timedelta(days=1)
LEVEL = Decimal("0.30")  # USD per hour of an RTX 4090
ON_DEMAND: dict[str, Any] = {"capacity_types": (CapacityType.ON_DEMAND,)}
Change = Callable[[dict[str, Any]], Any]


@dataclass
class Month:
    """``level``: of the prices of a day; ``damage``: of the answers, as a source that changes its format."""

    broker: Broker
    clock: ManualClock
    level: Callable[[float], Decimal] = lambda day: LEVEL
    damage: Change | None = None
    noise: random.Random = field(default_factory=lambda: random.Random(46))
    alerts: list[tuple[float, str]] = field(default_factory=list)

    @property
    def day(self) -> float:
        return (self.clock.now() - BEGIN) / DAY

    def market(self, request: HttpRequest) -> HttpAnswer:
        """Twelve machines, whose prices move by up to 3 % from hour to hour."""
        prices = [
            self.level(self.day) * Decimal(1 + number / 100 + self.noise.uniform(-0.03, 0.03)) for number in range(12)
        ]
        listings = [
            VastListing(
                id=number, machine_id=number, num_gpus=1, gpu_frac=Decimal(1), dph_base=price, dph_total=price,
                discounted_dph_total=price, min_bid=price / 2,
            )
            for number, price in enumerate(prices, 1)
        ]  # fmt: skip
        answer = VastMarket(*listings)(request)
        return answer if self.damage is None else self.damage(answer.body)

    def run(self, days: float) -> None:
        """As the service does: polls that are due, the watches, and once a day what is no longer kept."""
        end, due, kept = self.clock.now() + days * DAY, self.clock.now(), self.clock.now()
        while self.clock.now() < end:
            if self.clock.now() >= due:
                (result,) = poll_now(self.broker, ["vast"])
                if alert_trouble(self.broker, result):
                    self.alerts.append((self.day, result.status.value))
                due = self.clock.now() + poll_interval(self.broker, "vast")
            checked = watches.check(self.broker)
            self.alerts += [(self.day, one.watch.name) for one in checked.looked if one.notice is not None]
            if self.clock.now() >= kept:
                RetentionDuty(self.broker, say=print).once()
                kept += DAY
            self.clock.advance(STEP)

    def offers(self) -> list[Offer]:
        return self.broker.store.offers(OfferQuery(providers=("vast",)))

    def watch(self, trigger: Trigger, **condition: Any) -> None:
        fields: dict[str, Any] = {"machines": ("RTX4090",), "providers": ("vast",)} | condition | ON_DEMAND
        watches.add(self.broker, Watch(trigger.value, trigger, self.clock.now(), "ann", **fields))


@pytest.fixture
def month(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Month]:
    monkeypatch.setattr(notify, "deliver", lambda *_: [])
    clock, months = ManualClock(BEGIN), list[Month]()
    with FakeServer(lambda request: months[0].market(request)) as server:
        settings = Settings(
            home=tmp_path, store=empty_store(tmp_path / "store.db"), providers={"vast": {"base_url": server.url}},
            notify={"ops": SecretStr("json://127.0.0.1:9/none")},
        )  # fmt: skip
        broker = Broker(settings, registries(), EVERYBODYS, clock=clock)
        months.append(Month(broker, clock))
        yield months[0]
        broker.close()


def test_prices_that_stay_alert_once_a_week_at_most(month: Month) -> None:
    """Around the price that is watched for, and with a rise to compare with."""
    month.run(0.5)
    month.watch(Trigger.BELOW, price=Money.usd("0.30"))
    month.watch(Trigger.RISES, part=0.05, within=DAY)
    month.run(28)
    assert len(month.alerts) <= 4, month.alerts


def test_real_moves_are_alerted_each_within_hours(month: Month) -> None:
    """A fifth down on day 5, up again on day 10, down on day 15, three fifths up on day 20."""

    def level(day: float) -> Decimal:
        return LEVEL * Decimal("0.8" if 5 <= day < 10 or 15 <= day < 20 else "1.6" if day >= 20 else "1")

    month.level = level
    month.run(0.5)
    month.watch(Trigger.BELOW, price=Money.usd("0.26"))
    month.watch(Trigger.RISES, part=0.2, within=DAY)
    month.run(29.5)
    assert [(int(day), name) for day, name in month.alerts] == [
        (5, "below"), (10, "rises"), (15, "below"), (20, "rises"),
    ]  # fmt: skip
    assert all(day % 5 < 0.3 for day, _ in month.alerts)


def test_history_is_kept_as_long_as_the_policy_says(month: Month) -> None:
    month.broker.store.activate_policy({"p.yaml": "version: 1\ndefaults: {keep_prices: 30d}\n"}, by="ann")
    month.run(33)
    offer = month.offers()[0]
    series = month.broker.store.market.price_series(offer, BEGIN, month.clock.now())
    assert series[0].at < BEGIN + 3 * DAY, "the price in force then stays"
    assert series[1].at >= BEGIN + 2 * DAY
    assert min(run.finished for run in month.broker.store.market.poll_runs()) >= BEGIN + 2 * DAY


PRICES = ("dph_base", "dph_total", "discounted_dph_total", "min_bid")


def renamed(names: Sequence[str], body: dict[str, Any]) -> HttpAnswer:
    rows = [{("new_" if key in names else "") + key: value for key, value in row.items()} for row in body["offers"]]
    return HttpAnswer(200, body | {"offers": rows})


def in_cents(body: dict[str, Any]) -> HttpAnswer:
    return HttpAnswer(
        200, {"offers": [row | {key: row[key] * 100 for key in PRICES if row.get(key)} for row in body["offers"]]}
    )


FORMATS: dict[str, Change] = {
    "machine renamed": lambda body: renamed(["gpu_name"], body),
    "price renamed": lambda body: renamed(PRICES, body),
    "list renamed": lambda body: HttpAnswer(200, {"machines": body["offers"]}),
    "HTML": lambda body: HttpAnswer(200, b"<html>our new console</html>"),
    "cents": in_cents,
    "empty": lambda body: HttpAnswer(200, {"offers": []}),
}


@pytest.mark.parametrize("change", FORMATS)
def test_another_format_is_alerted_once_within_a_day_and_the_last_prices_keep_their_age(
    month: Month, change: str
) -> None:
    month.run(2)
    good = {offer.id: (offer.price, offer.as_of) for offer in month.offers()}
    assert len(good) == 24
    month.damage = FORMATS[change]
    month.run(2)
    assert [int(day) for day, _ in month.alerts] == [2], "once, within a day"
    (status,) = [one for one in price_status(month.broker).providers if one.provider == "vast"]
    assert status.status in (PollStatus.SUSPECT, PollStatus.FAILED)
    assert status.last_success is not None
    assert status.last_success < BEGIN + 2 * DAY
    (finding,) = [one for one in examine(lambda: month.broker) if one.facts.get("provider") == "vast"]
    assert finding.health.value == "problem"
    offers = month.offers()
    assert {offer.id: (offer.price, offer.as_of) for offer in offers} == good
    assert {offer.doubt for offer in offers} <= {None, Doubt.UNTOLD}
    month.damage = None
    month.run(0.5)
    offers = month.offers()
    assert {offer.doubt for offer in offers} == {None}
    assert min(offer.as_of for offer in offers) >= BEGIN + 4 * DAY
    assert len(month.alerts) == 1
