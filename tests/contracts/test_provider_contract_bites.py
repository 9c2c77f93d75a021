"""Tests of the provider contract itself: a faulty provider must fail it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import Any

import pytest

from broker.core.market.offers import Availability, Billing, CapacityType, MoneyKind, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from tests.contracts.provider_contract import NOW, ProviderContract

Change = Callable[[Offer], Offer]


class DoubleProvider:
    """A small correct provider, except for the change that a test makes to its middle offer."""

    name = "double"

    def __init__(self, clock: ManualClock, change: Change = lambda offer: offer) -> None:
        self.clock = clock
        self.change = change
        self.polls = 0

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        self.polls += 1
        return iter(self.rows(query))

    def rows(self, query: OfferQuery) -> list[Any]:
        first = Offer(
            provider="cloud",
            region="north-1",
            zone=None,
            instance_type="h100x8",
            accelerator="H100",
            count=8,
            capacity_type=CapacityType.ON_DEMAND,
            price=Money.usd("20"),
            as_of=self.clock.now(),
            source="double",
            engine="skypilot",
        )
        changed = self.change(replace(first, region="north-2", capacity_type=CapacityType.SPOT, price=Money.usd("8")))
        sold_out = replace(
            first, region="south-1", availability=Availability.UNAVAILABLE, unavailable_because="sold out", slots=0
        )
        return [first, SkippedRow("odd_row", "one that cannot be read"), changed, sold_out]


class MisnamedProvider(DoubleProvider):
    name = "someone_else"


class Silent(DoubleProvider):
    def rows(self, query: OfferQuery) -> list[Any]:
        return [SkippedRow("odd_row", "all of them")]


class Raw(DoubleProvider):
    def rows(self, query: OfferQuery) -> list[Any]:
        return [*super().rows(query), {"price": 3}]


class Uncountable(DoubleProvider):
    def rows(self, query: OfferQuery) -> list[Any]:
        return [*super().rows(query), SkippedRow("Row 17 was odd")]


class Repeating(DoubleProvider):
    def rows(self, query: OfferQuery) -> list[Any]:
        return [*super().rows(query), super().rows(query)[0]]


class Wandering(DoubleProvider):
    def rows(self, query: OfferQuery) -> list[Any]:
        first, *rest = super().rows(query)
        return [replace(first, instance_type=f"row-{self.clock.now():%M}"), *rest]


class Overeager(DoubleProvider):
    """Applies a price limit as if it were lower."""

    def rows(self, query: OfferQuery) -> list[Any]:
        rows = super().rows(query)
        if query.max_price is None:
            return rows
        return [row for row in rows if isinstance(row, Offer) and row.price and row.price < query.max_price]


class OneRegion(DoubleProvider):
    """Treats a pattern of regions as a name."""

    def rows(self, query: OfferQuery) -> list[Any]:
        return [row for row in super().rows(query) if not query.regions or getattr(row, "region", "") in query.regions]


class Once(DoubleProvider):
    """Returns the same iterator each time, which is exhausted for the second caller."""

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        if not hasattr(self, "used"):
            self.used = iter(self.rows(query))
        return self.used


def with_change(**changes: Any) -> Callable[[ManualClock], DoubleProvider]:
    return lambda clock: DoubleProvider(clock, lambda offer: replace(offer, **changes))


LIES: dict[str, tuple[Callable[[ManualClock], DoubleProvider], str]] = {
    "another name": (MisnamedProvider, "registered_name"),
    "nothing offered": (Silent, "offers_something"),
    "a row of the provider's own": (Raw, "nothing_else"),
    "a reason nobody can count": (Uncountable, "nothing_else"),
    "spot for nothing": (with_change(price=Money.ZERO), "positive_or_unknown"),
    "a negative price": (with_change(price=Money(-1)), "positive_or_unknown"),
    "a price that is not money": (with_change(price=2.5), "positive_or_unknown"),
    "a free reservation for cash": (
        with_change(capacity_type=CapacityType.RESERVED, price=Money.ZERO),
        "positive_or_unknown",
    ),
    "a naive time": (with_change(as_of=NOW.replace(tzinfo=None)), "in_utc"),
    "another time zone": (with_change(as_of=NOW.astimezone(timezone(timedelta(hours=2)))), "in_utc"),
    "a price of tomorrow": (with_change(as_of=datetime(2026, 11, 22, tzinfo=UTC)), "in_the_future"),
    "no source": (with_change(source=""), "who_says_so"),
    "no region": (with_change(region=""), "where_and_what"),
    "a name that breaks ids": (with_change(instance_type="a/b"), "where_and_what"),
    "the same offer twice": (Repeating, "ids_are_unique"),
    "ids by row number": (Wandering, "at_the_next_poll"),
    "sold out without a word": (with_change(availability=Availability.UNAVAILABLE), "says_why"),
    "available, none left": (with_change(availability=Availability.AVAILABLE, slots=0), "says_why"),
    "a vendor's name for a GPU": (with_change(accelerator="NVIDIA H100 80GB HBM3"), "their_one_name"),
    "a GPU machine without GPUs": (with_change(count=0), "their_one_name"),
    "a kind of its own": (with_change(capacity_type="preemptible"), "known_kinds"),
    "spot with a term": (with_change(term_months=12), "has_a_term"),
    "no CPUs": (with_change(cpus=0.0), "in_their_range"),
    "billing in steps of nothing": (with_change(billing=Billing(granularity=timedelta(0))), "in_their_range"),
    "a job on a contract not yet signed": (
        with_change(capacity_type=CapacityType.RESERVED, term_months=36),
        "commitment_for_sale",
    ),
    "a real engine for pretend capacity": (
        with_change(provider="sandbox", region="sandbox-x", money=MoneyKind.SANDBOX),
        "pretend",
    ),
    "an engine without a name": (with_change(engine=""), "an_engine_is_named"),
    "pretend money for a real cloud": (with_change(money=MoneyKind.SANDBOX), "pretend"),
    "spot that was paid before": (with_change(money=MoneyKind.AMORTISED), "amortised"),
    "owned, for cash": (with_change(capacity_type=CapacityType.OWNED), "amortised"),
    "a reference that goes stale": (with_change(reference=True, max_age=timedelta(hours=1)), "reference"),
    "less than requested, by price": (Overeager, "at_least_what_it_asks_for"),
    "less than requested, by region": (OneRegion, "at_least_what_it_asks_for"),
    "one answer only": (Once, "again_and_again"),
}


@cache
def failures(make: Callable[[ManualClock], DoubleProvider]) -> frozenset[str]:
    """The checks of the contract that the provider fails."""

    class DoubleProviderContract(ProviderContract):
        plugin = "double"

    failed = set()
    for check in dir(ProviderContract):
        if check.startswith("test_"):
            clock = ManualClock(NOW)
            try:
                getattr(DoubleProviderContract(), check)(provider=make(clock), clock=clock)
            except (AssertionError, AttributeError, TypeError):  # a wrong type may raise within the check itself
                failed.add(check)
    return frozenset(failed)


def test_an_honest_provider_passes() -> None:
    assert failures(DoubleProvider) == set()


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_caught(lie: str) -> None:
    make, where = LIES[lie]
    assert any(where in check for check in failures(make)), f"{lie}: nothing said so"


def test_every_check_catches_some_lie() -> None:
    idle = [
        check
        for check in dir(ProviderContract)
        if check.startswith("test_") and not any(check in failures(make) for make, _ in LIES.values())
    ]
    assert not idle, f"checks that no lie fails: {idle}"
