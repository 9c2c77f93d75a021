"""The bulk price list: the traps that cost money, exactness, and what goes wrong on the way."""

import json
import os
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from broker.core.errors import BrokerError, Malformed, Refused, Throttled, Unreachable
from broker.core.market.offers import CapacityType, Offer, OfferQuery
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.aws.provider import Aws
from tests.fakes.aws_files import FileAnswer, Files, Row, on_demand, price_list, product, reserved
from tests.providers.aws.conftest import market, offers_in, rows_of, skipped_in

Make = Callable[..., Aws]
LIST = "/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.csv"
LISTED = OfferQuery(capacity_types=(CapacityType.ON_DEMAND, CapacityType.RESERVED))
P5 = product("p5.48xlarge", "us-east-1")


def read(make: Make, files: Files, rows: list[Row] | str) -> tuple[list[Offer], list[str]]:
    files.put_list("us-east-1", rows)
    found = rows_of(make(), LISTED)
    return offers_in(found), skipped_in(found)


def failing(make: Make, query: OfferQuery = LISTED) -> tuple[list[Offer], BrokerError]:
    found: list[Offer] = []
    try:
        for row in make().offers(query):
            if isinstance(row, Offer):
                found.append(row)
    except BrokerError as error:
        return found, error
    pytest.fail("nothing failed")


# The traps.


def test_a_capacity_block_row_of_zero_is_never_an_offer(make: Make, files: Files) -> None:
    block = on_demand(
        product("p5.48xlarge", "us-east-1", sku="BLOCK", MarketOption="CapacityBlock", operation="RunInstances:CB"),
        "0.0000000000",
    )
    offers, skipped = read(make, files, [block, on_demand(P5, "55.0400000000")])
    assert [offer.price for offer in offers] == [Money.usd("55.04")]
    assert skipped == ["capacity_block_without_price"]


@pytest.mark.parametrize(
    "other",
    [
        {"Operating_System": "Windows"},
        {"Operating_System": "RHEL"},
        {"Tenancy": "Dedicated"},
        {"Tenancy": "Host"},
        {"Pre Installed S/W": "SQL Web"},
        {"License_Model": "Bring your own license"},
        {"CapacityStatus": "UnusedCapacityReservation"},
        {"CapacityStatus": "AllocatedCapacityReservation"},
        {"Location_Type": "AWS Local Zone"},
        {"Location_Type": "AWS Wavelength Zone"},
    ],
)
def test_only_linux_shared_used_and_nothing_preinstalled(make: Make, files: Files, other: dict[str, str]) -> None:
    twin = on_demand(product("p5.48xlarge", "us-east-1", sku="TWIN", **other), "0.0100000000")
    offers, skipped = read(make, files, [twin, on_demand(P5, "55.0400000000"), twin])
    assert [offer.price for offer in offers] == [Money.usd("55.04")]
    assert skipped == []


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"Operating_System": ""}, "incomplete_row"),
        ({"Tenancy": ""}, "incomplete_row"),
        ({"CapacityStatus": "free"}, "incomplete_row"),
        ({"Pre Installed S/W": ""}, "incomplete_row"),
        ({"Region_Code": "us-west-2"}, "other_region"),
    ],
)
def test_a_machine_of_which_nobody_can_say_whether_it_is_plain_is_counted(
    make: Make, files: Files, other: dict[str, str], reason: str
) -> None:
    twin = on_demand(product("p5.48xlarge", "us-east-1", sku="TWIN", **other), "0.0100000000")
    offers, skipped = read(make, files, [twin, on_demand(P5, "55.0400000000")])
    assert [offer.price for offer in offers] == [Money.usd("55.04")]
    assert skipped == [reason]


def test_a_list_without_products_is_malformed(make: Make, files: Files) -> None:
    with pytest.raises(Malformed, match="without a single product"):
        read(make, files, [])


def test_an_upfront_fee_is_spread_over_the_term(make: Make, files: Files) -> None:
    rows = [
        *reserved(P5, 1, "All Upfront", "0.0000000000", "241000"),
        *reserved(P5, 3, "Partial Upfront", "10.0000000000", "262800"),
        *reserved(P5, 3, "No Upfront", "25.5000000000", None),
    ]
    offers, skipped = read(make, files, rows)
    prices = {(offer.term_months, offer.source): offer.price for offer in offers}
    assert prices == {
        (12, "aws-price-list:standard-all-upfront"): Money.usd(Decimal(241_000) / 8760),
        (36, "aws-price-list:standard-partial-upfront"): Money.usd("20"),
        (36, "aws-price-list:standard-no-upfront"): Money.usd("25.5"),
    }
    assert skipped == []
    assert {offer.engine for offer in offers} == {None}


