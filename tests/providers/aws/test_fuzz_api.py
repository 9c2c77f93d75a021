"""Damaged answers of AWS's APIs, through botocore's own parsers: no crash, no price out of this world, and no harm to
other rows. Seeded."""

from __future__ import annotations

import json
import random
import re
import xml.etree.ElementTree as ET
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from broker.core.errors import BrokerError
from broker.core.market.offers import Offer
from broker.core.values.money import Money
from providers.aws import spot
from providers.aws.login import AwsLogin
from providers.aws.price_api import read_products
from tests.contracts.provider_contract import NOW
from tests.fakes.aws_files import on_demand, product, reserved
from tests.fakes.mutate import damaged_bytes

if TYPE_CHECKING:
    from tests.fakes.aws_cloud import AwsCloud

SEED = 20261121
FEW, MANY = 60, 2000
_TYPES = ("g5.xlarge", "g6.xlarge", "p4d.24xlarge", "p5.48xlarge")
_ODD_TEXT = (b"", b"NaN", b"-1", b"0", b"1e9", b"0.0000001", b"99999999", b"Linux", b"x" * 3000, b"&#0;", b"&lt;",
             b"2026-13-45T99:99:99Z", b"yesterday", "٣".encode(), b"us east", b"a/b@c", b"\xff")  # fmt: skip
_ELEMENT = re.compile(
    rb"<(spotPrice|instanceType|timestamp|productDescription|availabilityZone|availabilityZoneId)>([^<]*)"
)
_ODD: tuple[Any, ...] = (None, True, 0, -1, 1.5, "", "NaN", "-1", "0.0000001", "1e9", "99999999", "x" * 3000, [], {},
                         [1], {"a": 1}, "Hrs", "CapacityBlock")  # fmt: skip


class RowDamage:
    """Changes one element of one row, or a few bytes anywhere; remembers the row."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.row: int | None = None
        self.readable = 0

    def __call__(self, body: bytes) -> bytes:
        chance = self._chance
        if chance.random() < 0.3:
            self.row = None
            changed = damaged_bytes(body, chance)
        else:
            found = chance.choice(list(_ELEMENT.finditer(body)))
            self.row = body[: found.start()].count(b"<item>") - 1
            changed = body[: found.start(2)] + chance.choice(_ODD_TEXT) + body[found.end(2) :]
        try:
            ET.fromstring(changed)
            self.readable += 1
        except ET.ParseError:
            self.row = None
        return changed


def check_spot(login: AwsLogin, cloud: AwsCloud, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fakes.aws_cloud.PAGE", 100)
    for index, name in enumerate(_TYPES):
        cloud.add_spot("us-east-1", f"{'abcd'[index]}{index + 1}", name, f"{index + 1}.5", NOW - timedelta(hours=1))
    damage = cloud.mangle["DescribeSpotPriceHistory"] = RowDamage(random.Random(SEED))
    for mutant in range(number):
        offers: dict[str, Offer] = {}
        failed = False
        try:
            for row in spot.spot_prices(login, "us-east-1", _TYPES, NOW, {}):
                if isinstance(row, Offer):
                    offers[row.instance_type] = row
                else:
                    assert row.reason
        except BrokerError:
            failed = True
        for offer in offers.values():
            assert offer.price is not None
            assert Money.usd("0.001") <= offer.price <= Money.usd(10_000), f"mutant {mutant}: {offer.price}"
        if damage.row is not None:
            assert not failed, f"mutant {mutant}: one odd row is no reason to give up"
            others = {name for index, name in enumerate(_TYPES) if index != damage.row}
            assert others <= set(offers), f"mutant {mutant} loses {others - set(offers)}"
    assert 2 * damage.readable >= number


def test_damaged_spot_prices(login: AwsLogin, cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    check_spot(login, cloud, FEW, monkeypatch)


@pytest.mark.system
def test_thousands_of_damaged_spot_prices(login: AwsLogin, cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    check_spot(login, cloud, MANY, monkeypatch)


def damaged(value: Any, chance: random.Random) -> Any:
    """The value with something odd somewhere in it."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not keys or chance.random() < 0.05:
        return chance.choice(_ODD)
    at = chance.choice(keys)
    if chance.random() < 0.15:
        del value[at]
    else:
        value[at] = damaged(value[at], chance)
    return value


def check_products(number: int) -> None:
    from tests.fakes.aws_cloud import get_products

    chance = random.Random(SEED)
    made = []
    for name in ("p5.48xlarge", "g5.xlarge"):
        one = product(name, "us-east-1")
        made.append((one, [on_demand(one, "5.5"), *reserved(one, 1, "Partial Upfront", "1.25", "8760")]))
    hit, other = get_products(made)
    readable = 0
    for mutant in range(number):
        text = json.dumps(damaged(json.loads(hit), chance))
        if chance.random() < 0.25:
            at = chance.randrange(len(text))
            text = text[:at] + chr(chance.randrange(32, 127)) + text[at + chance.randrange(2) :]
        try:
            json.loads(text)
            readable += 1
        except ValueError:
            pass
        prices: dict[tuple[str, int | None], Money] = {}
        for row in read_products([text, other], ("us-east-1",), NOW):
            if isinstance(row, Offer):
                assert row.price is not None
                assert Money.usd("0.001") <= row.price <= Money.usd(10_000), f"mutant {mutant}: {row.price}"
                prices.setdefault((row.instance_type, row.term_months), row.price)
            else:
                assert row.reason
        assert prices["g5.xlarge", None] == Money.usd("5.5"), f"mutant {mutant}"
        assert prices["g5.xlarge", 12] == Money.usd("2.25"), f"mutant {mutant}"
    assert 2 * readable >= number


def test_damaged_products() -> None:
    pytest.importorskip("moto", reason="moto is not installed (the extra `dev`)")
    check_products(400)


@pytest.mark.system
def test_thousands_of_damaged_products() -> None:
    pytest.importorskip("moto", reason="moto is not installed (the extra `dev`)")
    check_products(5 * MANY)
