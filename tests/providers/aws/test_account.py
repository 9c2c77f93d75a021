"""With a login: spot prices by zone, scores, quotas, the price API, and every way in which AWS can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.core.errors import BrokerError, LoginMissing, Malformed, Refused, Throttled, Unreachable
from broker.core.market.offers import Availability, CapacityType, Offer, OfferQuery
from broker.core.values.money import Money
from providers.aws.provider import Aws
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.aws_files import Files, on_demand, product
from tests.providers.aws.conftest import market, offers_in, rows_of, skipped_in

if TYPE_CHECKING:
    from tests.fakes.aws_cloud import AwsCloud

Make = Callable[..., Aws]
TWO = ("H100", "A10G")  # a question about fewer machines is answered sooner
EVERYTHING = OfferQuery(accelerators=TWO)
SPOT = OfferQuery(capacity_types=(CapacityType.SPOT,), accelerators=TWO)
LISTED = OfferQuery(capacity_types=(CapacityType.ON_DEMAND, CapacityType.RESERVED), accelerators=TWO)


@pytest.fixture
def make(make: Make, request: pytest.FixtureRequest) -> Make:
    """By default, prices are the API's here, and somebody is logged in where there is a cloud."""

    def made(*, fresh: bool = False, **settings: Any) -> Aws:
        cloudy = {"cloud", "populated"} & set(request.fixturenames)
        login = request.getfixturevalue("login") if cloudy and not fresh else None
        return make(login, **{"prices": "api", "regions": ("us-east-1", "eu-west-1"), **settings})

    return made


class TestAwsWithALogin(ProviderContract):
    plugin = "aws"

    @pytest.fixture
    def provider(self, make: Make, populated: AwsCloud, published: Files) -> Aws:
        published.put_list("eu-west-1", market("eu-west-1"))
        return make(prices="list")


def failing(provider: Aws, query: OfferQuery) -> tuple[list[Offer], BrokerError]:
    found: list[Offer] = []
    try:
        for row in provider.offers(query):
            if isinstance(row, Offer):
                found.append(row)
    except BrokerError as error:
        return found, error
    pytest.fail("nothing failed")


# Spot.


def test_spot_prices_are_by_zone_id_and_exact(make: Make, populated: AwsCloud) -> None:
    offers = offers_in(rows_of(make(), SPOT))
    prices = {(offer.zone, offer.instance_type): offer.price for offer in offers}
    assert prices == {
        ("use1-az6", "p5.48xlarge"): Money.usd("21.123456"),
        ("use1-az1", "p5.48xlarge"): Money.usd("20.5"),
        ("use1-az2", "p5.48xlarge"): Money.usd("22"),
        ("use1-az6", "g5.xlarge"): Money.usd("0.4567"),
        ("use1-az1", "g5.xlarge"): Money.usd("0.4567"),
        ("use1-az2", "g5.xlarge"): Money.usd("0.4567"),
        ("euw1-az1", "p5.48xlarge"): Money.usd("30.000001"),
    }
    assert {(offer.source, offer.as_of, offer.engine) for offer in offers} == {
        ("aws-spot-price-history", NOW, "skypilot")
    }
    assert {offer.billing.free_if_interrupted_within for offer in offers} == {timedelta(hours=1)}


def test_of_several_prices_of_a_pool_the_latest_counts(make: Make, cloud: AwsCloud, published: Files) -> None:
    for price, hours in (("3", 30), ("1", 1), ("2", 2)):
        cloud.add_spot("us-east-1", "a6", "g5.xlarge", price, NOW - timedelta(hours=hours))
    assert [offer.price for offer in offers_in(rows_of(make(), SPOT))] == [Money.usd("1")]


