"""The hand-written price book."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, Offer, OfferQuery, SkippedRow
from broker.core.market.price_basis import LIST_AGE
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.pricebook import Pricebook, PricebookSettings
from tests.contracts.provider_contract import NOW, ProviderContract, poll

RUNNABLE = {"aws", "gcp", "azure", "oci", "lambda", "runpod", "nebius"}


class TestPricebookIsAProvider(ProviderContract):
    plugin = "pricebook"

    @pytest.fixture
    def provider(self, clock: ManualClock) -> Pricebook:
        return Pricebook(clock=clock)


@pytest.fixture
def rows() -> list[Offer | SkippedRow]:
    return list(Pricebook(clock=ManualClock(NOW)).offers(OfferQuery()))


@pytest.fixture
def offers(rows: list[Offer | SkippedRow]) -> list[Offer]:
    return [row for row in rows if isinstance(row, Offer)]


def book(tmp_path: Path, text: str) -> list[Offer | SkippedRow]:
    file = tmp_path / "book.toml"
    file.write_text(text)
    return list(Pricebook(clock=ManualClock(NOW), settings=PricebookSettings(file=file)).offers(OfferQuery()))


PAGE = """
[[pages]]
provider = "acme"
source = "Acme: prices"
url = "https://example.com/prices"
date = "2026-11-01"
region = "global"
"""


def test_it_is_a_market_and_no_row_of_it_is_skipped(rows: list[Offer | SkippedRow], offers: list[Offer]) -> None:
    assert [row for row in rows if isinstance(row, SkippedRow)] == []
    assert len(offers) >= 60
    assert len({offer.provider for offer in offers}) >= 8
    kinds = {offer.capacity_type for offer in offers}
    assert kinds == {CapacityType.ON_DEMAND, CapacityType.SPOT, CapacityType.RESERVED}


def test_every_row_is_a_reference_of_its_day(offers: list[Offer]) -> None:
    for offer in offers:
        assert offer.reference
        assert offer.source == "pricebook"
        assert offer.max_age is None
        assert datetime(2024, 1, 1, tzinfo=UTC) < offer.as_of <= NOW
        runnable = offer.provider in RUNNABLE and offer.region != "community" and offer.term_months is None
        assert offer.engine == ("skypilot" if runnable else None)


def test_prices_are_in_the_range_of_such_things(offers: list[Offer]) -> None:
    """A slipped digit shows: no GPU of the book costs less than 20 cents or more than 18 dollars an hour, and no
    CPU less than one cent or more than ten."""
    for offer in offers:
        assert offer.price is not None
        if offer.accelerator:
            assert Money.usd("0.20") <= (offer.price_per_gpu or Money.ZERO) <= Money.usd("18"), offer.id
        else:
            assert offer.cpus
            assert 0.01 <= float(offer.price.dollars) / offer.cpus <= 0.10, offer.id


def test_within_one_machine_and_place_reserved_and_spot_are_below_on_demand(offers: list[Offer]) -> None:
    on_demand = {
        (offer.provider, offer.region, offer.instance_type): offer.price
        for offer in offers
        if offer.capacity_type is CapacityType.ON_DEMAND
    }
    compared = 0
    for offer in offers:
        list_price = on_demand.get((offer.provider, offer.region, offer.instance_type))
        if offer.capacity_type is not CapacityType.ON_DEMAND and list_price is not None:
            assert offer.price is not None
            assert offer.price < list_price, offer.id
            compared += 1
    assert compared > 20


def test_a_price_per_gpu_is_taken_times_the_gpus(offers: list[Offer]) -> None:
    eight = next(offer for offer in offers if offer.instance_type == "gpu_8x_h100_sxm5")
    assert eight.price == Money.usd("31.92")
    assert eight.price_per_gpu == Money.usd("3.99")


def test_a_commitment_is_its_total_over_its_hours(offers: list[Offer]) -> None:
    offer = next(o for o in offers if o.provider == "qubrid" and o.accelerator == "H100")
    assert (offer.term_months, offer.price) == (12, Money.usd("133414.80").share(1, 8760)), (
        "what the page says of a year"
    )


def test_no_page_is_older_than_the_limit_for_list_prices(offers: list[Offer]) -> None:
    """By the real clock: an alarm for whoever keeps the book. `python -m tests.lab.pricebook --help` says how to
    refresh it; a page without a newer source goes."""
    today = datetime.now(UTC)
    old = {f"{o.provider}, {o.as_of:%Y-%m-%d}" for o in offers if today - o.as_of > LIST_AGE}
    assert not old, f"older than {LIST_AGE.days} days: {sorted(old)}"


def test_a_machine_has_one_price_of_a_kind_in_a_place(offers: list[Offer]) -> None:
    assert len({offer.id for offer in offers}) == len(offers)


# What `advise hardware` is asked for, copied from the pages: USD per hour of one, and the day.
@pytest.mark.parametrize(
    ("accelerator", "provider", "usd", "day"),
    [
        ("A10G", "aws", "1.006", "2026-09-06"),
        ("Inferentia2", "aws", "0.7582", "2026-08-26"),
        ("Trainium", "aws", "1.34375", "2026-08-26"),
        ("B200", "runpod", "6.79", "2026-10-07"),
        ("B300", "runpod", "7.89", "2026-10-07"),
        ("GB200", "coreweave", "10.50", "2026-09-20"),
        ("MI300X", "digitalocean", "2.59", "2026-10-08"),
    ],
)
def test_prices_are_those_of_the_page(offers: list[Offer], accelerator: str, provider: str, usd: str, day: str) -> None:
    rows = [o for o in offers if (o.accelerator, o.provider, o.term_months) == (accelerator, provider, None)]
    best = min(rows, key=lambda offer: offer.price_per_gpu or Money.ZERO)
    assert (best.price_per_gpu, f"{best.as_of:%Y-%m-%d}") == (Money.usd(usd), day)


def test_spot_of_aws_is_free_when_aws_takes_it_within_the_hour(offers: list[Offer]) -> None:
    spot = [o for o in offers if o.provider == "aws" and o.capacity_type is CapacityType.SPOT]
    assert spot
    assert {o.billing.free_if_interrupted_within for o in spot} == {timedelta(hours=1)}
    rest = {o.billing.free_if_interrupted_within for o in offers if o not in spot}
    assert rest == {timedelta(0)}


def test_only_the_spot_of_a_page_is_free_when_it_is_taken_early(tmp_path: Path) -> None:
    rows = book(
        tmp_path,
        PAGE + 'spot_free_minutes = 60\nmachines = [{ type = "a", gpu = "L4", on_demand = "1", spot = "0.4" }]',
    )
    free = {row.capacity_type: row.billing.free_if_interrupted_within for row in rows if isinstance(row, Offer)}
    assert free == {CapacityType.ON_DEMAND: timedelta(0), CapacityType.SPOT: timedelta(hours=1)}


def test_a_bad_row_is_skipped_and_the_rest_arrives(tmp_path: Path) -> None:
    rows = book(
        tmp_path,
        PAGE
        + """machines = [
          { type = "a", gpu = "H100", n = 8, on_demand = "30" },
          { type = "b", gpu = "H100", on_demand = "free" },
          { type = "c", gpu = "H100", on_demand = "-1" },
          { type = "d", gpu = "Voodoo2", on_demand = "1" },
          { type = "e", gpu = "H100", on_demand = "2", colour = "green" },
          { type = "f", gpu = "L4", spot = "0.40" },
        ]""",
    )
    assert [row.instance_type for row in rows if isinstance(row, Offer)] == ["a", "f"]
    skipped = [row for row in rows if isinstance(row, SkippedRow)]
    assert [row.reason for row in skipped] == ["malformed_row", "malformed_row", "unknown_accelerator", "malformed_row"]
    assert all("Acme" in row.detail for row in skipped)


def test_a_bad_page_is_skipped_and_the_rest_arrives(tmp_path: Path) -> None:
    good = PAGE + 'machines = [{ type = "a", gpu = "H100", on_demand = "3" }]\n'
    tomorrow = good.replace("2026-11-01", "2026-11-22")
    rows = book(tmp_path, PAGE.replace('region = "global"', "") + tomorrow + good)
    assert [row.reason for row in rows if isinstance(row, SkippedRow)] == ["malformed_page", "dated_in_the_future"]
    assert len([row for row in rows if isinstance(row, Offer)]) == 1


@pytest.mark.parametrize("text", ["pages = 3", "", "not toml at all ="])
def test_a_file_that_is_no_price_book_is_an_input_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match=r"book\.toml"):
        book(tmp_path, text)


def test_a_file_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    gone = Pricebook(clock=ManualClock(NOW), settings=PricebookSettings(file=tmp_path / "none.toml"))
    with pytest.raises(InvalidInput, match="cannot read the price book"):
        poll(gone)
