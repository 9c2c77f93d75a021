"""Damaged answers of AWS's APIs, through botocore's own parsers: no crash, no price out of this world, and no harm to
other rows. Seeded."""

from __future__ import annotations

import json
import os
import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from providers.aws import spot
from providers.aws.login import AwsLogin
from providers.aws.price_list import read_products
from providers.aws.settings import AwsSettings
from tests.contracts.provider_contract import NOW
from tests.fakes.aws_files import on_demand, product, reserved
from tests.fakes.mutate import (
    AdapterAnswer,
    DamagedBody,
    MutationTarget,
    answer_of,
    damaged_bytes,
    mutate,
)

if TYPE_CHECKING:
    from tests.fakes.aws_cloud import AwsCloud

SEED = 20261121
FEW, MANY = 20, 1000
_TYPES = ("g5.xlarge", "g6.xlarge", "p4d.24xlarge", "p5.48xlarge")
_ODD_TEXT = (b"", b"NaN", b"-1", b"0", b"1e9", b"0.0000001", b"99999999", b"Linux", b"x" * 3000, b"&#0;", b"&lt;",
             b"2026-13-45T99:99:99Z", b"yesterday", "٣".encode(), b"us east", b"a/b@c", b"\xff")  # fmt: skip
_ELEMENT = re.compile(
    rb"<(spotPrice|instanceType|timestamp|productDescription|availabilityZone|availabilityZoneId)>([^<]*)"
)


def damaged_spot(body: bytes, chance: random.Random) -> DamagedBody:
    """One element of one row changed, or a few bytes anywhere."""
    if chance.random() < 0.3:
        raw, row, what = damaged_bytes(body, chance), None, ""
    else:
        found = chance.choice(list(_ELEMENT.finditer(body)))
        odd = chance.choice(_ODD_TEXT)
        row = body[: found.start()].count(b"<item>") - 1
        raw, what = body[: found.start(2)] + odd + body[found.end(2) :], f"{found[1].decode()} = {odd!r:.40}"
    try:
        ET.fromstring(raw)
    except (ET.ParseError, LookupError, ValueError):  # LookupError: an encoding that nobody knows
        return DamagedBody(raw, None, "", readable=False)
    return DamagedBody(raw, row, f"row {row}: {what}" if what else _changed_elements(body, raw))


def _changed_elements(before: bytes, after: bytes) -> str:
    """What damaged bytes changed, for messages; the names of rows that can no longer be told apart are among it."""
    old, new = ([*ET.fromstring(body).iter()] for body in (before, after))
    if len(old) != len(new):
        return "rows or elements are gone"
    other = [b for a, b in zip(old, new, strict=True) if (a.tag, a.text) != (b.tag, b.text)]
    return "; ".join(f"{one.tag.rpartition('}')[2]} = {one.text!r:.40}" for one in other)


def spot_target(login: AwsLogin, cloud: AwsCloud, patch: pytest.MonkeyPatch) -> MutationTarget:
    patch.setattr("tests.fakes.aws_cloud.PAGE", 100)
    for index, name in enumerate(_TYPES):
        cloud.add_spot("us-east-1", f"{'abcd'[index]}{index + 1}", name, f"{index + 1}.5", NOW - timedelta(hours=1))
    undamaged: list[bytes] = []
    served: list[bytes | None] = [None]

    def mangle(body: bytes) -> bytes:
        undamaged[:] = undamaged or [body]
        return body if served[0] is None else served[0]

    cloud.mangle["DescribeSpotPriceHistory"] = mangle

    def ask(raw: bytes | None) -> AdapterAnswer:
        served[0] = raw
        return answer_of(spot.spot_prices(login, "us-east-1", _TYPES, NOW, {}))

    whole = ask(None).offers
    names = re.findall(rb"<instanceType>([^<]*)", undamaged[0])
    groups = {name: frozenset(offer for offer in whole if offer.instance_type == name) for name in _TYPES}
    assert all(groups.values())
    return MutationTarget(
        lambda chance: damaged_spot(undamaged[0], chance),
        ask,
        groups,
        group=lambda row: names[row].decode(),
        prices="spotPrice|^rows or elements are gone",
    )


def products_target() -> MutationTarget:
    from tests.fakes.aws_cloud import get_products

    made = []
    for name in ("p5.48xlarge", "g5.xlarge"):
        one = product(name, "us-east-1")
        made.append((one, [on_demand(one, "5.5"), *reserved(one, 1, "Partial Upfront", "1.25", "8760")]))
    hit, other = get_products(made)
    body = json.loads(hit, parse_float=Decimal)

    def damage(chance: random.Random) -> DamagedBody:
        mutant = mutate([body], lambda rows: rows, chance)
        return replace(mutant, body=mutant.body[1:-1]) if mutant.readable else mutant

    def ask(raw: bytes | None) -> AdapterAnswer:
        text = hit if raw is None else raw.decode("utf-8", "replace")
        return answer_of(read_products([text, other], ("us-east-1",), NOW))

    groups = {name: frozenset(o for o in ask(None).offers if o.instance_type == name) for name in _TYPES[2:]}
    groups["g5.xlarge"] = frozenset(o for o in ask(None).offers if o.instance_type == "g5.xlarge")
    # Damaged bytes hit the first product only, too.
    return MutationTarget(damage, ask, {0: groups["p5.48xlarge"], 1: groups["g5.xlarge"]}, fair=_FAIR_PRODUCT)


# What makes it another machine, another region's or another way to pay; and terms that are not there.
_FAIR_PRODUCT = (
    r"attributes\.(instanceType|regionCode|operatingSystem|tenancy|capacitystatus|preInstalledSw|licenseModel"
    r"|locationType|marketoption)\.= |terms\.(\w+\.)?(\w+\.|\w+\.\w+\.)?(deleted|= \{\})"
)


@contextmanager
def target(what: str) -> Iterator[MutationTarget]:
    """For `tests.market.test_damaged_answers`."""
    from tests.fakes.aws_gate import serve_cloud

    if what == "products":
        yield products_target()
        return
    with serve_cloud() as cloud, pytest.MonkeyPatch.context() as patch:
        for variable in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(variable)
        patch.setenv("AWS_ENDPOINT_URL", cloud.url)
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
        login = AwsLogin.find(AwsSettings(attempts=1, timeout_seconds=60))
        assert login is not None
        yield spot_target(login, cloud, patch)