def test_windows_and_red_hat_prices_are_not_ours(make: Make, cloud: AwsCloud, published: Files) -> None:
    for system in ("Windows", "Red Hat Enterprise Linux", "SUSE Linux"):
        cloud.add_spot("us-east-1", "a6", "g5.xlarge", "0.01", NOW, ProductDescription=system)
    cloud.add_spot("us-east-1", "a6", "g5.xlarge", "0.5", NOW, ProductDescription="Linux/UNIX (Amazon VPC)")
    assert [offer.price for offer in offers_in(rows_of(make(), SPOT))] == [Money.usd("0.5")]


def test_a_row_without_a_zone_id_gets_it_from_the_accounts_own_zones(
    make: Make, cloud: AwsCloud, published: Files
) -> None:
    cloud.add_spot("us-east-1", "a6", "g5.xlarge", "0.5", NOW, AvailabilityZoneId=None)
    zones = [offer.zone for offer in offers_in(rows_of(make(), SPOT))]
    assert zones == ["use1-az6"]


@pytest.mark.parametrize("price", ["0", "-1", "NaN", "", "0.00001", "1000000", "free"])
def test_a_spot_price_that_makes_no_sense_is_skipped(make: Make, cloud: AwsCloud, published: Files, price: str) -> None:
    cloud.add_spot("us-east-1", "a6", "g5.xlarge", price, NOW)
    cloud.add_spot("us-east-1", "b1", "g5.xlarge", "0.5", NOW)
    rows = rows_of(make(), SPOT)
    assert [offer.zone for offer in offers_in(rows)] == ["use1-az1"]
    assert len(skipped_in(rows)) == 1


def test_pools_carry_the_advisors_rate_and_the_regions_score(make: Make, populated: AwsCloud) -> None:
    populated.scores["eu-west-1"] = 3
    p5 = [offer for offer in offers_in(rows_of(make(), SPOT)) if offer.count == 8]
    here, there = (next(o for o in p5 if o.region == region) for region in ("us-east-1", "eu-west-1"))
    assert here.interruption_rate is not None
    assert 0.03 < here.interruption_rate < 0.05
    assert there.interruption_rate is None, "the advisor says nothing of that region"
    assert (here.score, there.score) == (0.7, 0.3)


def test_scores_are_asked_for_all_types_of_an_accelerator_at_once(make: Make, populated: AwsCloud) -> None:
    rows_of(make(), OfferQuery(capacity_types=(CapacityType.SPOT,), accelerators=("H100",)))
    [(_, asked)] = populated.calls("GetSpotPlacementScores")
    assert asked["InstanceTypes"] == ["p5.4xlarge", "p5.48xlarge"]
    assert asked["RegionNames"] == ["us-east-1", "eu-west-1"]


# Quotas and what exists.


def test_a_quota_that_holds_no_machine_is_no_quota_and_says_which(make: Make, populated: AwsCloud) -> None:
    offers = {(o.zone or o.region, o.instance_type, o.capacity_type): o for o in offers_in(rows_of(make(), EVERYTHING))}
    g5 = offers["use1-az6", "g5.xlarge", CapacityType.SPOT]
    assert g5.availability is Availability.NO_QUOTA
    assert "All G and VT Spot Instance Requests" in g5.unavailable_because
    assert offers["use1-az6", "p5.48xlarge", CapacityType.SPOT].slots == 1
    assert offers["us-east-1", "p5.48xlarge", CapacityType.ON_DEMAND].slots == 2
    assert offers["us-east-1", "g5.xlarge", CapacityType.ON_DEMAND].slots == 16


def test_a_machine_that_the_region_does_not_have_is_unavailable(make: Make, cloud: AwsCloud, published: Files) -> None:
    from tests.fakes.aws_cloud import get_products

    there = product("p5.48xlarge", "eu-west-3")
    cloud.products = get_products([(there, [on_demand(there, "70.0")])])
    [offer] = offers_in(rows_of(make(regions=("eu-west-3",)), LISTED))
    assert offer.availability is Availability.UNAVAILABLE
    assert "not offered" in offer.unavailable_because


# Prices on demand and reserved.