def test_an_upfront_fee_row_is_never_taken_for_an_hourly_price(make: Make, files: Files) -> None:
    """In either order of the two rows."""
    rows = reserved(P5, 1, "Partial Upfront", "10.0000000000", "87600")
    for order in (rows, rows[::-1]):
        offers, _ = read(make, files, order)
        assert [offer.price for offer in offers] == [Money.usd("20")]


@pytest.mark.parametrize("option", ["All Upfront", "Partial Upfront"])
def test_a_term_without_its_upfront_fee_is_refused(make: Make, files: Files, option: str) -> None:
    offers, skipped = read(make, files, reserved(P5, 1, option, "1.0000000000", None))
    assert (offers, skipped) == ([], ["incomplete_term"])


@pytest.mark.parametrize("option", ["No Upfront", "Partial Upfront"])
def test_a_term_without_its_hourly_price_is_refused(make: Make, files: Files, option: str) -> None:
    offers, skipped = read(make, files, reserved(P5, 1, option, None, "10"))
    assert (offers, skipped) == ([], ["incomplete_term"])


def test_an_all_upfront_term_of_zero_is_refused(make: Make, files: Files) -> None:
    offers, skipped = read(make, files, reserved(P5, 1, "All Upfront", "0.0000000000", "0"))
    assert (offers, skipped) == ([], ["incomplete_term"])


@pytest.mark.parametrize("price", ["0.0000000000", "-1.0", "NaN", "", "1e2", "99999999"])
def test_a_price_that_makes_no_sense_is_skipped_and_the_rest_arrives(make: Make, files: Files, price: str) -> None:
    g5 = product("g5.xlarge", "us-east-1")
    offers, skipped = read(make, files, [on_demand(P5, price), on_demand(g5, "1.0060000000")])
    assert [offer.instance_type for offer in offers] == ["g5.xlarge"]
    assert len(skipped) == 1


def test_a_foreign_currency_is_refused(make: Make, files: Files) -> None:
    offers, skipped = read(make, files, [on_demand(P5, "350.0000000000", Currency="CNY")])
    assert (offers, skipped) == ([], ["foreign_currency"])


def test_a_price_of_next_month_is_not_in_force(make: Make, files: Files) -> None:
    offers, skipped = read(make, files, [on_demand(P5, "1.0", EffectiveDate="2026-12-01")])
    assert (offers, skipped) == ([], ["not_yet_in_force"])


def test_a_new_gpu_machine_is_counted_and_a_cpu_machine_is_not(make: Make, files: Files) -> None:
    rows = [
        on_demand(product("p9.96xlarge", "us-east-1"), "99.0"),
        on_demand(product("g6f.large", "us-east-1"), "0.2020000000"),
        on_demand(product("f2.6xlarge", "us-east-1"), "1.9800000000"),
        on_demand(product("m7i.large", "us-east-1", Instance_Family="General purpose", GPU="NA"), "0.1"),
    ]
    offers, skipped = read(make, files, rows)
    assert [(offer.machine, offer.price, offer.engine) for offer in offers] == [
        ("L4-1of8:1", Money.usd("0.202"), "skypilot")
    ]
    assert sorted(skipped) == ["unknown_accelerator", "unknown_machine"]


def test_ultraservers_are_priced_and_not_launched_and_trainium3_is_counted(make: Make, files: Files) -> None:
    rows = [
        on_demand(product("u-p6e-gb200x72", "us-east-1"), "761.904"),
        on_demand(product("p6e-gb300.36xlarge", "us-east-1"), "60.0"),
        on_demand(product("trn3.48xlarge", "us-east-1"), "40.0"),
    ]
    offers, skipped = read(make, files, rows)
    assert {(offer.machine, offer.memory_gib, offer.engine) for offer in offers} == {
        ("GB200:72", 17280, None),
        ("GB300:4", None, "skypilot"),
    }
    assert skipped == ["unknown_machine"]


def test_a_second_product_at_another_price_is_not_believed(make: Make, files: Files) -> None:
    twin = product("p5.48xlarge", "us-east-1", sku="TWIN")
    offers, skipped = read(make, files, [on_demand(P5, "55.04"), on_demand(twin, "5.5")])
    assert [offer.price for offer in offers] == [Money.usd("55.04")]
    assert skipped == ["conflicting_duplicate"]


