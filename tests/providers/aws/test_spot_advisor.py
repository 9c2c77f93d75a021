"""The spot advisor without a login: how often machines are taken back, and no price."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from broker.core.errors import BrokerError, Malformed
from broker.core.market.offers import Availability, CapacityType, Offer, OfferQuery
from providers.aws.provider import Aws
from providers.aws.spot import advice_in, rate_per_hour
from tests.fakes.aws_files import Files, advisor
from tests.providers.aws.conftest import offers_in, rows_of, skipped_in

Make = Callable[..., Aws]
SPOT = OfferQuery(capacity_types=(CapacityType.SPOT,))


def spot(make: Make, files: Files, data: Any, **settings: Any) -> tuple[dict[str, Offer], list[str]]:
    files.put_advisor(data)
    found = rows_of(make(**settings), SPOT)
    return {offer.instance_type: offer for offer in offers_in(found)}, skipped_in(found)


def test_without_a_login_a_spot_pool_has_no_price_and_says_how_often_it_is_lost(make: Make, published: Files) -> None:
    offers = {offer.instance_type: offer for offer in offers_in(rows_of(make(), SPOT))}
    assert set(offers) == {"p5.48xlarge", "g5.xlarge"}
    for offer in offers.values():
        assert (offer.price, offer.source, offer.availability) == (None, "aws-spot-advisor", Availability.UNKNOWN)
        assert not offer.has_valid_price()
        assert offer.billing.free_if_interrupted_within.total_seconds() == 3600


def test_a_band_is_a_rate_of_a_day_of_exposure(make: Make, files: Files) -> None:
    types = ("p5.48xlarge", "g5.xlarge", "g6.xlarge", "p4d.24xlarge", "g4dn.xlarge")
    data = advisor({"us-east-1": {name: (50, band) for band, name in enumerate(types)}})
    offers, _ = spot(make, files, data)
    rates = [offers[name].interruption_rate for name in types]
    shares = (0.05, 0.10, 0.15, 0.20, 0.60)
    assert rates == pytest.approx([-math.log(1 - share) / 24 for share in shares])
    a_month, _ = spot(make, files, data, spot_exposure_hours=730)
    assert a_month["g5.xlarge"].interruption_rate == pytest.approx(-math.log(0.9) / 730)


def test_the_rate_gives_the_share_back() -> None:
    assert 1 - math.exp(-rate_per_hour(0.1, 24) * 24) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"s": 50, "r": 9}, "unknown_band"),
        ({"s": 50}, "malformed_row"),
        ({"s": "x", "r": 1}, "malformed_row"),
        (None, "malformed_row"),
    ],
)
def test_an_odd_row_is_skipped_and_the_rest_arrives(make: Make, files: Files, row: Any, reason: str) -> None:
    data = advisor({"us-east-1": {"g5.xlarge": (60, 1)}})
    data["spot_advisor"]["us-east-1"]["Linux"]["p5.48xlarge"] = row
    offers, skipped = spot(make, files, data)
    assert (set(offers), skipped) == ({"g5.xlarge"}, [reason])


def test_windows_and_cpu_machines_are_not_ours(make: Make, files: Files) -> None:
    data = advisor({"us-east-1": {"m5.large": (60, 1)}, "eu-west-1": {"g5.xlarge": (60, 1)}})
    data["spot_advisor"]["us-east-1"]["Windows"]["p5.48xlarge"] = {"s": 1, "r": 1}
    assert spot(make, files, data) == ({}, [])


@pytest.mark.parametrize("data", [[], {}, {"ranges": [], "spot_advisor": []}, {"ranges": [{"index": 0}]}, "x"])
def test_something_else_is_malformed(data: Any) -> None:
    with pytest.raises(Malformed):
        list(advice_in(data, ("us-east-1",), 24))


def test_its_failure_does_not_hold_back_the_list(make: Make, published: Files) -> None:
    del published.answers["/spot-advisor-data.json"]
    found: list[Any] = []
    with pytest.raises(BrokerError, match="404"):
        found.extend(make().offers(OfferQuery(capacity_types=(CapacityType.SPOT,))))
    del published.answers["/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.csv"]
    with pytest.raises(BrokerError, match=r"(?s)index.csv.*spot-advisor"):
        list(make().offers(OfferQuery()))