def test_the_api_says_what_the_list_says(make: Make, populated: AwsCloud) -> None:
    def told(provider: Aws) -> set[tuple[Any, ...]]:
        found = offers_in(rows_of(provider, replace(LISTED, regions=("us-east-1",))))
        return {(o.pool, o.price, o.source.partition(":")[2], o.availability, o.slots) for o in found}

    by_api, by_list = told(make()), told(make(prices="list"))
    assert by_api == by_list
    assert len(by_api) == 10


def test_the_api_is_asked_with_a_login_unless_the_list_has_an_address(
    make: Make, populated: AwsCloud, published: Files
) -> None:
    rows_of(make(prices="auto", regions=("us-east-1",)), LISTED)
    assert populated.calls("GetProducts") == []
    rows_of(make(prices="api"), LISTED)
    assert populated.calls("GetProducts")


def test_who_may_not_ask_the_api_reads_the_list(
    make: Make, populated: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.fakes.aws_cloud import AwsFault

    populated.faults["GetProducts"] = [AwsFault("AccessDeniedException", 400)]
    provider = make(prices="auto", regions=("us-east-1",))
    monkeypatch.setattr(type(provider._settings), "model_fields_set", {"regions"}, raising=False)
    found = offers_in(rows_of(provider, replace(LISTED, regions=("us-east-1",))))
    assert {offer.source.partition(":")[0] for offer in found} == {"aws-price-list"}


def test_with_an_expired_login_the_list_is_read_and_the_login_told(
    make: Make, populated: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.fakes.aws_cloud import AwsFault

    for operation in ("GetProducts", "DescribeAvailabilityZones"):
        populated.faults[operation] = [AwsFault("ExpiredToken", 400)]
    provider = make(prices="auto", regions=("us-east-1",))
    monkeypatch.setattr(type(provider._settings), "model_fields_set", {"regions"}, raising=False)
    found, error = failing(provider, EVERYTHING)
    assert {offer.source.partition(":")[0] for offer in found} == {"aws-price-list"}
    assert isinstance(error, LoginMissing)
    assert "aws sso login" in error.hint


# Failures.


def test_a_region_that_answers_nothing_is_asked_one_thing(make: Make, populated: AwsCloud) -> None:
    from tests.fakes.aws_cloud import AwsFault

    populated.faults["DescribeAvailabilityZones", "eu-west-1"] = [AwsFault("AuthFailure", 401)]
    found, error = failing(make(), SPOT)
    assert isinstance(error, LoginMissing)
    assert {offer.region for offer in found} == {"us-east-1"}
    assert "eu-west-1" not in {region for _, region, _ in populated.asked}


def test_a_password_in_an_endpoint_is_not_told(
    make: Make, populated: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://ann:hunter2@127.0.0.1:1")
    _, error = failing(make(fresh=True, regions=("us-east-1",)), SPOT)
    assert "127.0.0.1:1" in str(error)
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("RequestLimitExceeded", 503, Throttled),
        ("MaxConfigLimitExceeded", 400, Throttled),
        ("ExpiredToken", 400, LoginMissing),
        ("AuthFailure", 401, LoginMissing),
        ("RequestExpired", 400, LoginMissing),
        ("UnauthorizedOperation", 403, Refused),
        ("InternalError", 500, Unreachable),
        ("Unavailable", 503, Unreachable),
        ("InvalidParameterValue", 400, Refused),
    ],
)
def test_what_aws_refuses_is_told_in_our_words(
    make: Make, populated: AwsCloud, code: str, status: int, kind: type[BrokerError]
) -> None:
    from tests.fakes.aws_cloud import AwsFault

    populated.faults["DescribeSpotPriceHistory"] = [AwsFault(code, status)]
    found, error = failing(make(regions=("us-east-1",)), OfferQuery(accelerators=("H100",)))
    assert type(error) is kind
    assert code in str(error)
    assert "us-east-1" in str(error)
    assert error.hint or kind is Refused
    assert {offer.capacity_type for offer in found} == set(LISTED.capacity_types), "the rest arrives"


def test_a_region_that_fails_does_not_hold_back_the_others(make: Make, populated: AwsCloud) -> None:
    from tests.fakes.aws_cloud import AwsFault

    populated.faults["DescribeSpotPriceHistory", "eu-west-1"] = [AwsFault(status=503)]
    found, error = failing(make(), EVERYTHING)
    assert isinstance(error, Unreachable)
    assert "eu-west-1" in str(error)
    assert "us-east-1" not in str(error)
    assert {offer.region for offer in found if offer.capacity_type is CapacityType.SPOT} == {"us-east-1"}


def test_a_page_of_a_proxy_is_told_in_one_short_line(make: Make, populated: AwsCloud) -> None:
    from tests.fakes.aws_cloud import AwsFault

    page = "<html>\n<head></head>\n" + "<p>https://user:not-a-secret@proxy.example</p>\n" * 50
    populated.faults["DescribeSpotPriceHistory"] = [AwsFault("AccessDenied", 403, escape(page))]
    _, error = failing(make(regions=("us-east-1",)), SPOT)
    assert isinstance(error, Refused)
    assert str(error).isprintable()
    assert "not-a-secret" not in str(error)
    assert len(str(error)) < 400


def test_scores_that_fail_cost_no_price(make: Make, populated: AwsCloud) -> None:
    from tests.fakes.aws_cloud import AwsFault

    populated.faults["GetSpotPlacementScores"] = [AwsFault("UnauthorizedOperation", 403)]
    found, error = failing(make(), SPOT)
    assert len(found) == 7
    assert "getspotplacementscores" in error.hint


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"\x00\xff", b"<Response><spotPriceHistorySet><item>"])
def test_an_answer_that_is_no_answer_is_malformed(make: Make, populated: AwsCloud, body: bytes) -> None:
    populated.mangle["DescribeSpotPriceHistory"] = lambda _: body
    found, error = failing(make(), OfferQuery(accelerators=("H100",)))
    assert isinstance(error, Malformed)
    assert not [offer for offer in found if offer.capacity_type is CapacityType.SPOT]