# What an offer says.


def test_the_karpenter_sample_is_exact_to_the_micro_dollar(make: Make, files: Files) -> None:
    """Every on-demand price that karpenter generated from the price list of us-east-1, written as the list has it."""
    folder = os.environ.get("GPUBROKER_TEST_DATA")
    sample = Path(folder or "-") / "payloads" / "aws_ondemand_gpu_prices_karpenter_2026-07-20.json"
    if not sample.exists():
        pytest.skip("GPUBROKER_TEST_DATA does not name a folder with payloads")
    known = json.loads(sample.read_text())["us-east-1"]
    rows = [on_demand(product(name, "us-east-1"), usd + "0000") for name, usd in known.items()]
    offers, skipped = read(make, files, rows)
    assert {offer.instance_type: offer.price for offer in offers} == {
        name: Money(int(Fraction(known[name]) * 1_000_000)) for name in {offer.instance_type for offer in offers}
    }
    assert len(offers) + len(skipped) == len(known)
    assert len(offers) >= 60
    assert not skipped


# On the way.


def test_a_region_that_is_down_does_not_hold_back_the_others(make: Make, published: Files) -> None:
    published.answers[LIST.replace("us-east-1", "us-west-2")] = FileAnswer(b"", 503)
    found, error = failing(lambda: make(regions=("us-west-2", "us-east-1")))
    assert len(found) == 10
    assert isinstance(error, Unreachable)
    assert "us-west-2" in str(error)


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (FileAnswer(b"", 429), Throttled, "429"),
        (FileAnswer(b"", 500), Unreachable, "500"),
        (FileAnswer(b"", 403), Refused, "403"),
        (FileAnswer(b"<html>Sign in</html>"), Malformed, "no header line"),
        (FileAnswer(b""), Malformed, "no header line"),
        (FileAnswer(b'"SKU","TermType"\n"A","OnDemand"\n'), Malformed, "without the column"),
        (FileAnswer(b"x" * (2 << 20)), Malformed, "line of more than"),
    ],
)
def test_what_the_server_can_do_wrong(make: Make, files: Files, answer: FileAnswer, kind: type, says: str) -> None:
    files.answers[LIST] = answer
    found, error = failing(make)
    assert found == []
    assert isinstance(error, kind)
    assert says in str(error)


def test_what_arrived_before_the_connection_broke_is_kept(make: Make, files: Files) -> None:
    whole = price_list([on_demand(P5, "55.0400000000"), *market("us-east-1")]).encode()
    files.answers[LIST] = FileAnswer(whole, cut=len(whole) - 500)
    found, error = failing(make)
    assert isinstance(error, Unreachable)
    assert found


def test_it_is_tried_again_with_the_clock_given(make: Make, files: Files, clock: ManualClock) -> None:
    good = FileAnswer(price_list(market("us-east-1")).encode())
    files.answers[LIST] = lambda before: good if before == 2 else FileAnswer(b"", 503)
    assert len(offers_in(rows_of(make(attempts=3), LISTED))) == 10
    assert len(clock.slept) == 2


def test_a_line_that_is_broken_is_skipped_and_the_rest_arrives(make: Make, files: Files) -> None:
    *before, last, end = price_list(market("us-east-1")).split("\n")
    broken = ['"Linux","Shared', "Linux,Shared," * 3, '"' + "Linux Shared" * 20_000]
    offers, skipped = read(make, files, "\n".join([*before, *broken, last, end]))
    assert len(offers) == 10
    assert skipped == ["malformed_row"] * 3


FOLDER = "/offers/v1.0/aws/AmazonEC2/current"


@pytest.mark.parametrize("suffix", ["", FOLDER, f"{FOLDER}/{{region}}/index.csv"])
def test_the_address_may_be_a_host_a_folder_or_a_pattern(make: Make, published: Files, suffix: str) -> None:
    assert len(offers_in(rows_of(make(price_list_url=published.url + suffix), LISTED))) == 10


def test_only_the_regions_asked_for_are_fetched(make: Make, published: Files) -> None:
    provider = make(regions="us-east-1, eu-west-1")
    assert rows_of(provider, OfferQuery(regions=("us-*",), capacity_types=(CapacityType.ON_DEMAND,)))
    assert published.asked == [LIST]
