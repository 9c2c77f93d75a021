"""Nebius's presets become offers."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import pytest

from broker.core.errors import (
    BrokerError,
    HostUnknown,
    LoginMissing,
    Malformed,
    NoLogin,
    Refused,
    Throttled,
    Unreachable,
)
from broker.core.market.offers import Availability, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.nebius import Nebius, NebiusSettings
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.asking import until_error
from tests.fakes.mutate import (
    AdapterAnswer,
    DamagedBody,
    MutationTarget,
    answer_of,
    damaged_bytes,
)
from tests.fakes.nebius import TOKEN, NebiusMarket

pytest.importorskip("nebius", reason="Nebius's SDK is not installed")

PLATFORMS = "nebius.compute.v1.PlatformService/List"
ESTIMATE = "nebius.billing.v1.CalculatorService/EstimateBatch"
ADVICE = "nebius.capacity.v1.ResourceAdviceService/List"
TENANTS = "nebius.iam.v2.TenantService/List"
H100 = {"1gpu-16vcpu-200gb": (1, "2.95"), "8gpu-128vcpu-1600gb": (8, "23.6")}
GOOD: dict[str, tuple[int, dict[str, tuple[int, str | None]]]] = {
    "gpu-h100-sxm": (80, {**H100}),
    "gpu-b200-sxm-a": (180, {"8gpu-160vcpu-1792gb": (8, "44")}),
    "gpu-l40s-d": (48, {"2gpu-64vcpu-384gb": (2, "3.1")}),
    "gpu-rtx6000": (96, {"1gpu-24vcpu-218gb": (1, "1.8")}),
}
OTHERS: dict[str, tuple[int, dict[str, tuple[int, str | None]]]] = {
    "cpu-d3": (0, {"4vcpu-16gb": (0, "0.1")}),
    "gpu-x900-sxm": (80, {"1gpu": (1, "1")}),
    "gpu-h200-sxm": (141, {"0gpu": (0, "1"), "1gpu-new": (1, None)}),
    "gpu-b300-sxm": (270, {}),
}


def nebius(url: str, clock: ManualClock, token: str = TOKEN, **settings: Any) -> Nebius:
    chosen = NebiusSettings(**{"base_url": url, "iam_token": token, "attempts": 1, "timeout_seconds": 60, **settings})
    return Nebius(clock=clock, settings=chosen, environment={})


@pytest.fixture
def market() -> Iterator[NebiusMarket]:
    made = NebiusMarket({**GOOD, **OTHERS}, spot=("gpu-h100-sxm",), available={"8gpu-128vcpu-1600gb": 0})
    with made.served() as running:
        yield running


class TestNebiusIsAProvider(ProviderContract):
    plugin = "nebius"

    @pytest.fixture
    def provider(self, clock: ManualClock, market: NebiusMarket) -> Nebius:
        return nebius(market.url, clock)


def rows(market: NebiusMarket) -> list[Offer | SkippedRow]:
    return list(nebius(market.url, ManualClock(NOW)).offers(OfferQuery()))


def test_each_preset_is_an_offer_at_what_the_calculator_says(market: NebiusMarket) -> None:
    found = {(o.machine, o.capacity_type.value): o for o in rows(market) if isinstance(o, Offer)}
    assert {key: row.price for key, row in found.items()} == {
        ("H100:1", "on_demand"): Money.usd("2.95"),
        ("H100:1", "spot"): Money.usd("0.983333"),
        ("H100:8", "on_demand"): Money.usd("23.6"),
        ("H100:8", "spot"): Money.usd("7.866667"),
        ("B200:8", "on_demand"): Money.usd("44"),
        ("L40S:2", "on_demand"): Money.usd("3.1"),
        ("RTXPRO6000:1", "on_demand"): Money.usd("1.8"),
    }
    eight, one = found["H100:8", "on_demand"], found["H100:1", "on_demand"]
    assert (eight.instance_type, eight.region) == ("gpu-h100-sxm_8gpu-128vcpu-1600gb", "eu-north1")
    assert (eight.availability, one.availability, one.slots) == (Availability.UNAVAILABLE, Availability.AVAILABLE, 2)
    assert (eight.interconnect, found["L40S:2", "on_demand"].interconnect) == (Interconnect.NVLINK, Interconnect.PCIE)


def test_what_is_no_offer_is_counted_and_what_has_no_gpu_is_not(market: NebiusMarket) -> None:
    reasons = sorted(row.reason for row in rows(market) if isinstance(row, SkippedRow))
    assert reasons == ["malformed_row", "malformed_row", "no_estimate", "unknown_accelerator"]


def test_an_estimate_in_another_currency_is_no_price(market: NebiusMarket) -> None:
    from nebius.api.nebius.billing.v1 import EstimateBatchResponse

    def in_euros(content: bytes) -> bytes:
        answer = EstimateBatchResponse.FromString(content)
        answer.currency = "eur"
        return bytes(answer.SerializeToString())

    market.replace = {ESTIMATE: in_euros}
    found = rows(market)
    assert not [row for row in found if isinstance(row, Offer)]
    assert "foreign_currency" in {row.reason for row in found if isinstance(row, SkippedRow)}


def test_a_region_is_asked_once_whatever_the_number_of_its_projects(market: NebiusMarket) -> None:
    market.regions = ("eu-north1", "us-central1", "eu-north1")
    assert {row.region for row in rows(market) if isinstance(row, Offer)} == {"eu-north1", "us-central1"}
    assert market.asked.count(PLATFORMS) == 2


def test_without_the_right_to_ask_for_capacity_prices_come_all_the_same(market: NebiusMarket) -> None:
    market.refuse = {ADVICE: "PERMISSION_DENIED"}
    found = rows(market)
    assert {row.availability for row in found if isinstance(row, Offer)} == {Availability.UNKNOWN}
    assert "not_told" in {row.reason for row in found if isinstance(row, SkippedRow)}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("UNAUTHENTICATED", LoginMissing),
        ("PERMISSION_DENIED", Refused),
        ("RESOURCE_EXHAUSTED", Throttled),
        ("UNAVAILABLE", Unreachable),
    ],
)
def test_a_failure_has_its_own_error(market: NebiusMarket, code: str, error: type[BrokerError]) -> None:
    market.refuse = {TENANTS: code}
    found, failure = until_error(nebius(market.url, ManualClock(NOW)))
    assert (type(failure), found) == (error, [])


@pytest.mark.system  # the SDK takes three seconds to give such an answer up
def test_what_is_no_answer_is_malformed(market: NebiusMarket) -> None:
    market.replace = {PLATFORMS: lambda _: b"<html>"}
    _, failure = until_error(nebius(market.url, ManualClock(NOW)))
    assert isinstance(failure, Malformed)


def test_nobody_there_is_unreachable_and_without_a_login_nobody_is_asked() -> None:
    clock = ManualClock(NOW)
    _, failure = until_error(nebius("http://127.0.0.1:9", clock, timeout_seconds=0.3))
    assert isinstance(failure, Unreachable)
    _, failure = until_error(nebius("http://nobody.invalid:9", clock, attempts=4, timeout_seconds=20))
    assert isinstance(failure, HostUnknown)
    with pytest.raises(NoLogin, match="login"):
        list(Nebius(clock=clock, environment={}).offers(OfferQuery()))


_ODD_TEXT = ("", "NaN", "-1", "0", "free", "1e9", "0.0000001", "99999999999", "x" * 3000, "a/b@c", "eur", "\u202e")
_ODD_NUMBERS = (0, 1, 3, -1, 2**31 - 1)


def _damaged(message: Any, chance: random.Random, steps: list[str]) -> None:
    """Something odd somewhere in a message: one of its fields cleared, or set to an odd value of its type."""
    key = chance.choice([one for one in dir(message) if one.islower() and _is_set(message, one)])
    value = getattr(message, key)
    steps.append(key)
    if chance.random() < 0.15:
        message.ClearField(key)
        steps.append("deleted")
    elif isinstance(value, str):
        setattr(message, key, chance.choice(_ODD_TEXT))
        steps.append(f"= {getattr(message, key)!r:.40}")
    elif isinstance(value, bool):
        setattr(message, key, not value)
        steps.append(f"= {not value}")
    elif isinstance(value, int):
        setattr(message, key, chance.choice(_ODD_NUMBERS))
        steps.append(f"= {getattr(message, key)}")
    else:
        inner = chance.choice(list(value)) if hasattr(value, "__len__") else value
        _damaged(inner if hasattr(inner, "HasField") else inner.value, chance, steps)  # one of several has a wrapper


def _is_set(message: Any, key: str) -> bool:
    """Whether a field is there, and no enumeration."""
    value = getattr(message, key)
    if isinstance(value, str | int):
        return not isinstance(value, IntEnum)
    return bool(len(value)) if hasattr(value, "__len__") else bool(message.HasField(key))


@contextmanager
def target(part: str = "platforms") -> Iterator[MutationTarget]:
    """For `tests.market.test_damaged_answers`: the list of platforms, or the ``estimates``."""
    from nebius.api.nebius.billing.v1 import EstimateBatchResponse
    from nebius.api.nebius.compute.v1 import ListPlatformsResponse

    with NebiusMarket(GOOD).served() as market:
        usual: list[bytes] = []  # the answers, in the order in which they are asked for
        served: list[bytes] = []
        method = PLATFORMS if part == "platforms" else ESTIMATE

        def other(content: bytes) -> bytes:
            usual.append(content)
            return served[len(usual) - 1] if len(usual) <= len(served) else content

        market.replace[method] = other

        def ask(raw: bytes | None) -> AdapterAnswer:
            usual.clear()
            served[:] = [] if raw is None else raw.split(_BETWEEN)
            return answer_of(nebius(market.url, ManualClock(NOW)).offers(OfferQuery()))

        whole, answers = ask(None).offers, list(usual)
        platforms = list(GOOD)
        rows = platforms if part == "platforms" else [f"{one}_{name}" for one in GOOD for name in GOOD[one][1]]

        def damage(chance: random.Random) -> DamagedBody:
            index, steps = chance.randrange(len(rows)), list[str]()
            changed = list(answers)
            at = 0 if part == "platforms" else index
            if chance.random() < 0.2:
                changed[at] = damaged_bytes(answers[at], chance)
                return DamagedBody(_BETWEEN.join(changed), None, "bytes: price", readable=True)
            if part == "platforms":
                page = ListPlatformsResponse.FromString(answers[0])
                _damaged(page.items[index], chance, steps)
                changed[0] = page.SerializeToString()
            else:
                estimate = EstimateBatchResponse.FromString(answers[index])
                _damaged(estimate, chance, steps)
                changed[index] = estimate.SerializeToString()
            return DamagedBody(_BETWEEN.join(changed), index, f"row {index}: {'.'.join(steps)}")

        groups = {one: frozenset(o for o in whole if o.instance_type.startswith(one)) for one in rows}
        assert all(groups.values())
        # A platform that lacks a preset, or has another number of GPUs, is another one.
        yield MutationTarget(
            damage,
            ask,
            groups,
            group=lambda row: rows[row],
            fair=r"presets\.deleted|bytes",
            prices=r"bytes|total_costs",
        )


_BETWEEN = b"<<between two answers>>"
