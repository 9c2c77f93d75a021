"""What every provider promises (`broker.core.ports.Provider`), as a suite.

A provider's own test file subclasses `ProviderContract`, names the registered provider that it tests, and defines it::

    class TestOwned(ProviderContract):
        plugin = "owned"

        @pytest.fixture
        def provider(self, clock):
            return Owned(clock=clock)

The simulated market of the fixture stays the same between two polls; the suite moves only the clock.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import ClassVar

import pytest

from broker.core.market.accelerators import canonical
from broker.core.market.offers import Availability, CapacityType, Interconnect, MoneyKind, Offer, OfferQuery, SkippedRow
from broker.core.ports import Provider
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
EVERYTHING = OfferQuery()
PLAIN_NAME = re.compile(r"[a-z][a-z0-9_-]*")
CODE = re.compile(r"[a-z][a-z0-9_]*")


def poll(provider: Provider, query: OfferQuery = EVERYTHING) -> list[Offer]:
    return [row for row in provider.offers(query) if isinstance(row, Offer)]


def wanted(offer: Offer, query: OfferQuery) -> bool:
    """Whether the query matches this offer: the minimum that a provider has to yield for it."""
    return (
        (not query.accelerators or offer.accelerator in query.accelerators)
        and (query.count is None or offer.count >= query.count)
        and (not query.capacity_types or offer.capacity_type in query.capacity_types)
        and (not query.providers or any(fnmatchcase(offer.provider, name) for name in query.providers))
        and (not query.regions or any(fnmatchcase(offer.region, region) for region in query.regions))
        and (query.max_price is None or (offer.price is not None and offer.price <= query.max_price))
    )


def queries_about(offers: Iterable[Offer]) -> set[OfferQuery]:
    """Narrow queries that some of these offers match."""
    questions = set()
    for offer in offers:
        questions.add(OfferQuery(capacity_types=(offer.capacity_type,)))
        questions.add(OfferQuery(providers=(offer.provider,)))
        questions.add(OfferQuery(regions=(f"{offer.region[:3]}*",)))
        if offer.accelerator:
            questions.add(OfferQuery(accelerators=(offer.accelerator,), count=offer.count))
        if offer.price is not None:
            questions.add(
                OfferQuery(
                    accelerators=(offer.accelerator,) if offer.accelerator else (),
                    capacity_types=(offer.capacity_type,),
                    max_price=offer.price,
                )
            )
    return questions


def a_few(questions: Iterable[OfferQuery], of_each: int = 1) -> list[OfferQuery]:
    """Some of each kind of query, spread over all of them: each is a poll, and a large market has a hundred."""
    kinds = defaultdict(list)
    for question in sorted(questions, key=repr):
        kinds[tuple(one.name for one in fields(question) if getattr(question, one.name))].append(question)
    return [question for asked in kinds.values() for question in asked[:: -(-len(asked) // of_each)]]


def loses_nothing(provider: Provider, every: Iterable[Offer], questions: Iterable[OfferQuery]) -> None:
    """Raises AssertionError for an offer that matches the query and is not in the answer."""
    for query in questions:
        got = {offer.id for offer in poll(provider, query)}
        missing = [offer.id for offer in every if wanted(offer, query) and offer.id not in got]
        assert not missing, f"{query} loses {missing[:3]}"


def check(offer: Offer, now: datetime) -> None:
    """What every single offer promises."""
    name = offer.id
    assert offer.price is None or isinstance(offer.price, Money), f"{name}: price {offer.price!r}"
    assert offer.price is None or offer.has_valid_price(), f"{name}: a price of {offer.price}"
    assert offer.amortised is None or offer.amortised >= Money.ZERO, f"{name}: {offer.amortised}"
    assert offer.as_of.utcoffset() == timedelta(0), f"{name}: as_of {offer.as_of!r} is not in UTC"
    assert offer.as_of <= now, f"{name}: as_of {offer.as_of} is after {now}"
    assert offer.source.strip(), f"{name}: no source"
    assert not offer.reference or offer.max_age is None, f"{name}: a reference price with an age limit"
    _check_place(offer)
    _check_machine(offer)
    _check_money(offer)


def _check_place(offer: Offer) -> None:
    assert PLAIN_NAME.fullmatch(offer.provider), f"provider {offer.provider!r}"
    for part in (offer.region, offer.instance_type, "-" if offer.zone is None else offer.zone):
        assert part.strip() == part != "", f"{offer.id}: an empty name"
        assert not {"/", "@"} & {*part}, f"{offer.id}: a name with / or @ in it"
    assert isinstance(offer.availability, Availability), f"{offer.id}: {offer.availability!r}"
    gone = offer.availability in (Availability.UNAVAILABLE, Availability.NO_QUOTA)
    assert bool(offer.unavailable_because) == gone, f"{offer.id}: {offer.availability} and no reason"
    assert offer.slots is None or offer.slots >= 0, f"{offer.id}: {offer.slots} machines"
    assert not (offer.slots == 0 and offer.availability is Availability.AVAILABLE), f"{offer.id}: 0 available"
    assert offer.engine is None or PLAIN_NAME.fullmatch(offer.engine), f"{offer.id}: engine {offer.engine!r}"


def _check_machine(offer: Offer) -> None:
    assert (offer.accelerator is None) == (offer.count == 0), f"{offer.id}: {offer.count} accelerators"
    assert offer.count >= 0, f"{offer.id}: {offer.count} accelerators"
    assert offer.accelerator is None or canonical(offer.accelerator) == offer.accelerator, f"{offer.id}: another name"
    assert offer.interconnect is None or isinstance(offer.interconnect, Interconnect), f"{offer.id}"
    for figure in (offer.cpus, offer.memory_gib):
        assert figure is None or figure > 0, f"{offer.id}: {figure} CPUs or GiB"
    assert offer.interruption_rate is None or offer.interruption_rate >= 0, f"{offer.id}: interruption rate"


def _check_money(offer: Offer) -> None:
    kind, name = offer.capacity_type, offer.id
    assert isinstance(kind, CapacityType), f"{name}: {kind!r}"
    assert isinstance(offer.money, MoneyKind), f"{name}: {offer.money!r}"
    assert offer.billing.minimum >= timedelta(0), f"{name}: billing minimum"
    assert offer.billing.granularity > timedelta(0), f"{name}: billing granularity"
    assert offer.max_age is None or offer.max_age > timedelta(0), f"{name}: max age"
    if offer.term_months is not None:
        assert kind is CapacityType.RESERVED, f"{name}: a term"
        assert offer.term_months > 0, f"{name}: a term of {offer.term_months} months"
        assert offer.engine is None, f"{name}: a term to be bought first"
    pretend = offer.money is MoneyKind.SANDBOX
    assert pretend == (offer.provider == "sandbox"), f"{name}: half pretend"
    assert offer.engine is None or pretend == (offer.engine == "sandbox"), f"{name}: on {offer.engine}"
    assert not pretend or offer.region.startswith("sandbox"), f"{name}: a pretend place with a real name"
    paid = offer.money is MoneyKind.AMORTISED
    assert paid or kind is not CapacityType.OWNED, f"{name}: owned, and yet {offer.money}"
    assert not paid or kind not in (CapacityType.ON_DEMAND, CapacityType.SPOT), f"{name}: {kind}, not yet paid"


class ProviderContract:
    """Subclass it, set ``plugin``, and define the fixture ``provider``."""

    plugin: ClassVar[str]

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(NOW)

    def test_its_offers_are_whole_and_the_same_at_the_next_poll(self, provider: Provider, clock: ManualClock) -> None:
        assert provider.name == self.plugin, f"calls itself {provider.name!r}, is registered as {self.plugin!r}"
        next(iter(provider.offers(EVERYTHING)), None)  # who stops reading harms no later poll
        offers = []
        for row in provider.offers(EVERYTHING):
            assert isinstance(row, Offer | SkippedRow), f"yields {row!r}"
            if isinstance(row, SkippedRow):
                assert CODE.fullmatch(row.reason), f"a reason that cannot be counted: {row.reason!r}"
                assert row.detail, f"skipped as {row.reason} without a sample of why"
            else:
                offers.append(row)
        assert offers, "no offers: nothing else in this suite means anything"
        for offer in offers:
            check(offer, clock.now())
        twice = [name for name, number in Counter(offer.id for offer in offers).items() if number > 1]
        assert not twice, f"two offers of one id: {twice[:3]}"
        clock.advance(timedelta(minutes=1))
        assert [offer.id for offer in poll(provider)] == [offer.id for offer in offers], "ids that come and go"

    def test_a_query_gets_at_least_what_it_asks_for(self, provider: Provider, clock: ManualClock) -> None:
        every = poll(provider)
        loses_nothing(provider, every, a_few(queries_about(every)))

    @pytest.mark.system
    def test_any_query_gets_at_least_what_it_asks_for(self, provider: Provider, clock: ManualClock) -> None:
        every = poll(provider)
        loses_nothing(provider, every, queries_about(every))