def test_a_page_token_that_comes_again_ends_the_reading_and_keeps_what_came(make: Make, populated: AwsCloud) -> None:
    populated.repeat_token = True
    found, error = failing(make(regions=("us-east-1",), placement_scores=False, quotas=False), SPOT)
    assert isinstance(error, Malformed)
    assert len(found) == 3


# Logins.


def test_a_file_without_keys_is_no_login(
    make: Make, published: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[default]\nregion = us-east-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert {offer.price for offer in offers_in(rows_of(make(regions=("us-east-1",)), SPOT))} == {None}


def test_no_key_is_in_what_is_told(make: Make, populated: AwsCloud) -> None:
    from tests.fakes.aws_cloud import AwsFault

    provider = make(fresh=True)
    populated.faults["DescribeSpotPriceHistory"] = [AwsFault("AuthFailure", 401)]
    _, error = failing(provider, SPOT)
    for text in (str(error), error.hint, repr(provider.describe_setup()), repr(error.__cause__)):
        assert "not-a-secret" not in text
        assert "AKIAIOSFODNN7EXAMPLE" not in text
    assert provider.describe_setup()["logins"]["aws"]["where"] == "AWS_ACCESS_KEY_ID"


def test_only_what_is_asked_for_is_asked(make: Make, populated: AwsCloud) -> None:
    rows_of(make(), OfferQuery(capacity_types=(CapacityType.ON_DEMAND,), regions=("us-*",), accelerators=("H100",)))
    assert {name for name, _, _ in populated.asked} == {"GetProducts", "ListServiceQuotas"}
    assert {region for name, region, _ in populated.asked if name != "GetProducts"} == {"us-east-1"}
    rows_of(make(), OfferQuery(accelerators=("MI300X",)))
    assert populated.calls("DescribeSpotPriceHistory") == []
